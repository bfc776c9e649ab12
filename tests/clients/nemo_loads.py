"""Run where NeMo 2, NeMo-Run and Megatron-Core are: run an exported program in front of their sources, print verdicts.

Reads lines of JSON with the program and what was planned; writes one line of JSON for each. Recipes are made by NeMo's
own code; the libraries below them are stand-ins, and what a config of a class is given must be in that class's
signature, as its source has it. A line with "recipes" asks for the values of recipes instead.
"""

import ast
import functools
import importlib
import importlib.abc
import importlib.machinery
import json
import re
import runpy
import sys
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

RECIPES = "nemo.collections.llm.recipes"
TOPS = ("lightning", "nemo_run", "torch", "megatron", "nemo", "transformers", "transformer_engine", "pytorch_lightning")
PATHS = {
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "context_parallel_size": "cp",
    "expert_model_parallel_size": "ep",
}


def roots() -> list[Path]:
    return [
        Path(folder)
        for folder in sys.path
        if any(Path(folder, top).is_dir() for top in ("nemo", "nemo_run", "megatron"))
    ]


@functools.cache
def listed() -> str:
    """The file that says which recipes `nemo.collections.llm` has."""
    files = (root / RECIPES.replace(".", "/") / "__init__.py" for root in roots())
    return next(file for file in files if file.exists()).read_text()


@functools.cache
def classes() -> dict[str, list[ast.ClassDef]]:
    """Every class of the sources by name."""
    found: dict[str, list[ast.ClassDef]] = {}
    for root in roots():
        for top in ("nemo/collections/llm", "nemo/lightning", "nemo/utils", "nemo_run", "megatron/core"):
            for path in (root / top).rglob("*.py"):
                for node in ast.parse(path.read_text()).body:
                    if isinstance(node, ast.ClassDef):
                        found.setdefault(node.name, []).append(node)
    return found


@functools.cache
def signature(name: str) -> frozenset[str]:
    """Keyword arguments of the classes of this name, those of their bases included."""
    names: set[str] = set()
    for node in classes().get(name, []):
        made = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
        for each in made:
            names |= {argument.arg for argument in (*each.args.args, *each.args.kwonlyargs)}
        names |= {
            each.target.id
            for each in node.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        }
        for base in () if made and not any(each.args.kwarg for each in made) else node.bases:
            inherited = ast.unparse(base).rpartition(".")[2]
            names |= signature(inherited) if inherited != name else set()
    return frozenset(names)


class StandIn:
    """Whatever a library has by this name."""

    def __init__(self, name: str) -> None:
        self.__dict__["_name"] = name

    def __getattr__(self, key: str) -> Any:
        if key.startswith("__"):
            raise AttributeError(key)
        return StandIn(f"{self._name}.{key}")

    def __call__(self, *given: Any, **named: Any) -> Any:
        if len(given) == 1 and isinstance(given[0], types.FunctionType) and not named:
            return given[0]
        return StandIn(f"{self._name}()")

    def __getitem__(self, _: Any) -> Any:
        return self

    def __or__(self, _: Any) -> Any:
        return self

    __ror__ = __or__

    def __mro_entries__(self, _: Any) -> tuple[type, ...]:
        return (object,)

    def __repr__(self) -> str:
        return self._name


class Config:
    """A config of a class: of a program, not of NeMo's own recipes, it takes only what the signature has."""

    def __init__(self, made: Any, *_: Any, **named: Any) -> None:
        name = made.__name__ if isinstance(made, types.FunctionType) else str(made).rpartition(".")[2]
        self.__dict__["_made"] = name
        self.held(named, sys._getframe(1).f_code.co_filename)
        self.__dict__.update(named)

    def __class_getitem__(cls, _: Any) -> type:
        return cls

    def __setattr__(self, key: str, value: Any) -> None:
        self.held([key], sys._getframe(1).f_code.co_filename)
        self.__dict__[key] = value

    def __getattr__(self, key: str) -> Any:
        if key.startswith("__"):
            raise AttributeError(key)
        return None

    def held(self, keys: Iterable[str], program: str) -> None:
        """Keys that a program of this name gives are in the signature, or NeMo's recipe has set them already."""
        unknown = [key for key in keys if key not in signature(self._made) and key not in self.__dict__]
        if unknown and f"/{RECIPES.replace('.', '/')}/" not in program:
            raise TypeError(f"{self._made} has no argument {unknown[0]}")


class Executor(Config):
    """An executor of NeMo-Run."""


