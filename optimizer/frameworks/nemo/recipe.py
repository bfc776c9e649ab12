"""A program that runs a recipe of NeMo 2, as the recipe's values by path, from its syntax tree; nothing is run.

Followed are the recipe that a call makes, its attributes through the functions of the file, and configs of classes.
Source of what recipes and classes have by themselves: recipes.toml.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from optimizer.base.content import content
from optimizer.base.errors import InputError
from optimizer.frameworks.config.python import DEEPEST, OPEN, ConfigCall, Leaf, Reader, bare, place

IMPORTS = re.compile(r"^\s*(?:from|import)\s+(?:nemo\.collections\b.*|nemo_run\b)", re.MULTILINE)
MAKES = re.compile(r"\b(?:pretrain|finetune)_recipe\b|\bllm\.(?:pretrain|finetune|train)\b")
LONGEST, MOST = 100_000, 1_000  # characters, calls of its own functions
TABLES: Mapping[str, Any] = content("optimizer.frameworks.nemo", "recipes.toml")
RECIPES: Mapping[str, Mapping[str, Any]] = TABLES["recipes"]
KEYS: Mapping[str, str] = TABLES["keys"]
ARGUMENTS: Mapping[str, str] = TABLES["arguments"]
FASTER: Mapping[str, Mapping[str, Any]] = TABLES["performance"]
MADE: Mapping[str, Mapping[str, Mapping[str, Any]]] = TABLES["made"]
CLASSES: Mapping[str, str] = {str(row["config"]): str(row["model"]) for row in RECIPES.values()}
MTP = "use_mtp"  # whether the model predicts further tokens too
MODEL, UNREAD, LIST, REST = "model.recipe", "unread", "[]", "**"
# The path of each flag that a program may not say yet.
HOMES: Mapping[str, str] = {
    **{
        str(flag): path
        for path, (flag, *_) in reversed(content("optimizer.frameworks.nemo", "keys.toml")["plan"].items())
    },
    **{
        f"--overlap-{name}": f"trainer.strategy.ddp.overlap_{name.replace('-', '_')}"
        for name in ("grad-reduce", "param-gather")
    },
    "--ddp-bucket-size": "trainer.strategy.ddp.bucket_size",
    "--num-virtual-stages-per-pipeline-rank": "trainer.strategy.virtual_pipeline_model_parallel_size",
    "--fp8-format": "trainer.plugins.fp8",
}
OVERLAP, DEEPEP = "MegatronCommOverlapCallback", "DeepEPCallback"
DATA = ("seq_length", "global_batch_size", "micro_batch_size")
BUCKET = 128 * 1024 * 1024  # parameters in one of the first's, unless it says so
FLEX = {"model.config.moe_token_dispatcher_type": "flex", "model.config.moe_flex_dispatcher_backend": "deepep"}
QUIET = (  # callbacks that leave the model and its split as they are
    *("TimingCallback", "GarbageCollectionCallback", "FLOPsMeasurementCallback", "ModelCheckpoint", "NsysCallback"),
    *("MemoryProfileCallback", "LearningRateMonitor", "RichProgressBar", "RuntimeEstimator", "TensorBoardLogger"),
)
MEMBERS = ("torch.", "AttnBackend.")  # of modules and classes, whose names are values
WORDS = {"torch.bfloat16": "bf16", "torch.float32": "fp32", "torch.float16": "fp16", "torch.half": "fp16"}
# Sections and what may make them; of the others anything may.
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "trainer": ("", "Trainer"),
    "trainer.strategy": ("", "MegatronStrategy"),
    "trainer.strategy.ddp": ("", *MADE["ddp"]),
    "trainer.plugins": ("", *MADE["plugins"]),
    "optim": ("", *MADE["optim"]),
    "optim.config": ("", "OptimizerConfig"),
}
COMPARED: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    **{ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt},
    **{ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge},
}
# Arguments of functions that set the plan of a recipe.
PLANNED = re.compile(r"num_nodes|num_gpus\w*|[mg]bs|(micro|global)_batch_size|(tp|pp|cp|ep)_size|\w+_parallel\w*_size")
WIDE = "grad_reduce_in_fp32"  # of the plugin, which sets that of `ddp` too
# Calls that are given a recipe and do not change it.
HARMLESS = ("run", "add", "print", "pprint", "str", "repr", "len", "isinstance", "Config", "Partial", "dump", "info")
NEEDED = (
    re.compile(r"trainer\.(num_nodes|devices|plugins|strategy\.\w+_parallel_size|strategy\.sequence_parallel)"),
    re.compile(r"data\.(seq_length|\w+_batch_size)|model\.config\.recompute_\w+"),
)

VALUES = re.compile(
    r"(trainer\.strategy|model\.config|optim\.config|trainer\.plugins)\.|trainer\.(num_nodes|devices)|data\.\w+_"
)


def is_program(text: str) -> bool:
    """Whether a Python file runs a recipe of NeMo 2."""
    return bool(IMPORTS.search(text) and MAKES.search(text))


def recipe_values(text: str) -> dict[str, Any]:
    r"""Values of the recipe that a program runs, by path.

    Raises InputError for one that runs none or several, or one that is not known; SyntaxError for what is no Python.

    >>> text = "from nemo.collections import llm\nr = llm.llama3_8b.pretrain_recipe(num_nodes=2)\n"
    >>> values = recipe_values(text + "r.trainer.strategy.context_parallel_size = 1")
    >>> values["model.recipe"], values["trainer.num_nodes"], values["data.global_batch_size"]
    ('llama3-8b', 2, 512)
    >>> values["trainer.strategy.context_parallel_size"], values["trainer.strategy.ddp.overlap_grad_reduce"]
    (1, True)
    """
    leaves = _leaves(text)
    open_ones = [path for path, leaf in leaves.items() if leaf is OPEN and any(each.match(path) for each in NEEDED)]
    if open_ones:
        raise InputError(f"{', '.join(open_ones)}: only a run would tell; write the value there")
    values = {path: "?" if leaf is OPEN else WORDS.get(str(leaf.value), leaf.value) for path, leaf in leaves.items()}
    if f"trainer.plugins.{WIDE}" in values:
        values.pop(f"trainer.strategy.ddp.{WIDE}", None)
    if "data.seq_length" in values:
        values.pop("model.config.seq_length", None)  # of which only the count of operations is made
    sharding = "trainer.strategy.ddp.data_parallel_sharding_strategy"
    if values.get("trainer.strategy.fsdp") == "megatron":
        values |= {"trainer.strategy.ddp.use_megatron_fsdp": True, sharding: values.get(sharding, "no_shard")}
    else:
        values.pop(sharding, None)  # which counts with that alone
    return values | _by_callbacks(values)


def _by_callbacks(values: dict[str, Any]) -> dict[str, Any]:
    """What callbacks set when the training starts; what they set over is taken out of the values, and they themselves.

    Source: nemo-toolkit 2.5.3, nemo/lightning/pytorch/callbacks/megatron_comm_overlap.py, deepep.py.
    """
    names = {path: str(value) for path, value in values.items() if re.fullmatch(r"trainer\.callbacks\.\w+", path)}
    for path, name in names.items():
        del values[path]
        if name not in (*QUIET, OVERLAP, DEEPEP):
            values[UNREAD] = "; ".join(filter(None, [values.get(UNREAD, ""), name]))
    more: dict[str, Any] = dict(FLEX) if DEEPEP in names.values() else {}
    tp_overlap = f"trainer.callbacks.{OVERLAP}.tp_comm_overlap"
    strategy = "trainer.strategy."
    if not values.get(f"{strategy}sequence_parallel") or values.get(f"{strategy}tensor_model_parallel_size", 1) == 1:
        values.pop(tp_overlap, None)  # which it takes back then
    interleaved = (values.get("trainer.strategy.virtual_pipeline_model_parallel_size") or 1) > 1
    if OVERLAP not in names.values():
        return more | {"model.config.overlap_p2p_comm": values.get("model.config.overlap_p2p_comm", False)}
    usual = {"overlap_p2p_comm": interleaved, "overlap_grad_reduce": True, "overlap_param_gather": True}
    own = {f"trainer.callbacks.{OVERLAP}.{key}": value for key, value in (usual | {"bucket_size": BUCKET}).items()}
    own = {path: value for path, value in own.items() if values.get(path) is None}
    for path in [*values]:
        section, _, key = path.rpartition(".")
        if section in ("trainer.strategy.ddp", "model.config") and key in (*usual, "bucket_size", "tp_comm_overlap"):
            del values[path]
    return more | own


def recipe_changed(text: str, path: str, value: Any) -> str:
    r"""The program with one value set: where it stands, else in a line after the last that sets one.

    >>> text = "from nemo.collections import llm\nr = llm.llama3_8b.pretrain_recipe(num_nodes=2)\n"
    >>> print(recipe_changed(recipe_changed(text, "trainer.num_nodes", 4), "data.micro_batch_size", 2), end="")
    from nemo.collections import llm
    r = llm.llama3_8b.pretrain_recipe(num_nodes=4)
    r.data.micro_batch_size = 2
    """
    leaf = _leaves(text).get(path)
    if isinstance(leaf, Leaf) and leaf.span:
        return text[: leaf.span[0]] + _text(value) + text[leaf.span[1] :]
    program = _Program(text)
    recipe = program.recipe()
    strategy = recipe.entries.get("trainer")
    strategy = strategy.entries.get("strategy") if isinstance(strategy, ConfigCall) else None
    own = isinstance(strategy, ConfigCall) and isinstance(strategy.entries.get("ddp"), ConfigCall)
    lost = path.startswith("trainer.callbacks.") or (path.startswith("trainer.strategy.ddp.") and not own)
    if not program.last or "." not in path or lost:
        raise InputError(f"{path}: no line of the program has a place for it")
    name, node = program.last
    end = place(text, node.end_lineno or node.lineno, node.end_col_offset or 0)
    return f"{text[:end]}\n{' ' * node.col_offset}{name}.{path} = {_text(value)}{text[end:]}"


def _text(value: Any) -> str:
    return repr(value).replace("'", '"')


def _leaves(text: str) -> dict[str, Any]:
    """Every value of the recipe by path, with its place; OPEN for what only a run would tell."""
    if len(text) > LONGEST:
        raise InputError(f"more than {LONGEST:,} characters are no program that trains")
    program = _Program(text)
    recipe = program.recipe()
    unread = [*dict.fromkeys(program.unread)]
    leaves = dict(_flat(recipe, "", unread))
    if unread:
        leaves[UNREAD] = Leaf("; ".join(unread))
    return leaves


def _flat(section: ConfigCall, path: str, unread: list[str]) -> Iterator[tuple[str, Any]]:
    """The values below a path: those of what made the section, and over them those that the program sets."""
    for key, value in section.entries.items():
        here = f"{path}{key}"
        if here == "trainer.strategy.ddp" and isinstance(value, Leaf):
            value = ConfigCall(str(value.value))
        if not isinstance(value, ConfigCall) or (here not in SECTIONS and VALUES.match(here)):
            if here == "trainer.callbacks" and value is OPEN:
                unread.append(f"{here}, which only a run would tell")
                continue
            yield here, OPEN if isinstance(value, ConfigCall) else value
            continue
        if here == "data" and value.called and not {*DATA} <= value.entries.keys():
            missing = ", ".join(key for key in DATA if key not in value.entries)
            raise InputError(f"data is what {value.called} makes, without {missing}: set them after it")
        if here == "trainer.plugins" and value.called == LIST:
            value = next((one for name, one in value.entries.items() if name in MADE["plugins"]), value)
        if here in SECTIONS and value.called not in SECTIONS[here]:
            if here in ("trainer", "trainer.strategy", "trainer.plugins"):
                raise InputError(f"{here} is what {value.called} makes, which is not read: set its values after it")
            unread.append(f"{here}, which is what {value.called} makes")
        if here == "model.config" and value.called in CLASSES:
            yield MODEL, Leaf(CLASSES[value.called])
        made = MADE.get(here.rpartition(".")[2], {}).get(value.called, {}) if here in SECTIONS else {}
        if path == "trainer.callbacks.":
            yield here, Leaf(value.called)
            if value.called != OVERLAP:
                continue
        yield from ((f"{here}.{name}", Leaf(usual)) for name, usual in made.items())
        yield from _flat(value, f"{here}.", unread)


class _Program(Reader):
    """One file, run in mind from its first line."""

    def __init__(self, text: str) -> None:
        """Parse it."""
        self.made_here: list[ConfigCall] = []
        self.started: list[ConfigCall] = []  # of these, those that are handed to what runs them
        self.unread: list[str] = []
        self.last: tuple[str, ast.stmt] | None = None
        self.perhaps = self.calls = 0
        self.modules = {
            alias.asname or alias.name: (node.module or "").rpartition(".")[2]
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        super().__init__(text)

    def recipe(self) -> ConfigCall:
        """The one recipe of the program; raises InputError where there is none, or where there are several."""
        self.made_here, self.started, self.unread = [], [], []
        names: dict[str, Any] = {}
        for node in self.body:
            self.statement(node, names, 0)
        if not self.made_here:  # a file whose functions others call: those that none here calls
            called = {
                node.func.id
                for each in self.body
                for node in ast.walk(each)
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            }
            for name in self.functions:
                if name not in called:
                    self.call(name, [], 0)
        started = self.started or self.made_here
        if any(one is not started[0] for one in started) or not started:
            count = "several recipes" if started else "no call of pretrain_recipe"
            raise InputError(f"a program of NeMo 2 with {count}: give one that runs one")
        return started[0]

    def call(self, name: str, arguments: Any, depth: int, named: Mapping[str, Any] = {}) -> Any:
        """What a function returns, its defaults and arguments by name in place."""
        node = self.functions.get(name)
        if node is None or depth > DEEPEST:
            return OPEN
        self.calls += 1
        if self.calls > MOST:
            raise InputError(f"more than {MOST:,} calls of its own functions are no program that trains")
        known = [each.arg for each in (*node.args.args, *node.args.kwonlyargs)]
        defaults = dict(zip([each.arg for each in node.args.args][::-1], node.args.defaults[::-1], strict=False))
        own = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        defaults |= {each.arg: value for each, value in own if value}
        names: dict[str, Any] = dict.fromkeys(known, OPEN)
        names |= {key: self.value(value, {}, depth) for key, value in defaults.items()}
        names |= dict(zip(known, arguments, strict=False)) | {key: named[key] for key in known if key in named}
        if node.args.kwarg:
            rest = {key: value for key, value in named.items() if key not in known}
            names[node.args.kwarg.arg] = ConfigCall(REST, [], rest)
        result = self.block(node.body, names, depth)
        return OPEN if result is None else result

    def block(self, body: list[ast.stmt], names: dict[str, Any], depth: int) -> Any:
        """Run statements in mind up to a `return`; what that gives, None without one."""
        for node in body:
            if isinstance(node, ast.Return):
                return self.value(node.value, names, depth) if node.value else OPEN
            if (result := self.statement(node, names, depth)) is not None:
                return result
        return None

    def statement(self, node: ast.stmt, names: dict[str, Any], depth: int) -> Any:
        """One statement, and what it returns from the function; under a condition of a run what it sets is open."""
        if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
            return self.block(node.body, names, depth)
        if isinstance(node, ast.With | ast.Try):
            return self.block(node.body, names, depth)
        if isinstance(node, ast.If) and (holds := self.holds(node.test, names, depth)) is not None:
            return self.block(node.body if holds else node.orelse, names, depth)
        if isinstance(node, ast.If | ast.For | ast.While):
            self.perhaps += 1
            for branch in (node.body, node.orelse):
                self.block(branch, names, depth)
            self.perhaps -= 1
            return None
        if isinstance(node, ast.Expr):
            self.value(node.value, names, depth)
            return None
        super().statement(node, names, depth)
        for target in node.targets if isinstance(node, ast.Assign) else ():
            root = _root(target)
            if root and self.is_recipe(names.get(root)) and not self.perhaps:
                self.last = root, node
        return None

    def holds(self, node: ast.expr, names: Mapping[str, Any], depth: int) -> bool | None:
        """Whether a condition of known values holds; None where only a run would tell."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.holds(node.operand, names, depth)
            return None if inner is None else not inner
        if not isinstance(node, ast.Compare) or len(node.ops) > 1 or type(node.ops[0]) not in COMPARED:
            alone = self.value(node, names, depth)
            return bool(alone.value) if isinstance(alone, Leaf) else None
        sides = [self.value(side, names, depth) for side in (node.left, node.comparators[0])]
        values = [side.value for side in sides if isinstance(side, Leaf)]
        alike = len(values) == 2 and all(isinstance(each, int | float) for each in values)
        if not alike and not (len(values) == 2 and isinstance(node.ops[0], ast.Eq | ast.NotEq)):
            return None
        return bool(COMPARED[type(node.ops[0])](*values))

    def assign(self, target: ast.expr, value: Any, names: dict[str, Any]) -> None:
        """Set a name or an attribute; under a condition to what is not known, unless it is a recipe."""
        if self.perhaps and not self.is_recipe(value):
            value = OPEN
        root = _root(target)
        lost = isinstance(target, ast.Subscript) or (
            isinstance(target, ast.Attribute) and self.section(target.value, names) is None
        )
        if lost and root and self.is_recipe(names.get(root)):
            self.unread.append(f"{ast.unparse(target)}, which only a run would tell")
            return
        super().assign(target, value, names)

    def is_recipe(self, value: Any) -> bool:
        """Whether a value is a recipe, or a section of one."""
        return isinstance(value, ConfigCall) and any(_holds(one, value) for one in reversed(self.made_here))

    def value(self, node: ast.expr, names: Mapping[str, Any], depth: int) -> Any:
        """A leaf, without its place where a name stands for it, a section, or OPEN."""
        if isinstance(node, ast.Name | ast.Attribute):
            text = ast.unparse(node)
            return Leaf(text) if text.startswith(MEMBERS) else bare(super().value(node, names, depth))
        if isinstance(node, ast.List):
            items = [self.value(item, names, depth + 1) for item in node.elts]
            if any(isinstance(item, ConfigCall) for item in items):
                return ConfigCall(LIST, [], {item.called: item for item in items if isinstance(item, ConfigCall)})
        return super().value(node, names, depth)

    def made(self, node: ast.Call, names: Mapping[str, Any], depth: int) -> Any:
        """What a call makes: a recipe, a config of a class, what a function of the file returns."""
        if isinstance(node.func, ast.Call) and ast.unparse(node.func.func).rpartition(".")[2] == "partial":
            first, *others = node.func.args
            keywords = [*node.func.keywords, *node.keywords]
            return self.made(ast.copy_location(ast.Call(first, [*others, *node.args], keywords), node), names, depth)
        called = ast.unparse(node.func)
        owner, _, last = called.rpartition(".")
        given = [self.value(argument, names, depth + 1) for argument in node.args]
        entries = {word.arg: self.value(word.value, names, depth + 1) for word in node.keywords if word.arg}
        for word in node.keywords:
            rest = self.value(word.value, names, depth + 1) if not word.arg else None
            if isinstance(rest, ConfigCall) and rest.called == REST:
                entries |= rest.entries
            elif rest is not None and last == "pretrain_recipe":
                self.unread.append(f"what **{ast.unparse(word.value)} gives {called}")
        if called in self.functions:
            return bare(self.call(called, given, depth + 1, entries))
        if last == "finetune_recipe":
            raise InputError("NeMo 2's recipes that fine-tune are not read: those that pretrain are")
        if last == "pretrain_recipe" or self.modules.get(called) == "pretrain_recipe":
            return self.pretrains(owner.rpartition(".")[2] or self.modules.get(last, ""), entries)
        if last in ("Config", "Partial") and node.args:
            name = ast.unparse(node.args[0]).rpartition(".")[2]
            config = ConfigCall(name, given[1:], entries)
            if name == "pretrain":  # in place of the one whose sections it takes over
                self.made_here = [
                    one for one in self.made_here if not any(_holds(one, each) for each in entries.values())
                ]
            if name.endswith("Model") and given[1:]:
                config.entries.setdefault("config", given[1])
            self.made_here += [config] * (name == "pretrain")
            return config
        if last in ("append", "extend") and isinstance(node.func, ast.Attribute):
            return self.grown(node.func.value, given, names)
        self.started += [one for one in self.made_here for each in given if each is one and last in ("run", "add")]
        if last not in HARMLESS and any(map(self.is_recipe, (*given, *entries.values()))):
            planned = [name for name in entries if PLANNED.fullmatch(name)]
            numbers = [each.value for each in given if isinstance(each, Leaf) and type(each.value) is int]
            if planned or len(numbers) > 2:
                what = ", ".join(planned) or "numbers"
                raise InputError(f"{called} sets {what} of the recipe and is not read: set its values after it")
            self.unread.append(f"what {called} does to the recipe")
        return ConfigCall(last, given, entries)

    def grown(self, node: ast.expr, given: list[Any], names: Mapping[str, Any]) -> Any:
        """A list of callbacks with others at its end."""
        section = self.section(node, names)
        if section is not None and self.is_recipe(section):
            for each in given:
                several = each.entries.values() if isinstance(each, ConfigCall) and each.called == LIST else [each]
                section.entries |= {one.called: one for one in several if isinstance(one, ConfigCall)}
            section.called = LIST
        return OPEN

    def pretrains(self, name: str, given: Mapping[str, Any]) -> ConfigCall:
        """The recipe of this name, made with arguments."""
        row = RECIPES.get(name)
        if row is None:
            name = name or "that only a run would tell"
            raise InputError(f"NeMo 2's recipe {name} is none of those whose values are known: {', '.join(RECIPES)}")
        faster = given.get("performance_mode", Leaf(False))
        if not isinstance(faster, Leaf) or (faster.value and name not in FASTER):
            raise InputError(f"performance_mode: only a run would tell, or {name} has none; leave it out")
        own = FASTER[name] if faster.value else {}
        recipe = ConfigCall("pretrain")
        usual = TABLES["usual"] | {
            path: value for key, path in KEYS.items() if (value := {**row, **own}.get(key)) is not None
        }
        for path, value in usual.items():
            _set(recipe, path, Leaf(value))
        for path, made in {
            "trainer.plugins": "bf16_mixed",
            "trainer.strategy.ddp": str(row.get("ddp", "usual")),
            "optim": "distributed_fused_adam_with_cosine_annealing",
        }.items():
            _set(recipe, path, ConfigCall(made))
        _set(recipe, "model.config", ConfigCall(str(row["config"])))
        for callback in row.get("callbacks", ()):
            _set(recipe, f"trainer.callbacks.{callback}", ConfigCall(callback))
        if faster.value:
            overlap = {"tp_comm_overlap": Leaf(True)} if own.get("tp_overlap") else {}
            _set(recipe, f"trainer.callbacks.{OVERLAP}", ConfigCall(OVERLAP, [], dict(overlap)))
            if own.get("drops"):
                _set(recipe, "trainer.callbacks.MegatronTokenDropCallback", ConfigCall("MegatronTokenDropCallback"))
            if own.get("narrow"):
                _set(recipe, f"trainer.plugins.{WIDE}", Leaf(False))
        for argument, path in ARGUMENTS.items():
            if argument in given:
                _set(recipe, path, given[argument])
        if "mtp" in row and MTP in given:
            several = given[MTP]
            if not isinstance(several, Leaf):
                raise InputError(f"{MTP}: only a run would tell; write the value there")
            _set(recipe, KEYS["mtp"], Leaf(row["mtp"] if several.value else None))
        self.made_here.append(recipe)
        return recipe


def _set(section: ConfigCall, path: str, value: Any) -> None:
    """Set what a path means below a section; the values of a section that is there stay in one that takes its place."""
    *outer, key = path.split(".")
    for name in outer:
        inner = section.entries.setdefault(name, ConfigCall(""))
        section = inner if isinstance(inner, ConfigCall) else ConfigCall("")
    before = section.entries.get(key)
    if isinstance(before, ConfigCall) and isinstance(value, ConfigCall):
        value.entries = before.entries | value.entries
    section.entries[key] = value


def _holds(section: ConfigCall, wanted: Any) -> bool:
    return section is wanted or any(
        _holds(each, wanted) for each in section.entries.values() if isinstance(each, ConfigCall)
    )


def _root(target: ast.expr) -> str:
    """The name at the start of a chain of attributes and places, "" for another one."""
    while isinstance(target, ast.Attribute | ast.Subscript):
        target = target.value
    return target.id if isinstance(target, ast.Name) else ""
