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
EXPORT = '''"""The degrees of a plan."""

from optimizer.base.errors import InputError


def degrees(answer):
    if answer.plan is None:
        raise InputError("there is no plan")
    return f"tp={answer.plan.tp} pp={answer.plan.pp}\\n"
'''
OBJECTIVE = '''"""The carbon of a step, at 0.4 kg for a kilowatt-hour."""

from optimizer.objectives.minimised import energy
from optimizer.objectives.objective import Objective

INTENSITY = 0.4 / 3.6e6  # kg/J


def phases(bill):
    return {phase: INTENSITY * watts for phase, watts in energy.phases(bill).items()}


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
    "A rule": {
        "optimizer/constraints/NAME.py": RULE,
        "optimizer/constraints/rules/every.py": (
            ("from optimizer.constraints.pins import pins\n", "from optimizer.constraints.pairs import Pairs\n"),
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
    "A collective": {
        "optimizer/objectives/network/collectives.py": (
            ('KINDS = ("all_reduce",', ' "broadcast",'),
            ('factor = {"all_reduce": 2.0', ', "broadcast": 4 / 3'),
        ),
        "optimizer/studies/report/communication.py": (
            ('    "all_reduce": "all-reduce",\n', '    "broadcast": "broadcast",\n'),
        ),
        "optimizer/catalog/readers/nccl_tests.py": (
            ('    "allreduce": "all_reduce",\n', '    "broadcast": "broadcast",\n'),
        ),
    },
    "An objective": {
        "optimizer/objectives/minimised/NAME.py": OBJECTIVE,
        "optimizer/objectives/minimised/registry.py": (('"energy", "cost"', ', "carbon"'),),
    },
    "An export": {
        "optimizer/exports/NAME.py": EXPORT,
        "optimizer/exports/folder.py": (
            ("from __future__ import annotations\n", "from optimizer.exports.degrees import degrees\n"),
            ('    "megatron.args": _arguments,\n', '    "degrees.txt": degrees,\n'),
            ('"megatron-lm": ("megatron.args",', ' "degrees.txt",'),
        ),
    },
}
NAMES = {"A rule": "pairs", "A pipeline schedule": "gpipe", "An export": "degrees", "An objective": "carbon"}
PRESETS = {
    "A device": {"presets/devices.csv": ("h200", "chip"), "presets/clusters.csv": ("dgx-h200", "dgx-chip")},
    "A model": {"presets/models/llama.csv": ("llama1-7b", "own-7b")},
}
LOOK = """
import importlib, json
from optimizer import plan
from optimizer.exports.folder import exported
from optimizer.objectives.network.collectives import KINDS, collective_time, volume_per_rank
from optimizer.objectives.network.topology import span
from optimizer.objectives.pipeline import schedules
from optimizer.reports.plan_report import plan_report
from optimizer.reports.screen import screen_text
from optimizer.catalog import device_names, load_cluster, load_model, model_names
from optimizer.catalog.readers.nccl_tests import _KINDS
from optimizer.job.stack import Features
from tests.constraints.test_rules import test_check_equals_post_on_every_plan
from tests.search.jobs import small_job

asked = dict(model="own-7b", device="chip", gpus=8, global_batch=16, trials=0, top=0)
found, broken = plan(**asked), plan(**asked, fix={"tp": 4})
test_check_equals_post_on_every_plan("dense", 8)
offered = Features(schedules=("1f1b", "gpipe"))
piped = plan(small_job(8, features=offered, fixed={"pp": 2, "schedule": "gpipe"}), trials=0)
least = {name: plan(**asked, minimize=name) for name in ("energy", "carbon")}
cluster = load_cluster("dgx-chip")
group = span(cluster, 4, 1)
kinds = ("broadcast", "all_gather")
seconds = [float(collective_time(kind, 1e9, group, cluster)) for kind in kinds]
seen = {
    "tp": found.plan.tp,
    "device": found.job.cluster.device.name,
    "clashes": {clash.rule: clash.reason for clash in broken.conflict},
    "schedule": piped.plan.schedule,
    "passes": ["".join(each.kind for each in stage) for stage in schedules.schedule_order("gpipe", 2, 1, 2)],
    "unsaid": sorted(exported(piped).refused),
    "sent": float(volume_per_rank("broadcast", 3e9, 4)),
    "seconds": seconds,
    "kinds": "broadcast" in KINDS and "broadcast" in _KINDS,
    "text": exported(found).texts["degrees.txt"],
    "counts": [len(device_names()), len(model_names())],
    "layers": load_model("own-7b").layers,
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


def test_a_rule_holds_in_both_readings_and_is_named_by_the_conflict(copied: dict[str, Any]) -> None:
    assert copied["tp"] <= 2
    assert copied["clashes"]["pairs"] == "tp must be at most 2, whatever the domain"


def test_a_schedule_runs_and_exports_that_do_not_know_it_refuse(copied: dict[str, Any]) -> None:
    assert copied["schedule"] == "gpipe"
    assert copied["passes"] == ["FFBB", "FFBB"]
    assert {"megatron.args", "torchtitan.toml"} <= set(copied["unsaid"])
    assert copied["forgotten"] == "'forgotten'"


def test_a_collective_is_priced_as_its_factor_and_one_pass_round_a_ring(copied: dict[str, Any]) -> None:
    assert copied["sent"] == pytest.approx(3e9)
    assert copied["seconds"][0] == pytest.approx(copied["seconds"][1])
    assert copied["kinds"]


def test_an_objective_is_minimised_and_proven(copied: dict[str, Any]) -> None:
    (joule, plan, _), (kilogram, same, status) = copied["least"]["energy"], copied["least"]["carbon"]
    assert (status, same) == ("optimal", plan)
    assert kilogram == pytest.approx(joule * 0.4 / 3.6e6)
    assert (copied["carbon"]["unit"], copied["carbon"]["best"]) == ("kg", kilogram)
    assert copied["carbon"]["lower_bound"] == pytest.approx(kilogram)
    assert f"minimises carbon: {kilogram:.3g} kg per step (of the energy of a step)" in copied["report"]


def test_an_export_is_written(copied: dict[str, Any]) -> None:
    assert copied["text"].startswith("tp=")


def test_a_device_and_a_model_are_found_and_counted(copied: dict[str, Any]) -> None:
    assert (copied["device"], copied["layers"]) == ("chip", 32)
    assert copied["counts"] == [len(device_names()) + 1, len(model_names()) + 1]
    for name, counted in (("hardware", "len(device_names()) =="), ("models", "len(NAMES) ==")):
        assert counted in (ROOT / f"tests/catalog/test_{name}.py").read_text(encoding="utf-8")
