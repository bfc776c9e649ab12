"""The doors: what comes in through each, and the code that opens it as far as no search begins."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import parse_qsl

import click
from click.testing import CliRunner
from hypothesis import strategies as st

from tests.fuzz.grammar import HOSTILE, NUMBERS, as_json, as_toml, damaged_document, damaged_text

LONGEST_MESSAGE = 2048
OPEN = (0, 2, 3, 4, 5, 130)  # exit codes that are an answer, or of Ctrl-C


class Trouble(AssertionError):
    """What must not come out of a door."""


@dataclass(frozen=True, kw_only=True)
class Door:
    """`inputs` made by its grammar go through `enter`, in a folder of their own; its result holds no NaN.

    cost: how many inputs that stop before the first plan take as long as one of these.
    """

    name: str
    cost: int = 1
    inputs: st.SearchStrategy[Any] = field(repr=False)
    enter: Callable[[Any, Path], object]


def nan_in(value: Any, depth: int = 0) -> bool:
    """Whether a result holds a number that is none, at any depth that results have."""
    if isinstance(value, float):
        return value != value
    if depth > 8:
        return False
    if isinstance(value, Mapping):
        return any(nan_in(item, depth + 1) for item in value.values())
    if isinstance(value, list | tuple):
        return any(nan_in(item, depth + 1) for item in value[:200])
    return hasattr(value, "__dataclass_fields__") and any(nan_in(item, depth + 1) for item in vars(value).values())


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return path


# Files


def read(load: Callable[[Path], object], name: str) -> Callable[[Any, Path], object]:
    """Enter by a file of this name; what the reader refuses must be told as the command would."""

    def enter(text: str, folder: Path) -> object:
        from optimizer.base.errors import OptimizerError

        try:
            found = load(written(folder, name, text))
        except OptimizerError as error:
            return told(str(error))
        if nan_in(found):
            raise Trouble(f"NaN in {found!r:.300}")
        return found

    return enter


def told(message: str) -> None:
    """A message as it reaches the terminal."""
    from optimizer.cli import _shown

    text = _shown(message)
    if len(text.encode()) > LONGEST_MESSAGE:
        raise Trouble(f"a message of {len(text.encode()):,} bytes")
    if "\x1b" in text:
        raise Trouble("an escape sequence in a message")


def model_file(path: Path) -> object:
    from optimizer.catalog import load_model

    return load_model(path)


def cluster_file(path: Path) -> object:
    from optimizer.catalog import load_cluster

    return load_cluster(path)


def device_file(path: Path) -> object:
    from optimizer.catalog import load_device

    return load_device(path)


def stack_file(path: Path) -> object:
    from optimizer.catalog import load_stack

    return load_stack(path)


def study_file(path: Path) -> object:
    from optimizer.commands.study.batch import _tasks

    return _tasks(path)[0].effort


def runs_file(path: Path) -> object:
    from optimizer.calibration.runs import read_runs

    return [(run.step_time, run.memory) for run in read_runs(path)]


def log_file(path: Path) -> object:
    from optimizer.diagnose.measured import read_runs_of

    return read_runs_of([path], {})


def watched(text: str, folder: Path) -> object:
    """A log of which another third stands at every look of `read --watch`; then Ctrl-C."""
    from optimizer.commands.launch.watch import grown, watch

    data = text.encode("utf-8", "surrogatepass")
    parts = [data[len(data) * part // 3 : len(data) * (part + 1) // 3] for part in range(3)]

    def grow(_: float = 0.0) -> None:
        if not parts:
            raise KeyboardInterrupt
        with (folder / "run.log").open("ab") as log:
            log.write(parts.pop(0))

    grow()
    with mock.patch.object(grown, "__defaults__", (grow,)), mock.patch.object(watch, "__defaults__", (grow,)):
        return command(["read", "run.log", "--watch"], folder)


def launch_file(path: Path, section: str = "") -> object:
    from optimizer.frameworks.files import read_files
    from optimizer.frameworks.launch_as_read import Controls, launch_as_read
    from optimizer.frameworks.read import read_launch

    source = read_launch(read_files([str(path)], section=section), 64, "")
    return launch_as_read(source.launch, Controls(gpus=64), str(path))


def measured_file(path: Path) -> object:
    from optimizer.catalog.readers.text import toml_of
    from optimizer.measure.hardware_of import hardware_of
    from optimizer.measure.hardware_toml import cluster_toml
    from optimizer.measure.measured import read_measured

    measured = read_measured(path)
    made = hardware_of(measured, name="mine")
    return toml_of(cluster_toml(made, measured), "the cluster that was made")


def nccl_file(path: Path) -> object:
    from optimizer.catalog.readers.nccl_tests import read_nccl_tests

    return read_nccl_tests(path)


def topo_file(path: Path) -> object:
    return command(["topology", path.name, "--device", "h100"], path.parent)


def answer_file(path: Path) -> object:
    from optimizer.answer.reading import read_answer
    from optimizer.catalog.readers.text import readable

    return read_answer(readable(path, "give an answer"), str(path)).job


def quotes_file(path: Path) -> object:
    return command(["prices", "--prices", path.name, "--device", "h100"], path.parent)


def trials_file(path: Path) -> object:
    from optimizer.trial.folder import read_folder

    return read_folder(path.parent).chosen


def own_runs(texts: tuple[str, str], folder: Path) -> object:
    """Enter by `--runs` with a table alone, or a log and what started it."""
    from optimizer.base.errors import OptimizerError
    from optimizer.catalog import load_stack
    from optimizer.commands.own_runs import with_known_runs

    first, second = texts
    files = [written(folder, "first", first), *([written(folder, "second.sh", second)] if second else [])]
    try:
        stack, _ = with_known_runs(load_stack("megatron-core"), ",".join(map(str, files)), "dgx-h100")
    except OptimizerError as error:
        return told(str(error))
    if nan_in(stack):
        raise Trouble("NaN in what runs say")
    return stack


def batch_script(path: Path) -> object:
    """What `--like` takes of a script; twice the same, since what it writes is a batch script again."""
    from optimizer.catalog.readers.text import readable
    from optimizer.frameworks.bash.like import alike
    from tests.frameworks.launches import SLURM

    once = alike(SLURM, readable(path, "give a batch script of Slurm"), path.name)
    return alike(SLURM, once, path.name)


def pasted(text: str, folder: Path) -> object:
    """What a visitor pastes on the page into /improve, which is also the text of a link."""
    from optimizer.base.errors import OptimizerError
    from optimizer.page.improve.question import asked
    from optimizer.page.task import PageTask
    from optimizer.page.views import result

    body = text.encode("utf-8", "surrogatepass")
    with no_search():
        try:
            found = result(PageTask(view="improve", asked=asked([("cluster", "dgx-h100")]), body=body))
        except OptimizerError as error:
            return told(str(error))
        except click.exceptions.Exit:
            return None
    if nan_in(found):
        raise Trouble(f"NaN in {found!r:.300}")
    return None


def tab(asked: tuple[str, list[tuple[str, str]]], folder: Path) -> object:
    """A tab of the page with what its address says, and every view that opens with it, to the end."""
    from optimizer.base.errors import OptimizerError
    from optimizer.page.tabs import tabs_of
    from optimizer.page.task import PageTask
    from optimizer.page.views import result

    name, pairs = asked
    tab = next(each for each in tabs_of(None) if each.name == name)
    try:
        question = tab.asked(pairs)
        if tab.asked(parse_qsl(question.address(), keep_blank_values=True)).address() != question.address():
            raise Trouble(f"another question is at {question.address()!r:.300}")
        for view in tab.opening or ("panel",):
            if name != "improve" and nan_in(result(PageTask(view=view, asked=question))):
                raise Trouble(f"NaN in the view {view}")
    except OptimizerError as error:
        return told(str(error))
    return None


def portfolio_file(path: Path) -> object:
    words = ["pareto", "--portfolio", path.name, "--hardware", "h100", "--gpus", "8"]
    return command(words, path.parent)


def address(pairs: list[tuple[str, str]], folder: Path) -> object:
    """Enter by the address of every tab of the page."""
    from optimizer.base.errors import OptimizerError
    from optimizer.page.tabs import tabs_of

    entered = []
    for tab in tabs_of(None):
        try:
            entered.append(tab.asked(pairs).address())
        except OptimizerError as error:
            entered.append(told(str(error)))
    return entered


@cache
def manifests() -> list[Any]:
    """What `optimize trial` keeps of its plans."""
    from optimizer.cli import cli
    from optimizer.trial.folder import MANIFEST

    with tempfile.TemporaryDirectory() as folder:
        words = ["trial", *SMALL, "--global-batch", "64", "--fix", "pp=1", "--out", f"{folder}/trials", "--json"]
        CliRunner().invoke(cli, words, catch_exceptions=False)
        return [json.loads(Path(folder, "trials", MANIFEST).read_text())]


@cache
def answers() -> list[Any]:
    """Answers as `optimize --json` prints them."""
    arguments = ["--gpus", "8", "--global-batch", "64", "--trials", "0", "--fix", "pp=1", "--json"]
    from optimizer.cli import cli

    found = [CliRunner().invoke(cli, ["--model", model, *arguments]) for model in ("llama3-8b", "gpt3")]
    return [json.loads(result.stdout) for result in found]


def documents(name: str) -> st.SearchStrategy[str]:
    """The grammar of a file that is a document."""
    from tests.catalog.readers.test_damage import READERS
    from tests.measure.test_hardware import DATA as MEASURED

    whole = {
        "answer.json": answers,
        "trials.json": manifests,
        "measure.json": lambda: [json.loads(path.read_text()) for path in sorted(MEASURED.glob("*.json"))],
    }.get(name, lambda: READERS[name][1])
    write = as_json if name.endswith(".json") else as_toml
    return st.deferred(lambda: damaged_document(whole()).map(write))


def launches(*endings: str) -> st.SearchStrategy[str]:
    """Launch files with these endings."""
    from tests.frameworks.test_damage import FILES

    return damaged_text([text for name, text in FILES.items() if name.endswith(endings)])


def reinforced() -> st.SearchStrategy[str]:
    """Launches of reinforcement learning, of which a section is asked for."""
    from tests.frameworks.verl.test_config import fsdp, megatron

    return damaged_text([fsdp(), megatron()])


def logs() -> st.SearchStrategy[str]:
    from tests.diagnose.written import PROGRAMS, text

    times = [1.0 + 0.01 * (number % 3) for number in range(14)]
    return damaged_text([text(lines(times)) for lines in PROGRAMS.values()])


def tables() -> st.SearchStrategy[str]:
    from tests.catalog.readers.test_damage import RUNS

    more = "id,model,gpu,gpus,tp,pp,micro_batch,global_batch,seq_len,recompute,mem_gb,status,step_time_s,stack,notes\n"
    more += "a,llama3-8b,H100-SXM,64,2,1,1,256,8192,full,61.5,ok,5.1,megatron-core,x\n" * 2
    return damaged_text([RUNS, more])


def own_texts() -> st.SearchStrategy[tuple[str, str]]:
    """A table of runs; or a log with the script that started it, whole or damaged."""
    from tests.frameworks.launches import ARRAYS, SLURM

    scripts = st.one_of(st.sampled_from((Path(SCRIPT).read_text(), SLURM, "x", "")), damaged_text([ARRAYS, SLURM]))
    return st.one_of(st.tuples(tables(), st.just("")), st.tuples(logs(), scripts))


def batch_scripts() -> st.SearchStrategy[str]:
    from tests.frameworks.launches import HYDRA_COMMAND, READ_DOCUMENT, SLURM

    own = "#!/bin/bash\n#SBATCH -A me -t 1-0 --gres=gpu:8\nmodule load cuda\nsrun --container-image='a b' x\n"
    return damaged_text([own, SLURM, HYDRA_COMMAND, READ_DOCUMENT])


def pastes() -> st.SearchStrategy[str]:
    """Launch files and logs as they are pasted: bare, with `==> name <==` between them, or as JSON."""
    one = st.one_of(launches(""), logs(), tables(), st.sampled_from(HOSTILE))
    name = st.sampled_from(("a.sh", "b.log", "c.yaml", "../d", *HOSTILE))
    files = st.lists(st.tuples(name, one).map(list), max_size=3)
    return st.one_of(
        one,
        files.map(lambda found: json.dumps({"pasted": found})),
        files.map(lambda found: "\n".join(f"==> {name} <==\n{text}" for name, text in found)),
    )


def quotes() -> st.SearchStrategy[str]:
    return damaged_text([(ROOT / "examples" / "quotes.csv").read_text()])


def portfolios() -> st.SearchStrategy[str]:
    head = "model,tokens,seq_len,global_batch,by\n"
    return damaged_text([head + "llama3-8b,15e12,8192,512,90d\ngpt3,300e9,2048,1536,2027-01-01\n"])


def network(pattern: str) -> st.SearchStrategy[str]:
    from tests.catalog.readers.test_damage import DATA

    return damaged_text([path.read_text() for path in sorted(DATA.glob(pattern))])


# The command line


@contextmanager
def no_search() -> Iterator[None]:
    """Everything up to the first plan that would be priced or enumerated."""
    from optimizer.objectives.layer.layer_costs import LayerCosts
    from optimizer.search.lattice.enumerate import Space

    def stop(*_: object, **__: object) -> None:
        raise click.exceptions.Exit(0)

    with mock.patch.object(LayerCosts, "__init__", stop), mock.patch.object(Space, "__init__", stop):
        yield


def command(arguments: list[str], folder: Path) -> object:
    """Enter by the command line."""
    return _entered(arguments, folder, no_search())


def page(arguments: list[str], folder: Path) -> object:
    """Enter by the command line and go to the end, where the report is a page."""
    return _entered([*arguments, "--html", "report.html"], folder, nullcontext())


def _entered(arguments: list[str], folder: Path, as_far: AbstractContextManager[None]) -> object:
    from optimizer.cli import cli

    before = os.getcwd()
    os.chdir(folder)
    try:
        with as_far:
            found = CliRunner().invoke(cli, arguments, prog_name="optimize", input="")
    finally:
        os.chdir(before)
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    if found.exit_code not in OPEN or "internal error" in found.stderr:
        raise Trouble(f"exit code {found.exit_code}: {found.stderr:.600}")
    if found.exit_code == 2 and len(found.stderr.encode()) > LONGEST_MESSAGE:
        raise Trouble(f"a message of {len(found.stderr.encode()):,} bytes: {found.stderr:.300}")
    if "\x1b" in found.stderr or "NaN" in found.stdout:
        raise Trouble("an escape sequence or NaN in the output")
    return None


def options(*words: str, values: Mapping[str, tuple[str, ...]]) -> st.SearchStrategy[list[str]]:
    """A command with some of its options, most of them in order and some of them odd."""
    odd = st.sampled_from((*NUMBERS, *HOSTILE))
    pairs = [
        st.tuples(st.just(name), st.one_of(st.sampled_from(good), odd) if good else odd)
        for name, good in values.items()
    ]
    return st.lists(st.one_of(pairs), max_size=4).map(
        lambda found: [*words, *(part for name, value in found for part in ((name, value) if value else (name, "")))]
    )


def addresses(
    said: list[tuple[str, str]], values: Mapping[str, tuple[str, ...]]
) -> st.SearchStrategy[list[tuple[str, str]]]:
    """Names and values as an address of the page gives them, after those that are always said."""
    odd = st.sampled_from((*NUMBERS, *HOSTILE))
    pairs = [st.tuples(st.just(name), st.one_of(st.sampled_from(good), odd)) for name, good in values.items()]
    return st.lists(st.one_of(*pairs, st.tuples(odd, odd)), max_size=6).map(lambda found: [*said, *found])


def _named(name: str, pairs: list[tuple[str, str]]) -> tuple[str, list[tuple[str, str]]]:
    return name, pairs


ROOT = Path(__file__).resolve().parents[2]
SCRIPT, LOG, QUOTES = (str(ROOT / "examples" / name) for name in ("llama3-8b.sh", "slow-run.log", "quotes.csv"))
RUNS_TABLE = str(Path(__file__).with_name("runs.csv"))
JOB: Mapping[str, tuple[str, ...]] = {
    "--model": ("llama3-8b",),
    "--gpus": ("8", "64"),
    "--cluster": ("dgx-h100",),
    "--device": ("h100", "a100-80"),
    "--stack": ("megatron-core", "megatron-core@any", "megatron-core@0.12", "megatron-core@", "@0.12", "nemo@25.04@1"),
    "--seq-len": ("2048",),
    "--global-batch": ("64",),
    "--dtype": ("bf16", "fp8", "any", "bf16,fp8"),
    "--hbm-limit": ("75GB", "1 B", "1e30 GB"),
    "--oom-risk": ("10%", "0.5"),
    "--fix": (
        "tp=2",
        "pp=2..8",
        "vpp=1,6",
        "layout=even",
        "layers=16,16",
        "recompute=full",
        "dp=1..",
        "tp=..",
        "hosted_weights=on",
        "hosted_weights=2",
    ),
    "--routing": ("forced", "1.3", "0.1"),
    "--train": (
        "full",
        "lora",
        "lora:64",
        "lora:8:q_proj,down_proj",
        "lora::",
        "qlora:16:all",
        "dora",
        "frozen:vision",
        "frozen:embedding,head,layers.0--3",
        "frozen:layers.9-1",
        "frozen:",
    ),
    "--base": ("bf16", "nf4", "mxfp4"),
    "--optimizer": ("adamw", "muon", "paged-adamw-8bit", "sgd", "adamw:in-backward", "lion:", ":in-backward"),
    "--loss": (
        "sft",
        "dpo",
        "kto",
        "reward",
        "distillation:llama3-8b",
        "distillation:",
        "dpo:x",
        "distillation:/dev/zero",
    ),
    "--lengths": ("700", "700:300", "p50:400,p95:1900", "p50:400,p95:1", "700:", "p50:0,p95:0", "-1:2", "1e400:1"),
    "--packing": ("on", "off"),
    "--runs": (RUNS_TABLE, f"{LOG},{SCRIPT}", f"{LOG},{LOG}", f"{SCRIPT},", ",,", f"{RUNS_TABLE},{RUNS_TABLE}"),
    "--set": (
        "layers=4",
        "device.memory=96GB",
        "stack.launch=6e-6",
        "rail.bandwidth=1 Gb/s",
        "hidden=0",
        "experts.count=8",
    ),
}
PLAN = JOB | {
    "--target": ("any", "megatron-lm"),
    "--bubble-ceiling": ("10%",),
    "--max-tp": ("8",),
    "--max-micro-batch": ("4",),
    "--max-vpp": ("4",),
    "--min-cp-tokens": ("2048",),
    "--vocab-padding": ("0.25",),
    "--top": ("3",),
    "--within": ("3%",),
    "--trials": ("0",),
    "--time-limit": ("5",),
    "--seed": ("1",),
    "--prefer": ("expected", "fast"),
    "--try-cost": ("30min", "0", "1e9"),
    "--minimize": ("energy", "cost"),
    "--flex": ("batch=5%", "batch=", "seq=1"),
    "--why-not": ("tp=4,pp=8",),
    "--export": ("out",),
    "--like": (SCRIPT,),
    "--samples": ("50k",),
    "--epochs": ("3",),
    "--tokens": ("1e12",),
}
ADDRESS = {
    **{"model": ("gpt3", "llama3-8b"), "gpus": ("64", "1k"), "fix": ("tp=8", "pp=2..8"), "mine": ("tp=8,pp=8",)},
    **{"lock.tp": ("8",), "seq_len": ("8k",), "global_batch": ("512",), "device": ("h100",), "dtype": ("fp8",)},
    **{"cluster": ("dgx-h100",), "stack": ("megatron-core",), "oom_risk": ("10%",), "hbm_limit": ("75GB",)},
    **{"set": ("layers=4",), "routing": ("1.3",), "bubble_ceiling": ("10%",), "show": ("map",)},
}
# What stands in the address of each tab; what is in the first of a pair is always said, so that answers take no time.
TABS: Mapping[str, tuple[list[tuple[str, str]], Mapping[str, tuple[str, ...]]]] = {
    "plan": (
        [("model", "llama3-8b"), ("gpus", "8")],
        {
            **ADDRESS,
            **{"train": ("lora", "qlora:8"), "base": ("nf4",), "optimizer": ("muon", "sgd"), "minimize": ("cost",)},
            **{"tokens": ("1e12",), "price": ("2",), "prefer": ("fast",), "runs": ("file",), "model": ("llama3-8b",)},
            **{"runs_file": ("",), "model_file": ("",), "cluster_file": ("eJwrSS0uAQAEXQHB",), "gpus": ("1", "16")},
        },
    ),
    "fits": (
        [("model", "llama3-8b"), ("gpus", "1"), ("context", "2048")],
        {
            **{"cluster": ("h100", "rtx-4090"), "gpus": ("1", "8"), "context": ("2048:8192", "8k,2k")},
            **{"global-batch": ("64",), "dtype": ("bf16", "fp8"), "oom-risk": ("10%",)},
        },
    ),
    "improve": ([("gpus", "64")], {"model": ("gpt3",), "cluster": ("h100",), "plan": ("gpus=8",), "files": ("eJw",)}),
    "buy": (
        [("model", "llama3-8b"), ("tokens", "1e12"), ("hardware", "h100"), ("gpus", "8")],
        {
            **{"deadline": ("30d",), "budget": ("200M",), "power": ("1MW",), "racks": ("4",), "buy": ("yes",)},
            **{"term": ("spot",), "provider": ("aws",), "rent.h100": ("2.5",), "tokens": ("15T",), "gpus": ("8,16",)},
        },
    ),
    "learn": (
        [],
        {
            **{"act": ("1", "2", "5", "9"), "context": ("data parallel",), "question": ("x",), "key": ("y",)},
            **{"tp": ("4", "8"), "pp": ("2",), "gpus": ("64",), "micro_batch": ("1",), "seq": ("8192",)},
        },
    ),
}
SMALL = ("--model", "llama3-8b", "--gpus", "8")
STUDY = str(Path(__file__).with_name("study.toml"))
STUDIES = {
    "timeline": options("timeline", *SMALL, values=JOB | {"--layout": ("even", "best")}),
    "communication": options("communication", *SMALL, values=JOB | {"--strategy": ("dp", "tp"), "--network": ("ndr",)}),
    "scaling": options("scaling", *SMALL[:2], values=JOB | {"--gpus": ("8,16",), "--measured": ("64=38%",)}),
    "sensitivity": options("sensitivity", *SMALL, values=JOB | {"--lost-nodes": ("1", "1,2")}),
    "fits": options("fits", *SMALL[:2], values=JOB | {"--gpus": ("1", "8"), "--context": ("8k:1M", "2048", "1:1e9")}),
    "pareto": options(
        *("pareto", *SMALL[:2], "--tokens", "1e12", "--hardware", "h100"),
        values={
            **{"--gpus": ("8", "8:64:8", "8,16"), "--hardware": ("h100,a100-80",), "--tokens": ("15e12", "1T")},
            **{"--deadline": ("30d",), "--budget": ("200M",), "--power": ("1MW",), "--nic": ("400", "100:800")},
            **{"--hbm": ("80",), "--oversubscription": ("1,2",), "--rent": ("h100=2",), "--purchase": ("h100=30000",)},
            **{"--assume": ("pue=1.2",), "--seed": ("1",), "--trials": ("5",), "--dtype": ("bf16",), "--stack": ("x",)},
            **{"--since": (RUNS_TABLE, "x.json"), "--prices": (QUOTES,)},
        },
    ),
    "measure": options("measure", values={"--model": ("llama3-8b",), "--seconds": ("60",), "--seq-len": ("2048",)}),
    "presets": options("presets", "show", values={"h100": (), "gpt3": ()}),
    "batch show": options("batch", "show", values={"--store": ("x.db",), "--where": ("mfu>0.4",), "--rows": ("5",)}),
    "improve": options(
        *("improve", SCRIPT),
        values={
            **{"--model": ("llama3-8b",), "--gpus": ("64",), "--device": ("a100-80",), "--tokens": ("15T", "1e12")},
            **{
                "--price": ("2.5",),
                "--args": ("16 8", "'"),
                "--env": ("A=1", "A"),
                "--term": ("spot",),
                "--take": ("one",),
            },
            **{"--seq-len": ("4096",), "--global-batch": ("512",), "--hbm-limit": ("75GB",), "--flex": ("batch",)},
            **{"--section": ("actor",), "--runs": (RUNS_TABLE,), "--lengths": ("700:300",), "--stack": ("nemo@25.04",)},
        },
    ),
    "check": options(
        *("check", "--megatron-args", SCRIPT, "--model", "llama3-8b"),
        values={name: JOB[name] for name in ("--gpus", "--device", "--seq-len", "--dtype", "--oom-risk", "--fix")},
    ),
    "read": options(
        *("read", LOG),
        values={
            "--set": ("gpus=64", "gpu=h100", "tp=2", "x=1"),
            "--plan": ("-",),
            "--script": (SCRIPT,),
            "--cluster": (),
        },
    ),
    "prices": options("prices", values={"--device": ("h100",), "--prices": (QUOTES,), "--term": ("spot",)}),
    "calibrate": options(
        *("calibrate", "--runs", "x.csv"),
        values={"--stack": ("megatron-core",), "--evaluations": ("1",), "--out": ("y.toml",), "--keep": ("all",)},
    ),
    "calibrate-link": options(
        *("calibrate-link", LOG, "--link", "ndr"),
        values={"--ranks": ("8",), "--gpus-per-node": ("8",), "--kind": ("all_reduce",), "--scale-up": ("nvlink4",)},
    ),
    "batch": options(
        *("batch", STUDY, "--dry-run"),
        values={
            "--workers": ("2",),
            "--shard": ("1/8",),
            "--store": ("x.db",),
            "--term": ("spot",),
            "--address": ("a:1",),
        },
    ),
    "trial": options("trial", *SMALL, values=JOB | {"--plans": ("3",), "--steps": ("20",), "--out": ("t",)}),
}
# What leaves some points of a report, or all of them, without a plan.
SCARCE = {
    "--hbm-limit": ("1 B", "75GB"),
    "--bubble-ceiling": ("0.1%",),
    "--oom-risk": ("0.1%",),
    "--fix": ("tp=8", "pp=2"),
}
EACH = SCARCE | {
    "--seq-len": ("131072", "2048"),
    "--global-batch": ("1", "64"),
    "--dtype": ("any",),
    "--train": ("lora", "frozen:embedding,head,layers.0--3", "frozen:mlp", "qlora:8"),
    "--loss": ("dpo", "reward", "distillation:llama3-8b"),
    "--lengths": ("700:300",),
    "--packing": ("on",),
    "--optimizer": ("muon", "sgd"),
    "--runs": (RUNS_TABLE,),
    "--stack": ("megatron-core@0.12", "hf-2026", "nemo", "deepspeed"),
}
PAGES = {
    "plan": options(*SMALL, "--trials", "0", values=EACH | {"--gpus": ("1", "16"), "--within": ("3%",)}),
    "scaling": options(
        "scaling", *SMALL[:2], values=EACH | {"--gpus": ("1,8,16", "8,7", "1", "1,2"), "--measured": ("8=38%",)}
    ),
    "communication": options(
        "communication", *SMALL, values=EACH | {"--strategy": ("dp", "tp"), "--network": ("ndr",)}
    ),
    "fits": options("fits", *SMALL, values=EACH | {"--context": ("2048", "131072,2048", "1M")}),
    "timeline": options("timeline", *SMALL, values=EACH | {"--layout": ("even", "best")}),
    "sensitivity": options(
        *("sensitivity", *SMALL, "--fix", "pp=1", "--fix", "cp=1"), values=EACH | {"--lost-nodes": ("1", "8")}
    ),
}
DOORS = (
    Door(name="config.json", inputs=documents("config.json"), enter=read(model_file, "config.json")),
    Door(name="model.toml", inputs=documents("model.toml"), enter=read(model_file, "model.toml")),
    Door(name="cluster.toml", inputs=documents("cluster.toml"), enter=read(cluster_file, "cluster.toml")),
    Door(name="device.toml", inputs=documents("device.toml"), enter=read(device_file, "device.toml")),
    Door(name="stack.toml", inputs=documents("stack.toml"), enter=read(stack_file, "stack.toml")),
    Door(name="study.toml", inputs=documents("study.toml"), enter=read(study_file, "study.toml")),
    Door(name="answer", inputs=documents("answer.json"), enter=read(answer_file, "answer.json")),
    Door(name="measure.json", inputs=documents("measure.json"), enter=read(measured_file, "measure.json")),
    Door(name="runs.csv", inputs=tables(), enter=read(runs_file, "runs.csv")),
    Door(name="log", inputs=logs(), enter=read(log_file, "run.log")),
    Door(name="watched log", inputs=logs(), enter=watched),
    Door(name="nccl.txt", inputs=network("nccl*.txt"), enter=read(nccl_file, "nccl.txt")),
    Door(name="nccl.json", inputs=network("nccl*.json"), enter=read(nccl_file, "nccl.json")),
    Door(name="topo", inputs=network("topo*.txt"), enter=read(topo_file, "topo.txt")),
    Door(name="bash", inputs=launches(".sh"), enter=read(launch_file, "train.sh")),
    Door(name="verl", inputs=reinforced(), enter=read(partial(launch_file, section="actor"), "run.sh")),
    Door(name="yaml", inputs=launches(".yaml", ".yml"), enter=read(launch_file, "train.yaml")),
    Door(name="python", inputs=launches(".py"), enter=read(launch_file, "config_registry.py")),
    Door(name="torchtitan.toml", inputs=launches(".toml"), enter=read(launch_file, "train.toml")),
    Door(name="deepspeed.json", inputs=launches(".json"), enter=read(launch_file, "ds.json")),
    Door(name="quotes.csv", inputs=quotes(), enter=read(quotes_file, "quotes.csv")),
    Door(name="portfolio.csv", inputs=portfolios(), enter=read(portfolio_file, "portfolio.csv")),
    Door(name="trials.json", inputs=documents("trials.json"), enter=read(trials_file, "trials.json")),
    Door(name="address", inputs=addresses([], ADDRESS), enter=address),
    Door(name="own runs", inputs=own_texts(), enter=own_runs),
    Door(name="like", inputs=batch_scripts(), enter=read(batch_script, "own.sh")),
    Door(name="pasted", inputs=pastes(), enter=pasted),
    *(
        Door(name=f"/{name}", inputs=addresses(said, values).map(partial(_named, name)), enter=tab, cost=cost)
        for (name, (said, values)), cost in zip(TABS.items(), (5, 10, 1, 5, 2), strict=True)
    ),
    Door(name="options", inputs=options(*SMALL, values=PLAN), enter=command),
    *(Door(name=name, inputs=inputs, enter=command) for name, inputs in STUDIES.items()),
    *(
        Door(name=f"{name} page", inputs=inputs, enter=page, cost=10 if name == "fits" else 5)
        for name, inputs in PAGES.items()
    ),
)
