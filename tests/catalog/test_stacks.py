"""Stack presets: every parameter within its bounds, every file's problems told at once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from optimizer.base.errors import InputError, InvalidFile, UnknownName
from optimizer.base.files import replace_file
from optimizer.calibration.least_squares import EDGE, RUNS_PER_PARAMETER
from optimizer.calibration.memory_fit import MEMORY_PARAMETERS
from optimizer.calibration.stack_file import stack_toml
from optimizer.catalog import load_stack, stack_names
from optimizer.catalog.files import presets_folder
from optimizer.catalog.readers.stack_file import read_stack
from optimizer.job.stack import PARAMETERS


@pytest.mark.parametrize("name", stack_names())
def test_presets_keep_to_the_bounds_and_name_their_source(name: str) -> None:
    stack = load_stack(name)
    assert stack.name == name
    fixed = {key: item.value for key, item in stack.fixed.items()}
    assert all(PARAMETERS[key].low <= value <= PARAMETERS[key].high for key, value in fixed.items())
    assert all(item.why for item in stack.fixed.values())
    assert stack.provenance.source != ""
    assert stack.provenance.date != ""


@pytest.mark.parametrize("name", stack_names())
def test_no_fitted_parameter_of_a_preset_lies_on_a_bound(name: str) -> None:
    """Nor is one fitted for fewer than three runs."""
    stack = load_stack(name)
    for key, value in stack.parameters.items():
        assert EDGE <= PARAMETERS[key].place(value) <= 1 - EDGE, key
    times = [key for key in stack.parameters if key not in MEMORY_PARAMETERS]
    assert len(times) * RUNS_PER_PARAMETER <= stack.runs or not stack.runs


@pytest.mark.parametrize("name", stack_names())
def test_a_value_as_in_another_preset_is_that_presets(name: str) -> None:
    """To the four digits that files have: a fit of the one moves the other, which is fitted anew."""
    for key, item in load_stack(name).fixed.items():
        if match := re.match(r"as in ([\w.-]+)", item.why):
            assert item.value == pytest.approx(load_stack(match[1])[key], rel=1e-3), f"{key}, {item.why}"


@pytest.mark.parametrize("name", [name for name in stack_names() if load_stack(name).runs])
def test_fitted_presets_stay_within_a_quarter_of_their_runs(name: str) -> None:
    assert 0 < load_stack(name).residuals["mape"] < 0.25


@pytest.mark.parametrize("name", stack_names())
def test_presets_pass_the_checks_of_users_files(name: str) -> None:
    assert repr(read_stack(presets_folder() / "stacks" / f"{name}.toml")) == repr(load_stack(name))


@pytest.mark.parametrize("text", ["", "[parameter]\nlaunch = 1e-6\n", "[parameters]\n", 'name = "mine"\n'])
def test_a_file_without_features_says_what_a_stack_needs(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InvalidFile, match=r"features: missing, expected a table \[features\] of what"):
        load_stack(str(path))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[parametrs]", "parametrs: unknown key; did you mean parameters or parent?"),
        ("parameters = 3", "parameters: expected a table, but got 3"),
        ("[parameters]\ntp_overlap = true", "parameters.tp_overlap: expected a number from 0 to 1 [1], but got true"),
        ("[parameters]\ntp_overlap = nan", "parameters.tp_overlap: expected a finite number, but got NaN"),
        ("[provenance]\nsorce = 'me'", "provenance.sorce: unknown key; did you mean source?"),
        ("[ranges]\ngpus = 8", "ranges.gpus: expected two numbers, lowest and highest, but got 8"),
        ("known = 3", "known: expected a list of tables, as optimize calibrate writes them, but got 3"),
        ("runs = -1", "runs: expected a whole number, 0 or more, but got -1"),
    ],
)
def test_every_table_is_checked(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f"{text}\n[features]\n")
    with pytest.raises(InvalidFile) as caught:
        read_stack(path)
    assert caught.value.problems == (problem,)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("default_zero = true", "features.default_zero: expected 0, 1, 2 or 3, but got true"),
        ("max_vpp = 0", "features.max_vpp: expected a whole number above 0, but got 0"),
        ('schedules = ["1f1b", "dual"]', "features.schedules: expected a list of some of 1f1b, interleaved"),
        ('recompute_modules = ["mlp"]\nselective = "ops"', 'features: recompute_modules needs selective = "core"'),
    ],
)
def test_features_are_what_some_software_does(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f"[features]\n{text}\n")
    with pytest.raises(InvalidFile) as caught:
        read_stack(path)
    (told,) = caught.value.problems
    assert told.startswith(problem)


def test_all_problems_of_a_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        '[parameters]\nlaunch = 9.0\nlanch = 1e-6\n[fixed]\nlaunch = 3e-6\nstraggler = {value = 7, why = "seen"}\n'
        '[features]\nattention = "flsh"\ndropout = 3\nfused_nrm = true\n'
    )
    with pytest.raises(InvalidFile) as caught:
        read_stack(path)
    text = str(caught.value)
    assert len(caught.value.problems) == 8
    assert "fixed.launch: expected a table, but got 3e-06" in text
    assert "fixed.launch: is in parameters too; keep one of them" in text
    assert "fixed.straggler.value: expected a number from 0 to 0.05 [1], but got 7" in text
    assert "parameters.launch: expected a number from 5e-07 to 0.0002 [s], but got 9.0" in text
    assert "parameters.lanch: unknown key; did you mean launch?" in text
    assert "features.fused_nrm: unknown key; did you mean fused_norm" in text
    assert "features.dropout: expected true or false, but got 3" in text
    assert "features.attention: expected one of" in text


def test_corrupt_and_missing_files_are_told(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("[parameters\n")
    with pytest.raises(InvalidFile, match="not TOML"):
        read_stack(broken)
    with pytest.raises(InvalidFile, match="cannot be read"):
        read_stack(tmp_path / "none.toml")
    with pytest.raises(UnknownName, match="megatron-core"):
        load_stack("megatron-cor")


def test_what_is_written_reads_back_the_same(tmp_path: Path) -> None:
    stack = load_stack("nanotron-2024")
    path = tmp_path / "copy.toml"
    replace_file(path, stack_toml(stack), "toml")
    again = read_stack(path)
    assert again.features == stack.features
    assert again.fixed == stack.fixed
    assert again.parameters == pytest.approx(dict(stack.parameters), rel=1e-3)
    assert stack_toml(again) == stack_toml(stack)


def test_a_folder_that_cannot_be_written_is_told_and_left_clean(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        replace_file(tmp_path / "missing" / "stack.toml", stack_toml(load_stack("megatron-core")), "toml")
    assert list(tmp_path.iterdir()) == []
