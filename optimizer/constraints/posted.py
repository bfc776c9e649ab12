"""What was posted to CP-SAT, read back: which given values each rule of a program allows, without its solver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray

Columns = Mapping[str, NDArray[np.int64]]


def allowed(program: Program, columns: Columns) -> dict[str, BoolArray]:
    """Whether the literal of each rule may be true in every row of these values of the named variables.

    Rules are tables and domains of named variables; what else is under a literal says nothing about the variables.

    >>> program = Program({"tp": (1, 2, 4)})
    >>> program.restrict("tp", [1, 2], program.literal("narrow"))
    >>> allowed(program, {"tp": np.array([1, 4])})["narrow"].tolist()
    [True, False]
    """
    names = {number: name for name, number in program.index.items()}
    rules = {literal: name for name, literal in program.literals.items()}
    rows = len(next(iter(columns.values())))
    holds = {name: np.ones(rows, dtype=np.bool_) for name in program.literals}
    ranks = {name: np.searchsorted(domain, columns[name]) for name, domain in program.domains.items()}
    for constraint in program.message.constraints:
        literals = constraint.enforcement_literal
        rule = rules.get(literals[0]) if literals else None
        if rule is None:
            continue
        if constraint.has_table():
            holds[rule] &= _in_table(constraint.table, program, names, ranks)
        elif constraint.has_linear():
            holds[rule] &= _in_domain(constraint.linear, names, columns)
    return holds


def _in_table(table: Any, program: Program, names: Mapping[int, str], ranks: Columns) -> BoolArray:
    """Rows of values that the table lists, compared as one number each; `ranks` are their places in the domains."""
    variables = [names[expression.vars[0]] for expression in table.exprs]
    listed = np.array(list(table.values), dtype=np.int64).reshape(-1, len(variables))
    mine, theirs = np.zeros(len(ranks[variables[0]]), dtype=np.int64), np.zeros(len(listed), dtype=np.int64)
    possible = np.ones(len(listed), dtype=np.bool_)
    for name, column in zip(variables, listed.T, strict=True):
        domain = np.array(program.domains[name])
        rank = np.minimum(np.searchsorted(domain, column), len(domain) - 1)
        possible &= domain[rank] == column
        mine, theirs = mine * len(domain) + ranks[name], theirs * len(domain) + rank
    return np.isin(mine, theirs[possible])


def _in_domain(linear: Any, names: Mapping[int, str], columns: Columns) -> BoolArray:
    """Rows whose value lies in an interval of the domain; no row where no value is allowed."""
    if not len(linear.vars):
        return np.asarray(False)
    values, ends = columns[names[linear.vars[0]]], list(linear.domain)
    inside = [(values >= low) & (values <= high) for low, high in zip(ends[::2], ends[1::2], strict=True)]
    return np.asarray(np.logical_or.reduce(inside))
