"""A formula that is printed as it is executed: a function of one expression, and the term that it computes."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from optimizer.objectives.arrays import FloatArray

Inputs = Mapping[str, FloatArray | float]
SECONDS, BYTES = "s", "B"
COMPUTE, STREAM, WAIT = "compute", "stream", "wait"  # what a GPU burns its power on


@dataclass(frozen=True, kw_only=True)
class Formula:
    """A function whose body is one expression of its arguments, printed with units and source."""

    function: Callable[..., Any]  # what is executed
    # whose docstring gives units and source, where it is not the function's own
    documented: Callable[..., Any] | None = None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The arguments."""
        return tuple(inspect.signature(self.function).parameters)

    @cached_property
    def text(self) -> str:
        """The expression, as Python reads it.

        >>> def area(width: float, height: float) -> float:
        ...     return width * height
        >>> Formula(function=area).names
        ('width', 'height')
        """
        tree = ast.parse(textwrap.dedent(inspect.getsource(self.function)))
        returned = next(node.value for node in ast.walk(tree) if isinstance(node, ast.Return) and node.value)
        return ast.unparse(returned).replace("np.", "")

    @property
    def name(self) -> str:
        """What code calls the function."""
        return (self.documented or self.function).__name__

    @property
    def about(self) -> str:
        """The docstring before its source."""
        return _parts(self.documented or self.function)[0]

    @property
    def source(self) -> str:
        """Where the formula comes from."""
        return _parts(self.documented or self.function)[1]

    def __call__(self, inputs: Inputs) -> FloatArray:
        """The value, with the arguments found among the inputs by name."""
        return np.asarray(self.function(**{name: inputs[name] for name in self.names}))


@dataclass(frozen=True, kw_only=True)
class Term:
    """One term of an estimate, in seconds or bytes."""

    name: str
    label: str  # for people
    unit: str
    formula: Formula
    phase: str = "layer"  # "layer", "pipeline" or "step"
    burns: str = WAIT  # what the GPU does meanwhile: COMPUTE, STREAM or WAIT
    knobs: tuple[str, ...] = ()  # those that move it
    parameters: tuple[str, ...] = ()  # of the stack that enter it
    quantities: tuple[str, ...] = ()  # of the device that enter it
    kernels: tuple[Callable[..., Any], ...] = ()  # functions behind its inputs, whose formulas are shown with it


def is_expression(function: Callable[..., object]) -> bool:
    """Whether a function is one expression, so that it can be printed as a formula.

    >>> is_expression(_parts), is_expression(is_expression)
    (False, False)
    """
    body = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    return isinstance(body, ast.FunctionDef) and len(body.body) <= 2 and isinstance(body.body[-1], ast.Return)


def _parts(function: Callable[..., object]) -> tuple[str, str]:
    """Text of a docstring before its source, and the source, without doctests."""
    body = (inspect.getdoc(function) or "").split(">>>")[0]
    head, _, source = body.partition("Source:")
    return re.sub(r"\s+", " ", head).strip(), re.sub(r"\s+", " ", source).strip()
