"""YAML 1.1, as training programs read it: nodes with their places, the values that they mean, values as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from optimizer.base.errors import InvalidFile
from optimizer.base.units import LARGEST
from optimizer.catalog.readers.text import DEEPEST

if TYPE_CHECKING:
    from ruamel.yaml import YAML
    from ruamel.yaml.nodes import Node

MOST = 100_000  # values of a document with every alias spelt out
MERGE = "tag:yaml.org,2002:merge"
PLAIN = ("tag:yaml.org,2002:null", "tag:yaml.org,2002:bool", "tag:yaml.org,2002:int")
FLOAT = "tag:yaml.org,2002:float"


def yaml_nodes(text: str, where: object) -> tuple[Node, ...]:
    """The root of every document in a text, with the places where its parts stand.

    Args:
        text: the text.
        where: what errors call it.

    Raises:
        InvalidFile: it is no YAML, is nested too deeply, or its aliases stand for more values than any config has.
    """
    try:
        roots, count = _composed(text)
    except RecursionError:
        raise InvalidFile(where, ["not YAML: nested too deeply"]) from None
    except Exception as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        reason = " ".join(str(getattr(error, "problem", None) or error).split())
        template = ", as templates are before they are filled in" * ("{{" in text)
        raise InvalidFile(where, [f"{place}not YAML{template}: {reason}"]) from None
    if count > MOST:
        raise InvalidFile(where, [f"not a config: it holds more than {MOST:,} values, every alias spelt out"])
    return roots


@lru_cache(maxsize=8)
def _composed(text: str) -> tuple[tuple[Node, ...], int]:
    """The roots, and how many values they hold: whoever reads a text may edit it next."""
    roots = tuple(root for root in _yaml().compose_all(text) if root is not None)
    sizes: dict[int, int] = {}
    return roots, sum(_size(root, sizes, 0) for root in roots)


def yaml_of(text: str, where: object) -> Any:
    r"""The value of a text's only document; the named values of several together, the last of a name.

    Unknown tags count for nothing, and a name is the text that the file has for it. Raises InvalidFile as yaml_nodes.

    >>> yaml_of("a: &size 8\nb: {on: *size, c: [1.5, x]}", "here")
    {'a': 8, 'b': {'on': 8, 'c': [1.5, 'x']}}
    """
    try:
        values = [value_of(root) for root in yaml_nodes(text, where)]
    except (ValueError, OverflowError, LookupError) as error:
        raise InvalidFile(where, [f"not YAML: {error}"]) from None
    if len(values) > 1 and all(isinstance(value, dict) for value in values):
        return {name: item for value in values for name, item in value.items()}
    return values[-1] if values else None


def value_of(node: Node) -> Any:
    """The value that a node means: of tables with merge keys also what those bring.

    Raises ValueError for a table whose names are no text.
    """
    from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

    if isinstance(node, SequenceNode):
        return [value_of(item) for item in node.value]
    if isinstance(node, MappingNode):
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, item in node.value:
            if not isinstance(key, ScalarNode):
                raise ValueError(f"line {key.start_mark.line + 1}: a name must be text")
            if str(key.tag) != MERGE:
                own[str(key.value)] = value_of(item)
                continue
            for other in item.value if isinstance(item, SequenceNode) else [item]:
                merged = {**(value_of(other) if isinstance(other, MappingNode) else {}), **merged}
        return {**merged, **own}
    tag = str(node.tag)
    if tag == FLOAT and ":" not in node.value:  # with 1e-5, whose missing dot YAML 1.1 minds
        return float(node.value.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
    constructor = _scalars()
    return constructor.yaml_constructors[tag](constructor, node) if tag in (*PLAIN, FLOAT) else node.value


def yaml_text(documents: Sequence[Any]) -> str:
    """Values as documents of YAML in blocks, nothing by reference, so that YAML 1.1 and 1.2 read them alike.

    >>> print(yaml_text([{"b": "on", "a": [1, None, 1e-5]}]), end="")
    b: 'on'
    a:
    - 1
    - null
    - 1.0e-05
    """
    from io import StringIO

    from ruamel.yaml.emitter import Emitter
    from ruamel.yaml.representer import SafeRepresenter

    class Representer(SafeRepresenter):
        def ignore_aliases(self, data: Any) -> bool:
            return True

        def represent_float(self, data: float) -> Any:
            """With a point, without which YAML 1.1 reads a text."""
            node = super().represent_float(data)
            node.value = node.value if "." in node.value else node.value.replace("e", ".0e", 1)
            return node

    Representer.add_representer(float, Representer.represent_float)

    class Folding(Emitter):
        def write_plain(self, text: Any, split: Any = True) -> None:
            """Break long text at blanks; ruamel leaves these at the ends of lines."""
            words = text.split(" ") if split and "  " not in text and "\n" not in text else [text]
            width, self.best_width = self.best_width, LARGEST
            for place, word in enumerate(words):
                if place and self.column > width:
                    self.write_indent()
                super().write_plain(word, split=False)
            self.best_width = width

    yaml, stream = _yaml(), StringIO()
    yaml.Representer, yaml.Emitter = Representer, Folding
    yaml.default_flow_style, yaml.sort_base_mapping_type_on_output = False, False  # type: ignore[assignment]
    yaml.dump_all(documents, stream)
    return stream.getvalue()


def yaml_file(head: Sequence[str], values: Mapping[str, object]) -> str:
    r"""Comments, and values as YAML.

    >>> yaml_file(["mine"], {"a": 1})
    '# mine\na: 1\n'
    """
    return "".join(f"# {line}\n" for line in head) + yaml_text([dict(values)])


def _yaml() -> YAML:
    """A reader and writer of YAML 1.1, which training programs read by PyYAML, without a line that says so."""
    from ruamel.yaml import YAML
    from ruamel.yaml.resolver import VersionedResolver

    class Resolver(VersionedResolver):
        @property
        def processing_version(self) -> tuple[int, int]:
            return 1, 1

    yaml = YAML(typ="safe", pure=True)
    yaml.Resolver = Resolver
    return yaml


@cache
def _scalars() -> Any:
    """The constructor of scalars, which has no state."""
    return _yaml().constructor


def _size(node: Node, sizes: dict[int, int], depth: int) -> int:
    """The nodes below a node and itself, those of an alias every time; raises ValueError where one holds itself."""
    if depth > DEEPEST:
        raise ValueError(f"nested more than {DEEPEST} deep")
    if id(node) not in sizes:
        parts = node.value if isinstance(node.value, list) else []
        sizes[id(node)] = 1 + sum(
            _size(part, sizes, depth + 1) for item in parts for part in (item if isinstance(item, tuple) else (item,))
        )
    return sizes[id(node)]
