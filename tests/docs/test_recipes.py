"""The recipes of how-to-add, each followed in a copy of the program: what is added works, added where the page says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from typing import Any

import pytest

from maintain.docs.commands import ROOT
from maintain.docs.site import DOCS
from optimizer.catalog import device_names, model_names

PAGE = (DOCS / "how-to-add.md").read_text(encoding="utf-8")
RULE = '''"""Tensor groups of at most two."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.constraints.program import Program
from optimizer.constraints.rule import BoolArray
from optimizer.job.job import Job
from optimizer.job.plan import Plans


@dataclass(frozen=True, kw_only=True)
class Pairs:
    name: str = "pairs"
    variables: tuple[str, ...] = ("tp",)

    def check(self, job: Job, plans: Plans) -> BoolArray:
        return np.asarray(plans.tp <= 2)

    def post(self, job: Job, program: Program, literal: int) -> None:
        program.restrict("tp", [tp for tp in program.domains["tp"] if tp <= 2], literal)

    def explain(self, job: Job) -> str:
        return "tp must be at most 2, whatever the domain"
'''
SCHEDULE = '''"""GPipe: every forward pass, then every backward one (Huang et al., arXiv 1811.06965)."""

from optimizer.objectives.pipeline.schedule import BACKWARD, FORWARD, Pass, Schedule


def gpipe(pp, vpp, microbatches):
    stage = tuple(Pass(kind, 0, number) for kind in (FORWARD, BACKWARD) for number in range(microbatches))
    return (stage,) * pp


def in_flight(pp, vpp, stage):
    return 0 * (pp - stage) + 1e9


GPIPE = Schedule(name="gpipe", order=gpipe, in_flight=in_flight)
'''
FRAMEWORK = """    Framework(
        name="quill",
        stack="nanotron-2024",
    ),
"""
CONFIG = '''"""quill's JSON."""

from optimizer.frameworks.config.launch import rest, take, tied

DEGREES = {"tp": "quill.tp", "micro_batch": "quill.micro"}
KEYS = {"gpus": "quill.gpus", **DEGREES, "global_batch": "quill.batch"}


def recognised(values):
    return "quill.tp" in values


def read(launch, values):
    take(launch, values, KEYS)
    rest(launch, values, tuple(KEYS.values()))


def write(values, job, before, after, turned):
    return tied(DEGREES, before, after)
'''
LOG = '''"""Lines of quill."""

import re

from optimizer.frameworks.log_line import LogFormat, LogLine

STEP = re.compile(r"quill (\\d+): ([0-9.]+) s")


def read(text):
    match = STEP.search(text)
    return LogLine(step=int(match[1]), seconds=float(match[2])) if match else None


LOG = LogFormat(name="quill", marks=("quill ",), read=read)
'''
EXPORT = '''"""quill's JSON for a plan of replicas of tensor-parallel groups."""

import json

from optimizer.base.errors import InputError


def quill_json(answer):
    plan, job = answer.plan, answer.job
    if plan is None:
        raise InputError("there is no plan")
    if plan.tp * plan.dp != job.gpus:
        raise InputError("it lacks a pipeline and context parallelism")
    sizes = {"gpus": job.gpus, "tp": plan.tp, "micro": plan.micro_batch, "batch": job.global_batch}
    return json.dumps({"quill": sizes})
'''
CAUSE = """def with_checkpoints(question: Question, wait: float) -> float:
    return question.with_stack(step_overhead=question.job.stack["step_overhead"] + wait)


CHECKPOINTS = Cause(
    name="checkpoints",
    seconds=with_checkpoints,
    healthy=lambda question: 0.0,
    worst=lambda question: 10.0 * question.predicted,
    settings=lambda question: question.predicted * exponential(0.3, 10.0),
)


"""
CAUSE_WORDS = """[checkpoints]
label = "checkpoints"
why = "assumed"
says = "every step waits {setting:seconds} for a checkpoint"
test = { what = "20 steps without checkpoints", minutes = 1.0, shows = "the step is as predicted" }

"""
READS = '        config=by_keys("quill", quill, "quill JSON"),\n'
IMPORTS = "from optimizer.frameworks.primus.log import LOG as PRIMUS_LOG\n"
QUILL = '        name="quill",\n        stack="nanotron-2024",\n'
TERM = '''

