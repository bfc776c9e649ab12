"""The registry of frameworks: names, stacks and targets that are there, and files that one of them alone takes."""

from __future__ import annotations

import pytest

from optimizer.catalog import family_names, stack_names
from optimizer.catalog.targets import launchers
from optimizer.frameworks.config.launch import ConfigLaunch
from optimizer.frameworks.every import EVERY, FRAMEWORKS, TARGETS
from optimizer.frameworks.export_folder import FILES
from optimizer.frameworks.files import File
from optimizer.frameworks.framework import Framework
from optimizer.frameworks.read import read_launch
from optimizer.frameworks.read_configs import config_of
from optimizer.job.plan import Plan
from tests.frameworks import launches


def test_every_target_has_files_and_every_file_a_target() -> None:
    assert set(TARGETS) == set(launchers())
    assert len(FRAMEWORKS) == len(EVERY)
    names = [name for files in TARGETS.values() for name in files.files if name not in files.companions]
    assert len(names) == len(set(names))
    assert set(names) < set(FILES)
    assert all(set(files.companions) < set(files.files) for files in TARGETS.values())


@pytest.mark.parametrize("framework", EVERY, ids=lambda framework: framework.name)
def test_what_a_record_names_is_there(framework: Framework) -> None:
    assert framework.stack in (*family_names(), *stack_names()) or not (framework.config or framework.stack)
    assert set(framework.only) <= set(Plan.__dataclass_fields__)
    assert set(framework.settable) <= {"dispatcher", "layers_per_stage", "offload", "bucket"}
    assert framework.log is None or framework.log.marks


def test_a_config_belongs_to_the_first_framework_that_recognises_it() -> None:
    for framework in (each for each in EVERY if each.config and each.name != "verl"):  # read by section alone
        (file, text), *_ = launches.SAMPLES[framework.name][0].items()
        source = read_launch([File(file, text.encode())], 64) if file.endswith(".sh") else None
        values = source.values if isinstance(source, ConfigLaunch) else config_of(File(file, text.encode())).values
        takes = [each.name for each in EVERY if each.config and each.config.recognised(values)]
        assert takes[0] == framework.name, takes
