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
from functools import cached_property
from itertools import pairwise
from typing import Any

from optimizer.base.errors import InputError
from optimizer.frameworks.bash.arithmetic import whole_number
from optimizer.frameworks.bash.flags import Flag, flags_of, flat
from optimizer.frameworks.bash.pieces import Piece, Word, known_text, text_of, unknown_in
from optimizer.frameworks.bash.words import Words

MOST_JOINED = 1000  # operators of one command: the parser takes time and memory by their square
MOST_OPENED = 2000  # arrays and here-documents of a script, for the same reason
SEVERED = re.compile(r"--[A-Za-z]")
PRINTING = ("echo", "printf")  # commands of which nothing is learned
MOST_STEPS = 200_000  # statements read before a script counts as endless
DEEPEST = 40
MOST_ROUNDS = 200  # of a loop over the arguments
GETOPTS, OPTION_GIVEN = re.compile(r"\W*getopts "), re.compile(r"\b(\w+)=[\"']?\$\{?OPTARG\b")
UNSET = ("", "0")  # what an option's variable is before, where it must be given
SOURCES = ("source", ".")
OUTPUT = ("$(", "`")
Find = Callable[[str], bytes | None]  # the content of a file that a script sources, by the path that it writes
JOINED = re.compile(rb"[|<>(&]\s*|\n")
# <what people are to fill in>, which bash would take for two redirections, the second to what is on the next line.
PLACEHOLDER = re.compile(rb"(?<=[=\s])<[A-Za-z](?:[^<>\n\"'$`|&;]*[^<>\n\"'$`|&;\s])?>")
ENDLESS = re.compile(rb"\\\s*\Z")  # a line that goes on and is the last
STARTING, SCRIPT = ("bash", "sh"), (".sh", ".slurm", ".sbatch")
STEPS = ("srun", "sbatch", "mpirun")  # what starts a script on other nodes
ARGUMENTS = ("@", "*", "#")
SHELLS = ("bash", "sh", "eval", "ssh", "/bin/bash", "/bin/sh")
RUNNER, EXPERIMENT = re.compile(r"(?:.*/)?run_\w*pretrain(?:_cli)?\.sh$"), "EXP"  # of Primus, and what names its config
# What a test hangs on that is not in the script: files, and the output of commands.
ELSEWHERE = re.compile(r"(?<!\S)-[b-hkprstuwxGLNOS]\s|\$\(|`")
BODIES = ("program", "subshell", "compound_statement", "pipeline", "do_group", "negated_command")


