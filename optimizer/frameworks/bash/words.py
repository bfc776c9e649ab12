"""What the words of a bash script say, and which conditions hold.

Words are literal text, variables with their defaults, arrays and arithmetic. A condition that hangs on files or the
output of commands does not hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from optimizer.base.errors import InputError
from optimizer.frameworks.bash.arithmetic import whole_number
from optimizer.frameworks.bash.pieces import Piece, Site, Word, known_text, split_words, text_of, unknown_in

MOST_CARRIED = 20_000_000  # characters that variables carry in all
PIECE = 100  # what a piece of text counts beside its own
QUOTED = ("string", "raw_string", "ansi_c_string", "translated_string")
PLAIN = ("word", "number")  # arguments without quotes and variables
BLANKS = re.compile(rb"(?:\\\n|\s)+")
PARTS = re.compile(rb"(?:\\\n|\s)+|(?:\\[^\n]|[^\s\\]|\\$)+")
TRIM = re.compile(r"(%%?|##?)(.*)", re.DOTALL)
JOINING = {"-o": any, "-a": all}  # in the order in which they part a test
SIGNS = ("test_operator", "!")  # before a word, but for that of a number
# Commands that count the nodes of a job, and the variable that has as many. With `mpiprocs` a node has several lines in
# a PBS_NODEFILE. Source: tier1.cenaero.be/en/node/104.
COUNTS_NODES = re.compile(
    r"(?:scontrol\s+show\s+hostnames?\b|_NODEFILE\b)[^;&]*\|\s*wc\s+-l\s*[)`]$|wc\s+-l\s*<\s*[^;&|]*_NODEFILE\b[^;&|]*[)`]$"
)
NODES, PROCESSES, ONCE = "SLURM_NNODES", b"mpiprocs", re.compile(r"\buniq\b|\bsort\s+-u\b")
OF_FILES = ("-f", "-d", "-e", "-s", "-x", "-r")


class Words:
    """The words of one text and the conditions that they are part of, with the variables as they stand."""

    def __init__(self, data: bytes, variables: dict[str, list[Word]]) -> None:
        self.data, self.variables = data, variables
        self.carried_text = 0

    def start(self, node: Any) -> int:
        """First byte of a node, without the blanks that the parser counts to some of those in strings."""
        blank = BLANKS.match(self.data, node.start_byte, node.end_byte)
        return blank.end() if blank else int(node.start_byte)

    def text(self, node: Any) -> str:
        """A node as it is written."""
        return self.data[self.start(node) : node.end_byte].decode("utf-8", "replace")

    def plain(self, name: str) -> str:
        """The text of a variable, "" where it is unset or open."""
        words = self.variables.get(name)
        if not words or any(unknown_in(word) for word in words):
            return ""
        return text_of(words[0]).strip()

    def words(self, node: Any) -> list[Word]:
        """The words that one argument becomes: several where an unquoted variable holds blanks, or an array is used."""
        if node.type in PLAIN and "\\" not in (text := self.text(node)):
            return [(Piece(text, ((self.start(node), node.end_byte),)),)]
        whole = self.whole_array(node)
        if whole is not None:
            return whole
        if node.type in QUOTED:
            return [self.scalar(node)]
        if node.type == "concatenation" and any(child.type in QUOTED for child in node.named_children):
            return [self.scalar(node)]
        return list(split_words(self.scalar(node)))

    def whole_array(self, node: Any) -> list[Word] | None:
        """The words of `${NAME[@]}`, `"${NAME[@]}"` or `"$@"`, None for anything else."""
        match = re.fullmatch(r'"?\$(?:\{(\w+)\[[@*]\]\}|\{?(@)\}?)"?', self.text(node))
        if not match:
            return None
        site, name = (self.start(node), node.end_byte), match[1] or match[2]
        words = [self.carried(word, site) for word in self.variables.get(name, [])]
        return words if node.type in QUOTED else [part for word in words for part in split_words(word)]

    def scalar(self, node: Any) -> Word:
        """What one argument says, blanks and all."""
        return tuple(self._scalar(node))

    def _scalar(self, node: Any) -> Iterator[Piece]:
        kind, site = node.type, (self.start(node), node.end_byte)
        if kind == "concatenation" or kind == "command_name":
            yield from self.inside(node, *site, quoted=False)
        elif kind in ("string", "translated_string"):
            shift = 1 if kind == "string" else 2
            yield from self.inside(node, node.start_byte + shift, node.end_byte - 1)
        elif kind in ("raw_string", "ansi_c_string"):
            shift = 1 if kind == "raw_string" else 2
            yield from literal(self.data, node.start_byte + shift, node.end_byte - 1, raw=True)
        elif kind == "simple_expansion":
            yield from self.variable(self.text(node)[1:], site)
        elif kind == "expansion":
            yield from self.expansion(node, site)
        # Within ${...:-} the grammar takes arithmetic for a command.
        elif kind == "arithmetic_expansion" or self.text(node).startswith("$(("):
            body = re.sub(r"^\$?(\(\(|\[)|(\)\)|\])$", "", self.text(node))
            value = whole_number(body, self.plain)
            if value is None:
                yield Piece("_".join(self.text(node).split()), (site,), " ".join(body.split()))
            else:
                yield Piece(str(value), (site,))
        elif kind == "command_substitution":
            yield from self.substituted(node, site)
        else:
            for piece in literal(self.data, *site):
                yield replace(piece, text=re.sub(r"\\(.)", r"\1", piece.text)) if "\\" in piece.text else piece

    def inside(self, node: Any, start: int, end: int, quoted: bool = True) -> Iterator[Piece]:
        """Literal text between the variables of a string, and what the variables hold."""
        at = start
        for child in node.named_children:
            if child.type in ("string_content", "heredoc_content", "comment") or (quoted and child.type == "word"):
                continue
            begun = self.start(child)
            translated = not quoted and child.type == "string" and self.data[at:begun] == b"$"  # $"..." says "..."
            yield from literal(self.data, at, begun - translated)
            yield from self._scalar(child)
            at = child.end_byte
        yield from literal(self.data, at, end)

    def variable(self, name: str, site: Site) -> Iterator[Piece]:
        """What a variable holds, used at this place; an open piece where nothing is known of it."""
        if self.variables.get(name):
            for place, word in enumerate(self.variables[name]):
                if name in ("@", "*") and place:
                    yield Piece(" ")
                if place == 0 or name in ("@", "*"):
                    yield from self.carried(word, site)
        elif name not in ("@", "*"):
            yield Piece(f"${name}", (site,), name)

    def carried(self, word: Word, site: Site) -> Word:
        """What a variable holds, used in this place; raises InputError where variables keep doubling what they hold."""
        self.carried_text += sum(len(piece.text) + PIECE for piece in word)
        if self.carried_text > MOST_CARRIED:
            raise InputError("the variables of the script hold too much text: is one made of itself again and again?")
        return tuple(piece.used_at(site) for piece in word)

    def expansion(self, node: Any, site: Site) -> Iterator[Piece]:
        """What `${...}` says: lengths, indices, defaults, and parts cut off or replaced."""
        text = self.text(node)
        match = re.match(r"\$\{(!|#)?(\w+|[@*])(\[[^]]*\])?", text)
        if not match:
            yield Piece(text, (site,), text)
            return
        name, rest = match[2], text[match.end() : -1]
        if match[1]:
            words = self.variables.get(name, [])
            if match[1] == "#" and words:
                yield Piece(str(len(words) if match[3] else len(text_of(words[0]))), (site,))
            elif match[1] == "!" and words:
                yield from self.variable(text_of(words[0]), site)
            else:
                yield Piece(text, (site,), name)
            return
        if match[3] and match[3] not in ("[@]", "[*]"):
            place = whole_number(match[3][1:-1], self.plain)
            words = self.variables.get(name, [])
            if place is not None and -len(words) <= place < len(words):
                yield from (piece.used_at(site) for piece in words[place])
            else:
                yield Piece(text, (site,), name)
            return
        if match[3]:
            for place, word in enumerate(self.whole_array(node) or []):
                yield from ((Piece(" "),) if place else ())
                yield from word
            return
        sign = re.match(r":?[-=+?]", rest)
        if sign:
            yield from self.default(node, site, name, sign[0], match.end() + len(sign[0]))
        elif trim := TRIM.match(rest):
            yield Piece(trimmed(self.plain(name), trim[1], trim[2]), (site,), "" if self.plain(name) else name)
        elif rest:
            yield Piece(text, (site,), name)
        else:
            yield from self.variable(name, site)

    def default(self, node: Any, site: Site, name: str, sign: str, offset: int) -> Iterator[Piece]:
        """A variable with what stands for it: `:-`, `:=`, `:+`, `:?`."""
        words = self.variables.get(name) or []
        there = bool(words) and (not sign.startswith(":") or bool(known_text(words[0])))
        if sign.endswith("?"):
            yield from self.variable(name, site)
        elif sign.endswith("+") == there:
            value = list(self.after(node, site[0] + offset))
            yield from value
            if sign.endswith("="):
                self.variables[name] = [tuple(value)]
        elif there and not sign.endswith("+"):
            yield from self.variable(name, site)

    def after(self, node: Any, start: int) -> Iterator[Piece]:
        """The part of an expansion after its sign."""
        at = start
        for child in node.named_children:
            if child.start_byte < start:
                continue
            yield from literal(self.data, at, child.start_byte)
            yield from self._scalar(child)
            at = child.end_byte
        yield from literal(self.data, at, node.end_byte - 1)

    def heredoc(self, statement: Any) -> tuple[Any, Word | None]:
        """A statement's here-document: its node, and its text line by line; None where it has none."""
        here = next((child for child in statement.named_children if child.type == "heredoc_redirect"), None)
        parts = {child.type: child for child in here.named_children} if here is not None else {}
        body, start = parts.get("heredoc_body"), parts.get("heredoc_start")
        if body is None:
            return here, None
        span, quoted = (body.start_byte, body.end_byte), start is not None and self.text(start)[:1] in "'\"\\"
        return here, tuple(
            map(self._lined, literal(self.data, *span, raw=True) if quoted else self.inside(body, *span))
        )

    def _lined(self, piece: Piece) -> Piece:
        """A blank that ends a line as the end of a line."""
        start, end = piece.sites[0] if piece.sites else (0, 0)
        ends = piece.text == " " and start >= 0 and b"\n" in self.data[start:end].replace(b"\\\n", b"")
        return replace(piece, text="\n") if ends else piece

    def substituted(self, node: Any, site: Site) -> Iterator[Piece]:
        """What `$(...)` would print: known for echo, expr, here-documents and counts of the job's nodes alone."""
        if self.variables.get(NODES) and self.counts_nodes(self.text(node)):
            yield from self.variable(NODES, site)
            return
        commands = [child for child in node.named_children if child.type == "command"]
        text = self.text(node)
        if len(commands) == 1 and len(node.named_children) == 1:
            words = [word for child in commands[0].named_children[1:] for word in self.words(child)]
            called = self.text(commands[0].named_children[0])
            if called == "echo" and not any(unknown_in(word) for word in words):
                for place, word in enumerate(words):
                    yield from ((Piece(" "),) if place else ())
                    yield from (piece.used_at(site) for piece in word)
                return
            if called == "expr" and (value := whole_number(" ".join(map(text_of, words)), self.plain)) is not None:
                yield Piece(str(value), (site,))
                return
        if len(node.named_children) == 1 and node.named_children[0].type == "redirected_statement":
            _, document = self.heredoc(node.named_children[0])
            if document is not None:
                yield from document
                return
        yield Piece(text.replace(" ", "_"), (site,), text)

    def counts_nodes(self, text: str) -> bool:
        """Whether a command prints the number of the job's nodes."""
        several = "_NODEFILE" in text and PROCESSES in self.data
        return bool(COUNTS_NODES.search(text)) and (not several or bool(ONCE.search(text)))

    def holds(self, node: Any) -> bool:
        """Whether a condition holds; what hangs on files or the output of commands does not."""
        text = self.text(node).strip()
        if text.startswith("((") and text.endswith("))") and node.type in ("test_command", "compound_statement"):
            return bool(whole_number(text[2:-2], self.plain))
        if node.type == "test_command":
            inner = [child for child in node.named_children if child.type != "comment"]
            if inner and not text.startswith("[["):
                return self.joined_tests([*_parts(inner[0])])
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
            return self.one_sided(self.text(node.children[0]), node.named_children[-1])
        if node.type == "binary_expression":
            left, sign, right = (node.child_by_field_name(side) for side in ("left", "operator", "right"))
            return bool(left and sign and right) and self.compared(left, self.text(sign), right)
        if node.type == "command":
            return text == "true"
        return bool(known_text(self.scalar(node)))

    def joined_tests(self, parts: Sequence[Any]) -> bool:
        """Whether tests that -a and -o join hold together; their syntax tree knows no precedence of these."""
        for sign, many in JOINING.items():
            places = [place for place, part in enumerate(parts) if self.text(part) == sign]
            if places:
                cuts = zip([-1, *places], [*places, len(parts)], strict=True)
                return many(self.joined_tests(parts[start + 1 : end]) for start, end in cuts)
        signs = [self.text(part) for part in parts]
        if len(parts) > 1 and signs[0] == "!":
            return signs[1] not in OF_FILES and not self.joined_tests(parts[1:])
        if len(parts) == 3:
            return self.compared(parts[0], signs[1], parts[2])
        if len(parts) == 2:
            return self.one_sided(signs[0], parts[1])
        return len(parts) == 1 and self.holds(parts[0])

    def one_sided(self, sign: str, operand: Any) -> bool:
        """Whether a test of one word holds: -z, -n, -v, or its opposite."""
        if sign == "!":
            unknowable = self.text(operand).lstrip().startswith(OF_FILES)
            return not unknowable and not self.holds(operand)
        value = known_text(self.scalar(operand))
        return {"-z": not value, "-n": bool(value), "-v": bool(self.variables.get(self.text(operand)))}.get(sign, False)

    def compared(self, left: Any, sign: str, right: Any) -> bool:
        """Whether two words, numbers or conditions compare so."""
        if sign == "&&":
            return self.holds(left) and self.holds(right)
        if sign == "||":
            return self.holds(left) or self.holds(right)
        ours, theirs = known_text(self.scalar(left)), known_text(self.scalar(right))
        if sign in ("=", "=="):
            return ours == theirs or (right.type not in QUOTED and fnmatchcase(ours, theirs))
        if sign == "!=":
            return not (ours == theirs or (right.type not in QUOTED and fnmatchcase(ours, theirs)))
        numbers = {"-eq": "==", "-ne": "!=", "-gt": ">", "-ge": ">=", "-lt": "<", "-le": "<=", "<": "<", ">": ">"}
        return sign in numbers and bool(whole_number(f"{ours or 0} {numbers[sign]} {theirs or 0}", self.plain))