class Sources(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Recipes as they are, all else a stand-in."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name.partition(".")[0] not in TOPS:
            return None
        for root in roots() if name.startswith(f"{RECIPES}.") else ():
            file = root / f"{name.replace('.', '/')}.py"
            if file.exists():
                return importlib.machinery.ModuleSpec(
                    name, importlib.machinery.SourceFileLoader(name, str(file)), origin=str(file)
                )
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        module = types.ModuleType(spec.name)

        def named(key: str) -> Any:
            if key.startswith("__"):
                raise AttributeError(key)
            if (spec.name, key) == ("nemo.collections", "llm"):
                return importlib.import_module("nemo.collections.llm")
            if spec.name == "nemo.collections.llm" and re.search(rf"^    {key},$", listed(), re.MULTILINE):
                return importlib.import_module(f"{RECIPES}.{key}")
            return StandIn(f"{spec.name}.{key}")

        module.__getattr__ = named  # type: ignore[method-assign]
        module.__path__ = []
        if spec.name == "nemo_run":
            module.Config = module.Partial = Config  # type: ignore[attr-defined]
            for name in ("LocalExecutor", "SlurmExecutor", "LocalTunnel", "Packager"):
                assert signature(name), name
                setattr(module, name, functools.partial(Executor, name))
            module.cli = types.SimpleNamespace(  # type: ignore[attr-defined]
                factory=lambda made=None, **_: made if isinstance(made, types.FunctionType) else (lambda each: each)
            )
            module.autoconvert = module.cli.factory  # type: ignore[attr-defined]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def at(recipe: Any, path: str) -> Any:
    for key in path.split("."):
        recipe = getattr(recipe, key, None)
    return recipe


def load(job: dict) -> None:
    ran: list[tuple[Any, Any]] = []
    import nemo_run

    nemo_run.run = lambda recipe, executor, name: ran.append((recipe, executor))
    imported = [node for node in ast.parse(Path(job["overrides"]).read_text()).body if isinstance(node, ast.ImportFrom)]
    names = [alias.name for node in imported for alias in node.names if node.module != "nemo.collections"]
    assert [name for name in names if name not in classes()] == [], names
    sys.argv = [job["overrides"], "account", "partition", "image", "/folder"]
    module = runpy.run_path(job["overrides"], run_name="__main__")
    ((recipe, slurm),) = ran
    plan = job["plan"]
    nodes, gpus = recipe.trainer.num_nodes, recipe.trainer.devices
    assert nodes * gpus == job["gpus"], (nodes, gpus)
    assert (slurm.nodes, slurm.ntasks_per_node, slurm.container_image) == (nodes, gpus, "image")
    sys.argv = sys.argv[:1]
    if nodes == 1:
        assert module["executor"](nodes).ntasks_per_node == gpus
    for key, name in PATHS.items():
        assert getattr(recipe.trainer.strategy, key) == plan[name], key
    assert (recipe.trainer.strategy.virtual_pipeline_model_parallel_size or 1) == plan["vpp"]
    assert recipe.data.micro_batch_size == plan["micro_batch"]
    assert recipe.data.seq_length == recipe.model.config.seq_length == job["seq_len"]
    ranks = plan["tp"] * plan["pp"] * plan["cp"]
    batch = plan["micro_batch"] * plan["num_microbatches"] * job["gpus"] // ranks
    assert recipe.data.global_batch_size == batch, batch
    assert (recipe.model.config.recompute_granularity or "none") == plan["recompute"]
    assert recipe.optim.config.use_distributed_optimizer is (plan["zero_stage"] > 0)


def recipes(asked: dict) -> dict:
    """The values of recipes at these paths, and the class of each config."""
    found = {}
    for name in asked["recipes"]:
        recipe = importlib.import_module(f"{RECIPES}.{name}").pretrain_recipe(**asked["given"])
        found[name] = {path: at(recipe, path) for path in asked["paths"]}
        found[name]["model.config"] = recipe.model.config._made
        callbacks = {each._made: each for each in recipe.trainer.callbacks or []}
        found[name]["callbacks"] = [*callbacks]
        found[name]["narrow"] = recipe.trainer.plugins.grad_reduce_in_fp32 is False
        found[name]["tp_overlap"] = bool(at(callbacks.get("MegatronCommOverlapCallback"), "tp_comm_overlap"))
    return found


def main() -> None:
    sys.meta_path.insert(0, Sources())
    for line in sys.stdin:
        job = json.loads(line)
        if "recipes" in job:
            print(json.dumps(recipes(job), default=str))
            continue
        try:
            load(job)
            verdict = ""
        except BaseException as error:
            verdict = f"{type(error).__name__}: {error}"
        print("\n" + json.dumps({"job": job, "verdict": verdict}), flush=True)


if __name__ == "__main__":
    main()
