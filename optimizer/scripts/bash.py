"""What a bash script would run, read from its syntax tree: variables, arrays, conditions, functions; nothing is run.

Variables that the script does not set are open unless it names a default; a condition that hangs on one counts as the
shell would count an unset variable, and one on files or commands as false.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from optimizer.errors import InputError
from optimizer.scripts.arithmetic import whole_number
from optimizer.scripts.pieces import Piece, Site, Word, known_text, split_words, text_of, unknown_in

MOST_STEPS = 200_000  # statements read before a script counts as endless
MOST_HELD, PIECE = (
    20_000_000,
    100,
)  # characters that variables carry in all, and what a piece of text counts beside its own
DEEPEST = 40
SOURCES = ("source", ".")
Find = Callable[[str], bytes | None]  # the content of a file that a script sources, by the path that it writes
SHELLS = ("bash", "sh", "eval", "ssh", "/bin/bash", "/bin/sh")
QUOTED = ("string", "raw_string", "ansi_c_string", "translated_string")
BODIES = ("program", "list", "subshell", "compound_statement", "pipeline", "do_group", "negated_command")
BLANKS = re.compile(rb"(?:\\\n|\s)+")
TRIM = re.compile(r"(%%?|##?)(.*)", re.DOTALL)


@dataclass(frozen=True)
class Command:
    """One command that the script would run, its words in order."""

    words: tuple[Word, ...]


@dataclass(frozen=True)
class Document:
    """Text that the script writes to a file: a here-document."""

    target: str
    text: str


@dataclass
class Reading:
    """What was seen: commands and documents in order, variables, what had to be guessed.

    `sourced` are files that were read where the script reads them, `missing` those that nobody had.
    """

    commands: list[Command] = field(default_factory=list)
    documents: list[Document] = field(default_factory=list)
    variables: dict[str, list[Word]] = field(default_factory=dict)
    guesses: list[str] = field(default_factory=list)
    sourced: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    broken: int = 0


def read_bash(data: bytes, given: Mapping[str, Word], find: Find = lambda path: None) -> Reading:
    """Read a script; `given` are variables that the cluster would set, such as SLURM_NNODES; `find` has its sources.

    `broken` is the line of the first place that is no bash, 0 for none.
    """
    root = _parsed(data)
    walker = _Walker(data, find)
    walker.seen.variables |= {name: [word] for name, word in given.items()}
    walker.run(root, 0)
    walker.seen.broken = _first_error(root)
    return walker.seen


def _parsed(data: bytes) -> Any:
    import tree_sitter
    import tree_sitter_bash

    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
    return parser.parse(data).root_node


def _first_error(root: Any) -> int:
    if not root.has_error:
        return 0
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.type == "ERROR" or node.is_missing:
            return int(node.start_point[0]) + 1
        waiting += [child for child in reversed(node.children) if child.has_error or child.type == "ERROR"]
    return 1


class _Walker:
    """Statements one after the other, with the variables as they stand."""

    def __init__(self, data: bytes, find: Find) -> None:
        self.data, self.find, self.seen = data, find, Reading()
        self.functions: dict[str, tuple[bytes, Any]] = {}
        self.steps = 0
        self.held = 0
        self.away = False  # in a file that is sourced

    def start(self, node: Any) -> int:
        """First byte of a node, without the blanks that the parser counts to some of those in strings."""
        blank = BLANKS.match(self.data, node.start_byte, node.end_byte)
        return blank.end() if blank else int(node.start_byte)

    def text(self, node: Any) -> str:
        return self.data[self.start(node) : node.end_byte].decode("utf-8", "replace")

    def run(self, node: Any, depth: int) -> None:
        """Read one statement."""
        self.steps += 1
        if depth > DEEPEST or self.steps > MOST_STEPS:
            return
        kind = node.type
        if kind in BODIES or kind == "ERROR":
            for child in node.named_children:
                self.run(child, depth + 1)
        elif kind == "variable_assignment":
            self.assign(node)
        elif kind in ("declaration_command", "variable_assignments"):
            for child in node.named_children:
                if child.type == "variable_assignment":
                    self.assign(child)
        elif kind == "command":
            self.command(node, depth)
        elif kind == "redirected_statement":
            self.redirected(node, depth)
        elif kind == "if_statement":
            self.branch(node, depth)
        elif kind == "case_statement":
            self.case(node, depth)
        elif kind == "for_statement":
            self.loop(node, depth)
        elif kind == "function_definition":
            name = node.child_by_field_name("name")
            self.functions[self.text(name)] = (self.data, node.child_by_field_name("body"))

    def assign(self, node: Any) -> None:
        name = node.child_by_field_name("name")
        if name is None or name.type != "variable_name":
            return
        value, key = node.child_by_field_name("value"), self.text(name)
        adds = any(self.text(child) == "+=" for child in node.children)
        if value is not None and value.type == "array":
            words = [word for child in value.named_children if child.type != "comment" for word in self.words(child)]
            self.seen.variables[key] = [*(self.seen.variables.get(key, []) if adds else []), *words]
            return
        word = self.scalar(value) if value is not None else ()
        before = self.seen.variables.get(key) or [()]
        self.seen.variables[key] = [(*before[0], *word), *before[1:]] if adds else [word]

    def command(self, node: Any, depth: int) -> None:
        name = node.child_by_field_name("name")
        if name is None:
            return
        parts = [child for child in node.named_children if not child.type.endswith("redirect")]
        parts = [child for child in parts if child.type not in ("variable_assignment", "comment")]
        inner = name.named_children[0] if name.named_children else name
        words = [word for child in parts for word in self.words(inner if child.type == "command_name" else child)]
        if not words:
            return
        called = text_of(words[0])
        if called in self.functions:
            self.call(*self.functions[called], words[1:], depth)
        elif called in SOURCES and len(words) > 1:
            self.source(known_text(words[1]), depth)
        elif called == "read" or called == "unset":
            for word in words[1:]:
                self.seen.variables.pop(text_of(word), None)
        else:
            inner_script = called in SHELLS or any(text_of(word) in SHELLS for word in words[:-1])
            self.seen.commands.append(Command(tuple(self.again(word) if inner_script else word for word in words)))

    def again(self, word: Word) -> Word:
        """A word that another shell reads: variables that quotes kept from this one are filled in."""
        return tuple(part for piece in word for part in self._again(piece))

    def _again(self, piece: Piece) -> Iterator[Piece]:
        at = 0
        for match in re.finditer(r"\$\{?(\w+)\}?", piece.text if not piece.unknown else ""):
            if words := self.seen.variables.get(match[1]):
                yield replace(piece, text=piece.text[at : match.start()], sites=())
                yield from words[0]
                at = match.end()
        yield piece if at == 0 else replace(piece, text=piece.text[at:], sites=())

    def source(self, path: str, depth: int) -> None:
        """Read another file in place, as the shell would run it."""
        data = self.find(path) if len(self.seen.sourced) < DEEPEST else None
        if data is None:
            self.seen.missing.append(path)
            return
        self.seen.sourced.append(path)
        with self.within(data):
            self.run(_parsed(data), depth + 1)

    @contextmanager
    def within(self, data: bytes) -> Iterator[None]:
        """Read other text; what is written there has no place in ours. Our own places are kept aside meanwhile."""
        ours, count = self.data, len(self.seen.commands)
        outer, self.away = self.away, True
        self._mark(kept_aside if outer else aside, count)
        self.data = data
        yield
        self.data, self.away = ours, outer
        self._mark(kept_aside if outer else back, count)

    def _mark(self, mark: Callable[[Piece], Piece], count: int) -> None:
        """Change the places of every piece held, and of the commands from a number on."""
        held, commands = self.seen.variables, self.seen.commands
        for name, words in held.items():
            held[name] = [tuple(map(mark, word)) for word in words]
        commands[count:] = [Command(tuple(tuple(map(mark, w)) for w in c.words)) for c in commands[count:]]

    def call(self, data: bytes, body: Any, arguments: Sequence[Word], depth: int) -> None:
        """Run a function; one of another file is read there."""
        if body is not None and data is not self.data:
            arguments = [tuple(map(aside, word)) for word in arguments]
            with self.within(data):
                self.call(data, body, arguments, depth)
            return
        if body is None:
            return
        kept = {name: value for name, value in self.seen.variables.items() if name.isdigit()}
        self.seen.variables |= {str(place): [word] for place, word in enumerate(arguments, 1)}
        self.run(body, depth + 1)
        for place in range(1, len(arguments) + 1):
            self.seen.variables.pop(str(place), None)
        self.seen.variables |= kept

    def redirected(self, node: Any, depth: int) -> None:
        here = next((child for child in node.named_children if child.type == "heredoc_redirect"), None)
        if here is not None:
            body = next((child for child in here.named_children if child.type == "heredoc_body"), None)
            files = [c for c in (*node.named_children, *here.named_children) if c.type == "file_redirect"]
            named = files[0].named_children[-1] if files and files[0].named_children else None
            target = text_of(self.scalar(named)) if named is not None else ""
            start = next((c for c in here.named_children if c.type == "heredoc_start"), None)
            quoted = start is not None and self.text(start)[:1] in "'\"\\"
            if body is not None:
                text = self.text(body) if quoted else text_of(self.inside(body, body.start_byte, body.end_byte))
                self.seen.documents.append(Document(target, text))
        for child in node.named_children:
            if not child.type.endswith("redirect"):
                self.run(child, depth + 1)

    def branch(self, node: Any, depth: int) -> None:
        taken: bool | None = None
        for child, is_condition in _parts(node):
            if is_condition:
                taken = self.holds(child)
            elif child.type in ("elif_clause", "else_clause"):
                if taken:
                    return
                if child.type == "elif_clause":
                    self.branch(child, depth + 1)
                    return
                for inner in child.named_children:
                    self.run(inner, depth + 1)
                return
            elif taken:
                self.run(child, depth + 1)

    def case(self, node: Any, depth: int) -> None:
        value = node.child_by_field_name("value")
        subject = known_text(self.scalar(value)) if value is not None else ""
        for item in (child for child in node.named_children if child.type == "case_item"):
            patterns = item.children_by_field_name("value")
            if any(fnmatchcase(subject, known_text(self.scalar(pattern))) for pattern in patterns):
                for child in item.named_children:
                    if child not in patterns:
                        self.run(child, depth + 1)
                return

    def loop(self, node: Any, depth: int) -> None:
        name, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        words = [word for value in node.children_by_field_name("value") for word in self.words(value)]
        if name is None or body is None or not words:
            return
        if len(words) > 1:
            self.seen.guesses.append(f"{self.text(name)} = {text_of(words[0])}, the first turn of its loop")
        self.seen.variables[self.text(name)] = [words[0]]
        self.run(body, depth + 1)

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
        sign = self.text(node.children[0])
        operand = node.named_children[-1]
        if sign == "!":
            unknowable = self.text(operand).lstrip().startswith(("-f", "-d", "-e", "-s", "-x", "-r"))
            return not unknowable and not self.holds(operand)
        value = known_text(self.scalar(operand))
        return {"-z": not value, "-n": bool(value), "-v": bool(self.seen.variables.get(self.text(operand)))}.get(
            sign, False
        )

    def compared(self, node: Any) -> bool:
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

    def plain(self, name: str) -> str:
        """The text of a variable, "" where it is unset or open."""
        words = self.seen.variables.get(name)
        if not words or any(unknown_in(word) for word in words):
            return ""
        return text_of(words[0]).strip()

    def words(self, node: Any) -> list[Word]:
        """The words that one argument becomes: several where an unquoted variable holds blanks, or an array is used."""
        whole = self.whole_array(node)
        if whole is not None:
            return whole
        if node.type in QUOTED:
            return [self.scalar(node)]
        if node.type == "concatenation" and any(child.type in QUOTED for child in node.named_children):
            return [self.scalar(node)]
        return list(split_words(self.scalar(node)))

    def whole_array(self, node: Any) -> list[Word] | None:
        """The words of `${NAME[@]}` or `"${NAME[@]}"`, None for anything else."""
        match = re.fullmatch(r'"?\$\{(\w+)\[[@*]\]\}"?', self.text(node))
        if not match:
            return None
        site = (self.start(node), node.end_byte)
        found = [self.carried(word, site) for word in self.seen.variables.get(match[1], [])]
        return found if node.type in QUOTED else [part for word in found for part in split_words(word)]

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
        elif kind == "arithmetic_expansion":
            body = re.sub(r"^\$?(\(\(|\[)|(\)\)|\])$", "", self.text(node))
            value = whole_number(body, self.plain)
            if value is None:
                yield Piece("_".join(self.text(node).split()), (site,), " ".join(body.split()))
            else:
                yield Piece(str(value), (site,))
        elif kind == "command_substitution":
            yield from self.substituted(node, site)
        else:
            yield from (replace(piece, text=re.sub(r"\\(.)", r"\1", piece.text)) for piece in literal(self.data, *site))

    def inside(self, node: Any, start: int, end: int, quoted: bool = True) -> Iterator[Piece]:
        """Literal text between the variables of a string, and what the variables hold."""
        at = start
        for child in node.named_children:
            if child.type in ("string_content", "heredoc_content", "comment") or (quoted and child.type == "word"):
                continue
            yield from literal(self.data, at, self.start(child))
            yield from self._scalar(child)
            at = child.end_byte
        yield from literal(self.data, at, end)

    def variable(self, name: str, site: Site) -> Iterator[Piece]:
        if self.seen.variables.get(name):
            for place, word in enumerate(self.seen.variables[name]):
                if name in ("@", "*") and place:
                    yield Piece(" ")
                if place == 0 or name in ("@", "*"):
                    yield from self.carried(word, site)
        elif name not in ("@", "*"):
            yield Piece(f"${name}", (site,), name)

    def carried(self, word: Word, site: Site) -> Word:
        """What a variable holds, used in this place; raises InputError where variables keep doubling what they hold."""
        self.held += sum(len(piece.text) + PIECE for piece in word)
        if self.held > MOST_HELD:
            raise InputError("the variables of the script hold too much text: is one made of itself again and again?")
        return tuple(piece.used_at(site) for piece in word)

    def expansion(self, node: Any, site: Site) -> Iterator[Piece]:
        text = self.text(node)
        match = re.match(r"\$\{(!|#)?(\w+|[@*])(\[[^]]*\])?", text)
        if not match:
            yield Piece(text, (site,), text)
            return
        name, rest = match[2], text[match.end() : -1]
        if match[1]:
            words = self.seen.variables.get(name, [])
            if match[1] == "#" and words:
                yield Piece(str(len(words) if match[3] else len(text_of(words[0]))), (site,))
            elif match[1] == "!" and words:
                yield from self.variable(text_of(words[0]), site)
            else:
                yield Piece(text, (site,), name)
            return
        if match[3] and match[3] not in ("[@]", "[*]"):
            place = whole_number(match[3][1:-1], self.plain)
            words = self.seen.variables.get(name, [])
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
        words = self.seen.variables.get(name) or []
        there = bool(words) and (not sign.startswith(":") or bool(known_text(words[0])))
        if sign.endswith("?"):
            yield from self.variable(name, site)
        elif sign.endswith("+") == there:
            value = list(self.after(node, site[0] + offset))
            yield from value
            if sign.endswith("="):
                self.seen.variables[name] = [tuple(value)]
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

    def substituted(self, node: Any, site: Site) -> Iterator[Piece]:
        """What `$(...)` would print: known for echo and expr alone."""
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
        yield Piece(text.replace(" ", "_"), (site,), text)


def aside(piece: Piece) -> Piece:
    """A piece of our text while another file is read: its places are negative there, and those of the other gone.

    >>> aside(Piece("8", ((3, 4),))).sites, back(aside(Piece("8", ((3, 4),)))).sites
    (((-4, -5),), ((3, 4),))
    """
    return replace(piece, sites=tuple((-start - 1, -end - 1) for start, end in piece.sites if start >= 0))


def kept_aside(piece: Piece) -> Piece:
    """A piece on the way between two other files: with our own places alone."""
    return replace(piece, sites=tuple(site for site in piece.sites if site[0] < 0))


def back(piece: Piece) -> Piece:
    """A piece when our own text is read again: without places in the other file."""
    return replace(piece, sites=tuple((-start - 1, -end - 1) for start, end in piece.sites if start < 0))


def _parts(node: Any) -> Iterator[tuple[Any, bool]]:
    """The named children of an if or elif, and whether each is the condition: what stands before `then`."""
    before = True
    for child in node.children:
        if child.type == "then":
            before = False
        elif child.is_named and child.type != "comment":
            yield child, before


def literal(data: bytes, start: int, end: int, raw: bool = False) -> Iterator[Piece]:
    r"""Literal text as pieces, each blank or not, with its place; a backslash at the end of a line joins lines.

    >>> [piece.text for piece in literal(b"--tp 8 \\\n --bf16", 0, 16)]
    ['--tp', ' ', '8', ' ', '--bf16']
    """
    for match in re.finditer(rb"(?:\\\n|\s)+|(?:\\[^\n]|[^\s\\]|\\$)+", data[start:end]):
        site = (start + match.start(), start + match.end())
        text = match[0].decode("utf-8", "replace")
        if not text.replace("\\\n", "").strip():
            yield Piece(" ", (site,))
        else:
            yield Piece(text if raw else re.sub(r"\\([\"$`\\'])", r"\1", text), (site,))


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