def _parts(node: Any) -> Iterator[Any]:
    """The words and signs of a test, one after the other."""
    if node.type == "binary_expression" or (node.type == "unary_expression" and node.children[0].type in SIGNS):
        for child in node.children:
            yield from _parts(child)
    else:
        yield node


def literal(data: bytes, start: int, end: int, raw: bool = False) -> Iterator[Piece]:
    r"""Literal text as pieces, each blank or not, with its place; a backslash at the end of a line joins lines.

    >>> [piece.text for piece in literal(b"--tp 8 \\\n --bf16", 0, 16)]
    ['--tp', ' ', '8', ' ', '--bf16']
    """
    for match in PARTS.finditer(data[start:end]):
        site = (start + match.start(), start + match.end())
        text = match[0].decode("utf-8", "replace")
        if not text.replace("\\\n", "").strip():
            yield Piece(" ", (site,))
        else:
            yield Piece(text if raw or "\\" not in text else re.sub(r"\\([\"$`\\'])", r"\1", text), (site,))


def trimmed(text: str, sign: str, pattern: str) -> str:
    """A value without the part of its end (%) or start (#) that fits a pattern.

    >>> trimmed("a100.sh", "%", ".*"), trimmed("/x/y", "##", "*/")
    ('a100', 'y')
    """
    places = range(len(text) + 1)
    if sign.startswith("%"):
        order = places if sign == "%%" else reversed(places)
        cut = next((place for place in order if fnmatchcase(text[place:], pattern)), len(text))
        return text[:cut]
    order = reversed(places) if sign == "##" else places
    cut = next((place for place in order if fnmatchcase(text[:place], pattern)), 0)
    return text[cut:]