@dataclass(frozen=True)
class Command:
    """One command that the script would run, its words in order; environment: variables set before it alone; starter:
    the words that started the script in which it stands.
    """

    words: tuple[Word, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    starter: tuple[str, ...] = ()

    @cached_property
    def flat(self) -> list[Word]:
        """Its words as they reach the program."""
        return flat(self.words)

    @cached_property
    def texts(self) -> list[str]:
        """What they say."""
        return list(map(text_of, self.flat))

    @cached_property
    def flags(self) -> list[Flag]:
        """Its flags."""
        return flags_of(self.flat)

    def unplaced(self) -> Command:
        """The same with no places: what was read stands otherwise in the file."""
        return replace(self, words=tuple(tuple(replace(piece, sites=()) for piece in word) for word in self.words))


@dataclass(frozen=True)
class Document:
    """Text that the script writes to a file, or hands to a program: a here-document."""

    target: str
    word: Word

    @property
    def text(self) -> str:
        """All of it."""
        return text_of(self.word)


@dataclass
class ScriptRun:
    """What was seen: commands and documents in order, variables, what had to be guessed.

    `sourced` are files that were read where the script reads them, `missing` those that nobody had; `started` are
    scripts that it starts, read where there are; `severed` are flags that stand where a command starts;
    `undecided` are variables that only a run would set, with the values that are guessed.
    """

    commands: list[Command] = field(default_factory=list)
    documents: list[Document] = field(default_factory=list)
    variables: dict[str, list[Word]] = field(default_factory=dict)
    guesses: list[str] = field(default_factory=list)
    sourced: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    severed: list[str] = field(default_factory=list)
    undecided: dict[str, Word] = field(default_factory=dict)
    broken: int = 0


def read_bash(data: bytes, given: Mapping[str, Word], find: Find = lambda path: None) -> ScriptRun:
    """Read a script; `given` are variables that the cluster would set, such as SLURM_NNODES; `find` has its sources.

    `broken` is the line of the first place that is no bash, 0 for none.
    """
    root = _parsed(data)
    walker = _Walker(data, find, given)
    if arguments := [given[str(place)] for place in range(1, len(given) + 1) if str(place) in given]:
        walker.seen.variables |= _placed(arguments)
    try:
        walker.run(root)
    except RecursionError:
        raise InputError("a script nests tests or ${...} in each other deeper than any that trains") from None
    walker.seen.broken = _first_error(root)
    walker.seen.guesses += walker.hanging()
    return walker.seen


def script_in(words: Sequence[Word]) -> int | None:
    """Which word of a command is a script that it starts: `bash -x train.sh 8 4`, `./train.sh 8 4`, `srun -l train.sh`.

    >>> lines = ("bash -x a.sh 8", "./a.sh 8", "bash -c a.sh", "srun -N 4 bash a.sh", "sbatch -oa.sh --nodes=4 a.slurm")
    >>> [script_in([(Piece(word),) for word in line.split()]) for line in lines]
    [2, 0, None, 4, 3]
    """
    texts = [text_of(word) for word in words]
    if texts[0].endswith(SCRIPT):
        return 0
    first = next((place for place, text in enumerate(texts) if text.rpartition("/")[2] in STARTING), None)
    if "-c" in texts or (first != 0 and texts[0] not in STEPS):
        return None
    if first is None:
        return next((place for place, text in enumerate(texts) if text.endswith(SCRIPT) and text[0] != "-"), None)
    rest = [place for place, text in enumerate(texts) if place > first and not text.startswith("-")]
    return rest[0] if rest and texts[rest[0]].endswith(SCRIPT) else None


def _placed(arguments: Sequence[Word]) -> dict[str, list[Word]]:
    """Arguments as the shell knows them: $1, $2, ..., all of them, and how many."""
    places = {str(place): [word] for place, word in enumerate(arguments, 1)}
    return {**places, "@": list(arguments), "*": list(arguments), "#": [(Piece(str(len(arguments))),)]}


def _parsed(data: bytes) -> Any:
    """The root of the syntax tree. Raises InputError for what is no script that anybody wrote."""
    joined = most = 0
    for match in JOINED.finditer(data):
        joined = 0 if match[0] == b"\n" else joined + 1
        most = max(most, joined)
    if most > MOST_JOINED or data.count(b"=(") > MOST_OPENED or data.count(b"<<") > MOST_OPENED:
        raise InputError(
            f"a script may have {MOST_JOINED:,} operators such as | in one command, {MOST_OPENED:,} arrays and as many "
            f"here-documents, but this one has more"
        )
    import tree_sitter
    import tree_sitter_bash

    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
    # The places of everything stay as they are: what a placeholder says is read from the script itself.
    data = ENDLESS.sub(lambda match: b"\n" * len(match[0]), data)
    return parser.parse(PLACEHOLDER.sub(lambda match: b"_" * len(match[0]), data)).root_node


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


class _Walker(Words):
    """Statements one after the other, with the variables as they stand."""

    def __init__(self, data: bytes, find: Find, given: Mapping[str, Word]) -> None:
        self.find, self.given = find, {name: [word] for name, word in given.items()}
        self.seen = ScriptRun(variables=dict(self.given))
        super().__init__(data, self.seen.variables)
        self.functions: dict[str, tuple[bytes, Any]] = {}
        self.steps = self.depth = 0
        self.away = False  # in a file that is sourced
        self.open: dict[str, list[str]] = {}  # variables that are set as a condition says that hangs on a command

    def run(self, node: Any) -> None:
        """Read one statement, unless it lies too deep in others or too many come before it."""
        self.steps += 1
        if self.depth <= DEEPEST and self.steps <= MOST_STEPS:
            self.depth += 1
            self.statement(node)
            self.depth -= 1

    def statement(self, node: Any) -> None:
        """Read one statement by its kind."""
        kind = node.type
        if kind in BODIES or kind == "ERROR":
            for child in node.named_children:
                if kind == "program" and child.type == "command" and self.text(child).split()[0] == "exit":
                    return
                self.run(child)
        elif kind == "list":
            self.joined(node)
        elif kind == "variable_assignment":
            self.assign(node)
        elif kind in ("declaration_command", "variable_assignments"):
            for child in node.named_children:
                if child.type == "variable_assignment":
                    self.assign(child)
        elif kind == "command":
            self.command(node)
        elif kind == "unset_command":
            names = [self.text(child) for child in node.named_children]
            for name in names:
                (self.functions if "-f" in names else self.seen.variables).pop(name, None)
        elif kind == "redirected_statement":
            self.redirected(node)
        elif kind == "if_statement":
            self.branch(node)
        elif kind == "case_statement":
            self.case(node)
        elif kind == "for_statement":
            self.loop(node)
        elif kind == "while_statement":
            self.while_loop(node)
        elif kind == "function_definition":
            name = node.child_by_field_name("name")
            self.functions[self.text(name)] = (self.data, node.child_by_field_name("body"))

    def joined(self, node: Any) -> bool | None:
        """Run what && or || joins, the right side unless a test says otherwise; what became of it, None: not known."""
        if node.type != "list":
            self.run(node)
            text = self.text(node)
            tests = node.type in ("test_command", "negated_command") or text.startswith("((")
            return self.holds(node) if tests and not ELSEWHERE.search(text) else None
        left = self.joined(node.named_children[0])
        if left is not None and left != any(child.type == "&&" for child in node.children):
            return left
        right = self.joined(node.named_children[-1])
        return True if left is not None and right is None else right

    def assign(self, node: Any) -> None:
        name = node.child_by_field_name("name")
        if name is None or name.type != "variable_name":
            return
        value, key = node.child_by_field_name("value"), self.text(name)
        adds = any(child.type == "+=" for child in node.children)
        if value is not None and value.type == "array":
            words = [word for child in value.named_children if child.type != "comment" for word in self.words(child)]
            self.seen.variables[key] = [*(self.seen.variables.get(key, []) if adds else []), *words]
            return
        word = self.scalar(value) if value is not None else ()
        before = self.seen.variables.get(key) or [()]
        self.seen.variables[key] = [(*before[0], *word), *before[1:]] if adds else [word]

    def command(self, node: Any) -> None:
        name = node.child_by_field_name("name")
        if name is None or self.text(name) in PRINTING:
            return
        parts = [child for child in node.named_children if not child.type.endswith("redirect")]
        parts = [child for child in parts if child.type not in ("variable_assignment", "comment")]
        inner = name.named_children[0] if name.named_children else name
        words = [word for child in parts for word in self.words(inner if child.type == "command_name" else child)]
        if not words:
            return
        called = text_of(words[0])
        before = [child for child in node.named_children if child.type == "variable_assignment"]
        pairs = ((child.child_by_field_name("name"), child.child_by_field_name("value")) for child in before)
        environment = {self.text(key): text_of(self.scalar(value)) for key, value in pairs if key and value}
        named = {EXPERIMENT} & {*environment, *self.seen.variables}
        primus = bool(named) and any(RUNNER.match(text_of(word)) for word in words[:2])
        if called in self.functions:
            self.call(*self.functions[called], words[1:])
        elif called in SOURCES and len(words) > 1:
            self.source(known_text(words[1]))
        elif (at := script_in(words)) is not None and not primus and self.started(words, at):
            return
        elif inner := self.function_in(words):
            self.by(words, *self.functions[inner[0]], [(Piece(argument),) for argument in inner[1:]])
        elif called == "shift":
            self.shift(whole_number(text_of(words[1]), self.plain) if len(words) > 1 else 1)
        elif called == "read":
            for word in words[1:]:
                self.seen.variables.pop(text_of(word), None)
            text = next((child for child in node.named_children if child.type == "herestring_redirect"), None)
            if text is not None and text.named_children:
                self.seen.variables |= _parted(words, self.scalar(text.named_children[0]), environment.get("IFS", " "))
        elif self.seen.commands and SEVERED.match(called):
            self.seen.severed.append(called)
        else:
            inner_script = called in SHELLS or any(text_of(word) in SHELLS for word in words[:-1])
            words = [self.expanded(word) if inner_script else word for word in words]
            for option, text in pairwise(words):
                if text_of(option) == "-c" and (whole := self.written(text)) and "<<" in whole.text:
                    self.seen.documents.append(Document("", (whole,)))
            self.seen.commands.append(Command(tuple(words), environment))

    def written(self, word: Word) -> Piece | None:
        """A word as one piece, its lines as they are; None where not all of it stands in one place."""
        sites = [piece.sites[0] if piece.sites else (-1, -1) for piece in word]
        if not sites or any(
            start < 0 or end != after for (start, end), (after, _) in pairwise([*sites, sites[-1][::-1]])
        ):
            return None
        site = sites[0][0], sites[-1][1]
        return Piece(self.data[slice(*site)].decode("utf-8", "replace"), (site,))

    def expanded(self, word: Word) -> Word:
        """A word that another shell reads: variables that quotes kept from this one are filled in."""
        return tuple(part for piece in word for part in self._expanded(piece))

    def _expanded(self, piece: Piece) -> Iterator[Piece]:
        at = 0
        for match in re.finditer(r"\$\{?(\w+)\}?", piece.text if not piece.unknown else ""):
            if words := self.seen.variables.get(match[1]):
                yield replace(piece, text=piece.text[at : match.start()], sites=())
                yield from words[0]
                at = match.end()
        yield piece if at == 0 else replace(piece, text=piece.text[at:], sites=())

    def source(self, path: str) -> None:
        """Read another file in place, as the shell would run it."""
        data = self.find(path) if len(self.seen.sourced) < DEEPEST else None
        if data is None:
            self.seen.missing.append(path)
            return
        self.seen.sourced.append(path)
        with self.within(data):
            self.run(_parsed(data))

    def started(self, words: Sequence[Word], at: int) -> bool:
        """Read another script, one word of a command, as that starts it; False where nobody has it."""
        path = known_text(words[at])
        self.seen.started.append(path)
        data = self.find(path) if len(self.seen.started) < DEEPEST else None
        if data is None:
            return False
        self.by(words[:at], data, _parsed(data), words[at + 1 :])
        return True

    def by(self, starter: Sequence[Word], data: bytes, body: Any, arguments: Sequence[Word]) -> None:
        """Run a script or a function whose commands those words start."""
        commands = self.seen.commands
        before = len(commands)
        self.call(data, body, arguments)
        texts = tuple(map(text_of, starter))
        commands[before:] = [replace(each, starter=texts + each.starter) for each in commands[before:]]

    def function_in(self, words: Sequence[Word]) -> list[str]:
        """A function that another shell runs, as in `srun bash -c "train 8"`, and its arguments; [] for none."""
        texts = list(map(text_of, words))
        text = texts[texts.index("-c") + 1 :][:1] if "-c" in texts and {*texts} & {*SHELLS} else []
        inner = text[0].split() if text else []
        return inner if inner and inner[0] in self.functions else []

    @contextmanager
    def within(self, data: bytes) -> Iterator[None]:
        """Read other text; what is written there has no place in ours. Our own places are kept aside meanwhile."""
        ours, count = self.data, len(self.seen.commands)
        outer, self.away = self.away, True
        self._mark(ours_alone if outer else aside, count)
        self.data = data
        yield
        self.data, self.away = ours, outer
        self._mark(ours_alone if outer else back, count)

    def _mark(self, mark: Callable[[Piece], Piece], count: int) -> None:
        """Change the places of every piece held, and of the commands from a number on."""
        variables, commands = self.seen.variables, self.seen.commands
        for name, words in variables.items():
            variables[name] = [tuple(map(mark, word)) for word in words]
        commands[count:] = [replace(c, words=tuple(tuple(map(mark, w)) for w in c.words)) for c in commands[count:]]

    def call(self, data: bytes, body: Any, arguments: Sequence[Word]) -> None:
        """Run a function; one of another file is read there."""
        if body is not None and data is not self.data:
            arguments = [tuple(map(aside, word)) for word in arguments]
            with self.within(data):
                self.call(data, body, arguments)
            return
        if body is None:
            return
        variables = self.seen.variables
        outer_arguments = {name: variables.pop(name) for name in list(variables) if name.isdigit() or name in ARGUMENTS}
        variables |= _placed(arguments)
        self.run(body)
        for name in [name for name in variables if name.isdigit() or name in ARGUMENTS]:
            del variables[name]
        variables |= outer_arguments

    def redirected(self, node: Any) -> None:
        here, word = self.heredoc(node)
        if word is not None:
            first = node.named_children[0]
            if first.type == "command" and self.text(first.named_children[0]) == "read":
                self.seen.variables[self.text(first.named_children[-1])] = [word]
                return
            files = [c for c in (*node.named_children, *here.named_children) if c.type == "file_redirect"]
            named = files[0].named_children[-1] if files and files[0].named_children else None
            self.seen.documents.append(Document(text_of(self.scalar(named)) if named is not None else "", word))
        for child in node.named_children:
            if not child.type.endswith("redirect"):
                self.run(child)

    def branch(self, node: Any) -> bool:
        """Run the arm whose condition holds first, else the last one without any; whether one was run."""
        taken = False
        for child, is_condition in _parts(node):
            if is_condition:
                taken = self.holds(child)
                if not self.away and self.hangs(child):
                    self.open[self.text(child).strip()] = _assigned(node)
            elif child.type in ("elif_clause", "else_clause"):
                if taken:
                    return True
                if child.type == "elif_clause":
                    taken = self.branch(child)
                else:
                    for inner in child.named_children:
                        self.run(inner)
            elif taken:
                self.run(child)
        return taken

    def hangs(self, node: Any) -> bool:
        """Whether only a run would tell if a condition holds, as a command does or prints something."""
        if node.type in ("command_substitution", "pipeline") or (node.type == "command" and self.text(node) != "true"):
            return True
        if node.type == "variable_name":
            pieces = [piece for word in self.seen.variables.get(self.text(node), []) for piece in word]
            return any(piece.unknown.startswith(OUTPUT) for piece in pieces)
        return any(map(self.hangs, node.named_children))

    def hanging(self) -> Iterator[str]:
        """What is guessed of variables that such conditions set and that a command has."""
        commands = [each for each in self.seen.commands if not set(each.texts[:1]) & {*PRINTING}]
        used = {site for each in commands for word in each.flat for piece in word for site in piece.sites[:1]}
        for condition, names in self.open.items():
            for name in names:
                value = [piece for word in self.seen.variables.get(name, []) for piece in word]
                if used.intersection(site for piece in value for site in piece.sites[:1]):
                    self.seen.undecided[name] = tuple(value)
                    yield f"{name} = {text_of(value)}: only a run would tell whether {condition} holds"

    def case(self, node: Any) -> None:
        value = node.child_by_field_name("value")
        subject = known_text(self.scalar(value)) if value is not None else ""
        for item in (child for child in node.named_children if child.type == "case_item"):
            patterns = item.children_by_field_name("value")
            if any(fnmatchcase(subject, known_text(self.scalar(pattern))) for pattern in patterns):
                for child in item.named_children:
                    if child not in patterns:
                        self.run(child)
                return

    def loop(self, node: Any) -> None:
        name, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        words = [word for value in node.children_by_field_name("value") for word in self.words(value)]
        if name is None or body is None or not words:
            return
        if len(words) > 1:
            self.seen.guesses.append(f"{self.text(name)} = {text_of(words[0])}, the first turn of its loop")
            self.seen.undecided[self.text(name)] = words[0]
        self.seen.variables[self.text(name)] = [words[0]]
        self.run(body)

    def while_loop(self, node: Any) -> None:
        """A loop over the arguments, `while [ $# -gt 0 ]`; others would wait for something, and are left out.

        What nothing but options set, in `while getopts`, is as it was given.
        """
        condition, body = node.child_by_field_name("condition"), node.child_by_field_name("body")
        if condition is not None and body is not None and GETOPTS.match(self.text(condition)):
            for name in OPTION_GIVEN.findall(self.text(body)):
                if text_of([piece for word in self.seen.variables.get(name, []) for piece in word]) in UNSET:
                    self.seen.variables.pop(name, None)
                    self.seen.variables |= {name: self.given[name]} if name in self.given else {}
            self.options(self.text(condition), body)
            return
        for _ in range(MOST_ROUNDS):
            before = self.seen.variables.get("@")
            if condition is None or body is None or not before or not self.holds(condition):
                return
            self.run(body)
            if self.seen.variables.get("@") == before:
                return

    def options(self, condition: str, body: Any) -> None:
        """Run the body of a loop over getopts for each option that is given."""
        parts, arguments, place = condition.split(), self.seen.variables.get("@", []), 0
        if len(parts) < 3:
            return
        takes, name = parts[1].strip("\"'"), parts[2].strip(";\"'")
        while place < len(arguments) and (text := known_text(arguments[place])).startswith("-") and len(text) > 1:
            place += 1
            if text == "--":
                break
            for at, letter in enumerate(text[1:], 2):
                valued = f"{letter}:" in takes
                value: Word = (Piece(text[at:]),) if valued and text[at:] else ()
                if valued and not value and place < len(arguments):
                    value, place = arguments[place], place + 1
                if letter not in takes:
                    letter, value = "?", (Piece(letter),) if takes.startswith(":") else ()
                self.seen.variables |= {name: [(Piece(letter),)], "OPTARG": [value]}
                self.run(body)
                if valued:
                    break
        self.seen.variables["OPTIND"] = [(Piece(str(place + 1)),)]

    def shift(self, count: int | None) -> None:
        """Drop the first arguments; none where there are not so many."""
        variables = self.seen.variables
        left = variables.get("@", [])
        left = left[count:] if count in range(len(left) + 1) else left
        for name in [name for name in variables if name.isdigit() or name in ARGUMENTS]:
            del variables[name]
        variables |= _placed(left)


def aside(piece: Piece) -> Piece:
    """A piece of our text while another file is read: its places are negative there, and those of the other gone.

    >>> aside(Piece("8", ((3, 4),))).sites, back(aside(Piece("8", ((3, 4),)))).sites
    (((-4, -5),), ((3, 4),))
    """
    return replace(piece, sites=tuple((-start - 1, -end - 1) for start, end in piece.sites if start >= 0))


def ours_alone(piece: Piece) -> Piece:
    """A piece on the way between two other files: with our own places alone."""
    return replace(piece, sites=tuple(site for site in piece.sites if site[0] < 0))


def back(piece: Piece) -> Piece:
    """A piece when our own text is read again: without places in the other file."""
    return replace(piece, sites=tuple((-start - 1, -end - 1) for start, end in piece.sites if start < 0))


def _parted(words: Sequence[Word], text: Word, sign: str) -> dict[str, list[Word]]:
    """What `read -r` of names makes of a text, cut at a sign; nothing where it says more, or the text is open.

    >>> _parted([(Piece(word),) for word in "read -r TP PP".split()], (Piece("2,4"),), ",")
    {'TP': [(Piece(text='2', sites=(), unknown=''),)], 'PP': [(Piece(text='4', sites=(), unknown=''),)]}
    """
    names = [text_of(word) for word in words[1:] if text_of(word) != "-r"]
    if unknown_in(text) or not names or any(name.startswith("-") for name in names):
        return {}
    values = text_of(text).split(sign.strip() or None, len(names) - 1)
    return {name: [(Piece(value.strip()),)] for name, value in zip(names, values, strict=False)}


def _assigned(node: Any) -> list[str]:
    """Variables that are set somewhere below a node, however deep."""
    names: dict[str, None] = {}
    left = [node]
    while left:
        one = left.pop()
        name = one.child_by_field_name("name") if one.type == "variable_assignment" else None
        names |= {name.text.decode(): None} if name is not None else {}
        left += reversed(one.named_children)
    return [*names]


def _parts(node: Any) -> Iterator[tuple[Any, bool]]:
    """The named children of an if or elif, and whether each is the condition: what stands before `then`."""
    before = True
    for child in node.children:
        if child.type == "then":
            before = False
        elif child.is_named and child.type != "comment":
            yield child, before
