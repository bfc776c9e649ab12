"""Which conditions of a bash script hold; one that hangs on files or the output of commands does not."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from optimizer.frameworks.bash.arithmetic import whole_number
from optimizer.frameworks.bash.pieces import known_text
from optimizer.frameworks.bash.words import QUOTED, Words


class Conditions(Words):
    """Words, and the conditions that they are part of."""

    def holds(self, node: Any) -> bool:
        """Whether a condition holds; what hangs on files or the output of commands does not."""
        text = self.text(node)
        if node.type == "test_command":
            inner = [child for child in node.named_children if child.type != "comment"]
            if text.startswith("(("):
                return bool(whole_number(text.strip("() "), self.plain))
            return bool(inner) and self.holds(inner[0])
        if node.type == "list":
            left, right = node.named_children[0], node.named_children[-1]
            joined = [self.text(child) for child in node.children]
            if "||" in joined:
                return self.holds(left) or self.holds(right)
            return self.holds(left) and self.holds(right)
        if node.type == "negated_command":
            inside = node.named_children[0]
            return inside.type == "test_command" and not self.holds(inside)
        if node.type == "parenthesized_expression":
            return self.holds(node.named_children[0])
        if node.type == "unary_expression":
            return self.one_sided(node)
        if node.type == "binary_expression":
            return self.compared(node)
        if node.type == "command":
            return text.strip() == "true"
        return bool(known_text(self.scalar(node)))

    def one_sided(self, node: Any) -> bool:
        """Whether a test of one word holds: -z, -n, -v, or its opposite."""
        sign = self.text(node.children[0])
        operand = node.named_children[-1]
        if sign == "!":
            unknowable = self.text(operand).lstrip().startswith(("-f", "-d", "-e", "-s", "-x", "-r"))
            return not unknowable and not self.holds(operand)
        value = known_text(self.scalar(operand))
        return {"-z": not value, "-n": bool(value), "-v": bool(self.variables.get(self.text(operand)))}.get(sign, False)

    def compared(self, node: Any) -> bool:
        """Whether two words, numbers or conditions compare so."""
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        sign_node = node.child_by_field_name("operator")
        if left is None or right is None or sign_node is None:
            return False
        sign = self.text(sign_node)
        if sign in ("&&", "-a"):
            return self.holds(left) and self.holds(right)
        if sign in ("||", "-o"):
            return self.holds(left) or self.holds(right)
        ours, theirs = known_text(self.scalar(left)), known_text(self.scalar(right))
        if sign in ("=", "=="):
            return ours == theirs or (right.type not in QUOTED and fnmatchcase(ours, theirs))
        if sign == "!=":
            return not (ours == theirs or (right.type not in QUOTED and fnmatchcase(ours, theirs)))
        numbers = {"-eq": "==", "-ne": "!=", "-gt": ">", "-ge": ">=", "-lt": "<", "-le": "<=", "<": "<", ">": ">"}
        return sign in numbers and bool(whole_number(f"{ours or 0} {numbers[sign]} {theirs or 0}", self.plain))