def ring_bytes(layer_costs: LayerCosts, kind: str) -> FloatArray:
    """Rings that a communicator keeps for each layer [B]: 64 MB. Source: made up."""
    return np.full(len(layer_costs), 64e6 * (kind in LAYERS))


'''
MOST_PP = '[max_pp]\nkind = "whole"\nhelp = "Most pipeline stages."\ndefault = 4096\nlimit = "max_pp"\n\n'
DRIVER = '    "driver_memory": (0.0, 0.0, 8e9, "B", "what the driver takes besides its context"),\n'
OBJECTIVE = '''"""The carbon of a step, at 0.4 kg for a kilowatt-hour."""

from optimizer.objectives.minimised import energy
from optimizer.objectives.objective import Objective

INTENSITY = 0.4 / 3.6e6  # kg/J


def phases(layer_costs):
    return {phase: INTENSITY * watts for phase, watts in energy.phases(layer_costs).items()}


OBJECTIVE = Objective(
    name="carbon",
    label="carbon",
    unit="kg",
    about="of the energy of a step",
    rate=lambda job: INTENSITY * energy.watts(job),
    phases=phases,
)
'''
# By recipe: the text of a new file, or what stands in a file and what then follows it.
RECIPES: dict[str, dict[str, str | tuple[tuple[str, str], ...]]] = {
    "An option": {
        "optimizer/job/fields.toml": (('limit = "max_vpp"\n\n', MOST_PP),),
        "optimizer/job/job.py": (
            (
                '    max_vpp: int = LIMITS["max_vpp"].default  # most virtual stages of a stage\n',
                '    max_pp: int = LIMITS["max_pp"].default  # most pipeline stages\n',
            ),
        ),
        "optimizer/api.py": (("    max_vpp: int | None = None,\n", "    max_pp: int | None = None,\n"),),
        "optimizer/constraints/space.py": (
            ("if pp <= (1 if job.method.layers else model.layers)", " and pp <= limits.max_pp"),
        ),
    },
    "A stack parameter": {
        "optimizer/job/stack.py": (("_PARAMETERS: Mapping[str, tuple[float, float, float, str, str]] = {\n", DRIVER),),
        "optimizer/job/job.py": (
            ('self.cluster.device.memory) - self.stack["context_memory"]', ' - self.stack["driver_memory"]'),
        ),
    },
    "A rule": {
        "optimizer/constraints/rules/NAME.py": RULE,
        "optimizer/constraints/rules/every.py": (
            ("from optimizer.constraints.pins import pins\n", "from optimizer.constraints.rules.pairs import Pairs\n"),
            ("    KvHeads(),\n", "    Pairs(),\n"),
        ),
    },
    "A pipeline schedule": {
        "optimizer/objectives/pipeline/NAME.py": SCHEDULE,
        "optimizer/job/variables.py": (('"zero-bubble-2p", "dualpipe"', ', "gpipe"'),),
        "optimizer/objectives/pipeline/schedules.py": (
            ("from __future__ import annotations\n", "from optimizer.objectives.pipeline.gpipe import GPIPE\n"),
            ("ZERO_BUBBLE_2P, DUALPIPE", ", GPIPE"),
        ),
    },
    "A memory term": {
        "optimizer/objectives/step/memory_terms.py": (
            ("    return rate * dynamic\n", TERM),
            (
                "    term.name: term\n    for term in (\n",
                '        memory_term("rings", "rings", per_layer=ring_bytes, fragments=True),\n',
            ),
        ),
    },
    "A collective": {
        "optimizer/objectives/network/collectives.py": (
            ('KINDS = ("all_reduce",', ' "broadcast",'),
            ('factor = {"all_reduce": 2.0', ', "broadcast": 4 / 3'),
        ),
        "optimizer/studies/communication_report.py": (
            ('    "all_reduce": "all-reduce",\n', '    "broadcast": "broadcast",\n'),
        ),
        "optimizer/catalog/readers/nccl_tests.py": (
            ('    "allreduce": "all_reduce",\n', '    "broadcast": "broadcast",\n'),
        ),
    },
    "An objective": {
        "optimizer/objectives/minimised/NAME.py": OBJECTIVE,
        "optimizer/job/fields.toml": (('choices = ["time", "energy", "cost"', ', "carbon"'),),
    },
    "A framework": {
        "optimizer/frameworks/every.py": (("EVERY: tuple[Framework, ...] = (\n", FRAMEWORK),),
    },
    "A launch reader": {
        "optimizer/frameworks/NAME/config.py": CONFIG,
        "optimizer/frameworks/every.py": (
            (IMPORTS, "from optimizer.frameworks.quill import config as quill\n"),
            (QUILL, READS),
        ),
    },
    "A log format": {
        "optimizer/frameworks/NAME/log.py": LOG,
        "optimizer/frameworks/every.py": (
            (IMPORTS, "from optimizer.frameworks.quill.log import LOG as QUILL_LOG\n"),
            (QUILL, "        log=QUILL_LOG,\n"),
        ),
    },
    "An export": {
        "optimizer/frameworks/NAME/export.py": EXPORT,
        "optimizer/frameworks/every.py": (
            (IMPORTS, "from optimizer.frameworks.quill.export import quill_json\n"),
            (QUILL, '        targets={"quill": ExportFiles(files={"quill.json": quill_json})},\n'),
        ),
        "presets/launchers/targets.toml": (
            ('[megatron-bridge]\nlike = "megatron-lm"\n', '\n[quill]\nlike = "torchtitan"\n'),
        ),
    },
    "A cause of slow runs": {
        "optimizer/diagnose/causes/every.py": (
            ("LONGEST_WAIT, USUAL_WAIT = 10.0, 0.3  # of the predicted step\n\n\n", CAUSE),
            ("CAUSES: tuple[Cause, ...] = (", "CHECKPOINTS, "),
        ),
        "optimizer/diagnose/causes/causes.toml": (("loaders = { some = 0.95, none = 0.05 }\n\n", CAUSE_WORDS),),
    },
}
NAMES = {
    "A rule": "pairs",
    "A pipeline schedule": "gpipe",
    "An objective": "carbon",
    **dict.fromkeys(("A framework", "A launch reader", "A log format", "An export"), "quill"),
}
PRESETS = {
    "A device": {"presets/devices.csv": ("h200", "chip"), "presets/clusters.csv": ("dgx-h200", "dgx-chip")},
    "A model": {"presets/models/llama.csv": ("llama1-7b", "own-7b")},
}
LOOK = """
import importlib, json, os
from dataclasses import replace
from pathlib import Path
from click.testing import CliRunner
from optimizer import InputError, plan
from optimizer.catalog.readers.stack_file import read_stack
from optimizer.cli import cli
from optimizer.commands.study.batch import make_job
from optimizer.constraints.space import domains
from optimizer.job.fields import FIELDS
from optimizer.job.job import Limits
from optimizer.sweep.expansion import tasks_of
from optimizer.sweep.study_file import read_study
from optimizer.diagnose.log import read_log
from optimizer.frameworks.export_folder import exported
from optimizer.frameworks.launch_as_read import Controls, launch_as_read
from optimizer.frameworks.files import read_files
from optimizer.frameworks.read import read_launch
from optimizer.objectives.network.collectives import KINDS, collective_time, volume_per_rank
from optimizer.objectives.network.topology import span
from optimizer.objectives.pipeline import schedules
from optimizer.reports.plan_report import plan_report
from optimizer.reports.render.screen import screen_text
from optimizer.catalog import device_names, load_cluster, load_model, model_names
from optimizer.catalog.readers.nccl_tests import _KINDS
from optimizer.job.stack import Features
from optimizer.objectives.step.explain import explain
from optimizer.search.layouts.solve.layout import best_assignment
from optimizer.search.layouts.problem import layout_problem
from tests.constraints.test_rules import test_check_equals_post_on_every_plan
from tests.search.jobs import small_job


def causes_of_slow_run():
    from click.testing import CliRunner

    from maintain.docs.commands import ROOT
    from optimizer.cli import cli

    with open("answer.json", "w") as file:
        json.dump(plan(model="llama3-8b", gpus=64, trials=0, top=0).to_dict(), file)
    log = str(ROOT / "examples" / "slow-run.log")
    read = CliRunner().invoke(cli, ["read", log, "--plan", "answer.json", "--json"])
    return [cause["name"] for cause in json.loads(read.stdout)["diagnosis"]["causes"]]
def launched(*arguments):
    source = read_launch(read_files(arguments))
    return source, launch_as_read(source.launch, Controls(model="own-7b", device="chip"), arguments[0])

def typed(*words):
    job = ("--model", "own-7b", "--device", "chip", "--gpus", "8", "--global-batch", "16", "--trials", "0", "--json")
    return CliRunner().invoke(cli, [*job, *words])

def problem(**limits):
    try:
        return replace(small_job(8), limits=Limits(**limits)) and ""
    except InputError as error:
        return str(error)

asked = dict(model="own-7b", device="chip", gpus=8, global_batch=16, trials=0, top=0)
limited = plan(**asked, max_pp=2)
study = Path("most.toml")
study.write_text('models = "own-7b"\\ndevices = "chip"\\ngpus = 8\\nmax-pp = [2, 4]\\n')
tasks = tasks_of(read_study(study), make_job, "v1")
option = {
    "python": [limited.job.limits.max_pp, *(max(domains(job)["pp"]) for job in (limited.job, small_job(8)))],
    "command": json.loads(typed("--max-pp", "2").stdout)["job"]["limits"]["max_pp"],
    "help": "--max-pp N" in CliRunner().invoke(cli, ["--help-all"]).stdout and FIELDS["max_pp"].described,
    "study": [task.job.limits.max_pp for task in tasks],
    "refused": [typed("--max-pp", "0").exit_code, problem(max_pp=0)],
}
folder = Path("config", "mfu-optimizer")
folder.mkdir(parents=True)
(folder / "defaults.toml").write_text("max-pp = 2\\n")
os.environ["XDG_CONFIG_HOME"] = str(Path("config").resolve())
usual = json.loads(typed().stdout)
told = [text.partition(",")[0] for text in usual["assumptions"] if "max-pp" in text]
option["defaults"] = [usual["job"]["limits"]["max_pp"], told]
del os.environ["XDG_CONFIG_HOME"]
Path("mine.toml").write_text('[features]\\n[parameters]\\ndriver_memory = 2e9\\n')
changed = json.loads(typed("--set", "stack.driver_memory=1e9").stdout)
parameter = {
    "file": [read_stack("mine.toml")["driver_memory"], small_job(8).stack["driver_memory"]],
    "usable": small_job(8).usable_memory - replace(small_job(8), stack=read_stack("mine.toml")).usable_memory,
    "set": changed["job"]["settings"],
    "refused": typed("--set", "stack.driver_memory=9e9").stderr,
}
found, broken = plan(**asked), plan(**asked, fix={"tp": 4})
test_check_equals_post_on_every_plan("dense", 8)
offered = Features(schedules=("1f1b", "gpipe"))
piped = plan(small_job(8, features=offered, fixed={"pp": 2, "schedule": "gpipe"}), trials=0)
least = {name: plan(**asked, minimize=name) for name in ("energy", "carbon")}
cluster = load_cluster("dgx-chip")
group = span(cluster, 4, 1)
kinds = ("broadcast", "all_gather")
Path("quill.json").write_text(exported(found).texts["quill.json"])
source, named = launched("quill.json")
changes = source.changes(named.job, named.plan, replace(named.plan, micro_batch=named.plan.micro_batch + 1), {})
edited = [next(source.edited(changes))["quill.json"].decode(), named.plan.micro_batch + 1]
Path("quill.log").write_text("".join(f"quill {step}: 2.5 s\\n" for step in range(1, 9)))
(run,) = read_log("quill.log")
aimed_plan = plan(**asked, target="quill", fix={"pp": 1, "cp": 1})
rings = next(term for term in explain(found.job, found.plan) if term.name == "rings")
layout = best_assignment(layout_problem(found.job, found.plan, found.knobs))
seconds = [float(collective_time(kind, 1e9, group, cluster)) for kind in kinds]
seen = {
    "option": option,
    "parameter": parameter,
    "tp": found.plan.tp,
    "device": found.job.cluster.device.name,
    "clashes": {clash.rule: clash.reason for clash in broken.conflict},
    "schedule": piped.plan.schedule,
    "passes": ["".join(each.kind for each in stage) for stage in schedules.schedule_order("gpipe", 2, 1, 2)],
    "unsaid": sorted(exported(piped).refused),
    "sent": float(volume_per_rank("broadcast", 3e9, 4)),
    "seconds": seconds,
    "rings": [found.estimate.memory["rings"], rings.value, rings.formula, rings.source],
    "layers_held": max(layout.layers_per_stage),
    "peaks": [found.estimate.reserved, max(layout.memory)],
    "kinds": "broadcast" in KINDS and "broadcast" in _KINDS,
    "read": [named.framework.name, named.plan.tp, named.plan.dp, named.job.global_batch],
    "edited": edited,
    "logged": [run.program.name, [record.reading.seconds for record in run.records]],
    "exported": [found.plan.tp, found.plan.dp, *exported(found).texts],
    "targeted": [*aimed_plan.plan.summary().split(), *exported(aimed_plan).texts],
    "counts": [len(device_names()), len(model_names())],
    "layers": load_model("own-7b").layers,
    "causes": causes_of_slow_run(),
    "least": {name: [answer.certificate.best, answer.plan.summary(), answer.status] for name, answer in least.items()},
    "carbon": least["carbon"].to_dict()["certificate"],
    "report": screen_text(plan_report(least["carbon"])),
}
importlib.import_module("optimizer.job.plan").SCHEDULES += ("forgotten",)
try:
    importlib.reload(schedules)
except KeyError as error:
    seen["forgotten"] = str(error)
print(json.dumps(seen))
"""


def section(title: str) -> str:
    """A recipe's part of the page."""
    return re.split(r"^## ", PAGE.partition(f"## {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is seen of a copy in which every recipe was followed."""
    copy = tmp_path_factory.mktemp("copy")
    for folder in ("optimizer", "presets"):
        shutil.copytree(ROOT / folder, copy / folder)
    shutil.copy(ROOT / "pyproject.toml", copy)
    for title, edits in RECIPES.items():
        for place, texts in edits.items():
            path = copy / place.replace("NAME", NAMES.get(title, ""))
            held = texts if isinstance(texts, str) else path.read_text(encoding="utf-8")
            for mark, text in () if isinstance(texts, str) else texts:
                assert held.count(mark) == 1, f"{place}: {mark}"
                held = held.replace(mark, mark + text)
            path.parent.mkdir(exist_ok=True)
            path.write_text(held, encoding="utf-8")
    for tables in PRESETS.values():
        for place, (old, new) in tables.items():
            path = copy / place
            lines = path.read_text(encoding="utf-8").splitlines()
            rows = [line for line in lines if line.startswith(f"{old},") and ",alias," not in line]
            more = "\n".join(rows).replace(old, new).replace("h200", "chip").replace(",llama-7b,", ",,")
            path.write_text("\n".join([*lines, more, ""]), encoding="utf-8")
    script, own = copy / "look.py", os.environ | {"PYTHONPATH": f"{copy}{os.pathsep}{ROOT}"}
    script.write_text(LOOK)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=own, cwd=copy, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("title", [*RECIPES, *PRESETS])
def test_the_page_names_every_file_that_was_touched(title: str) -> None:
    for place in (RECIPES | PRESETS)[title]:
        assert f"`{place}`" in section(title), place


def test_an_option_works_wherever_options_do(copied: dict[str, Any]) -> None:
    option = copied["option"]
    assert (option["python"], option["command"], option["study"]) == ([2, 2, 8], 2, [2, 4])
    assert option["help"] == "Most pipeline stages. [4096]"
    assert option["defaults"] == [2, ["--max-pp 2"]]
    assert option["refused"] == [2, "max_pp must be from 1 to 2,147,483,647, but got 0"]


def test_a_stack_parameter_is_read_set_bounded_and_used(copied: dict[str, Any]) -> None:
    parameter = copied["parameter"]
    assert parameter["file"] == [2e9, 0.0]
    assert parameter["usable"] == pytest.approx(2e9)
    assert parameter["set"] == ["stack.driver_memory=1e9"]
    assert "driver_memory: expected a number from 0 to 8e+09 [B], but got 9000000000" in parameter["refused"]


def test_a_rule_holds_in_both_readings_and_is_named_by_the_conflict(copied: dict[str, Any]) -> None:
    assert copied["tp"] <= 2
    assert copied["clashes"]["pairs"] == "tp must be at most 2, whatever the domain"


def test_a_schedule_runs_and_exports_that_do_not_know_it_refuse(copied: dict[str, Any]) -> None:
    assert copied["schedule"] == "gpipe"
    assert copied["passes"] == ["FFBB", "FFBB"]
    assert {"megatron.args", "torchtitan.toml"} <= set(copied["unsaid"])
    assert copied["forgotten"] == "'forgotten'"


def test_a_memory_term_is_priced_assigned_and_explained(copied: dict[str, Any]) -> None:
    priced, explained, formula, source = copied["rings"]
    assert priced == explained == pytest.approx(64e6 * copied["layers_held"])
    assert (formula, source) == ("total(layers * static)", "made up")
    assert copied["peaks"][0] == pytest.approx(copied["peaks"][1])


def test_a_collective_is_priced_as_its_factor_and_one_pass_round_a_ring(copied: dict[str, Any]) -> None:
    assert copied["sent"] == pytest.approx(3e9)
    assert copied["seconds"][0] == pytest.approx(copied["seconds"][1])
    assert copied["kinds"]


def test_a_cause_is_weighed(copied: dict[str, Any]) -> None:
    assert "checkpoints" in copied["causes"]


def test_a_launch_of_a_framework_is_read_and_edited(copied: dict[str, Any]) -> None:
    tp, dp, *_ = copied["exported"]
    assert copied["read"] == ["quill", tp, dp, 16]
    text, micro = copied["edited"]
    assert json.loads(text)["quill"]["micro"] == micro


def test_a_log_of_a_framework_is_read(copied: dict[str, Any]) -> None:
    assert copied["logged"] == ["quill", [2.5] * 8]


def test_an_objective_is_minimised_and_proven(copied: dict[str, Any]) -> None:
    (joule, plan, _), (kilogram, same, status) = copied["least"]["energy"], copied["least"]["carbon"]
    assert (status, same) == ("optimal", plan)
    assert kilogram == pytest.approx(joule * 0.4 / 3.6e6)
    assert (copied["carbon"]["unit"], copied["carbon"]["best"]) == ("kg", kilogram)
    assert copied["carbon"]["lower_bound"] == pytest.approx(kilogram)
    line = f"minimises expected carbon: {kilogram:.3g} kg per step (of the energy of a step, with what moving parts"
    assert line in " ".join(copied["report"].split())


def test_an_export_is_written_and_alone_for_its_target(copied: dict[str, Any]) -> None:
    assert {"quill.json", "megatron.args"} <= set(copied["exported"])
    assert copied["targeted"][-1] == "quill.json"
    assert "megatron.args" not in copied["targeted"]


def test_a_device_and_a_model_are_found_and_counted(copied: dict[str, Any]) -> None:
    assert (copied["device"], copied["layers"]) == ("chip", 32)
    assert copied["counts"] == [len(device_names()) + 1, len(model_names()) + 1]
    for name, counted in (("hardware", "len(device_names()) =="), ("models", "len(NAMES) ==")):
        assert counted in (ROOT / f"tests/catalog/test_{name}.py").read_text(encoding="utf-8")
