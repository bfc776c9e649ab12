"""Study files: what they may say, and every problem at once with its key and the nearest name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from optimizer.base.errors import InputError, InvalidFile
from optimizer.sweep.study import Study, holds
from optimizer.sweep.study_file import budget, condition, counts, pin_set, read_study, share, size

SMALL = """
models = "llama3-8b"
gpus = 64
"""


def read(folder: Path, text: str) -> Study:
    path = folder / "study.toml"
    path.write_text(text, encoding="utf-8")
    return read_study(path)


def problems(folder: Path, text: str) -> tuple[str, ...]:
    with pytest.raises(InvalidFile) as raised:
        read(folder, text)
    return raised.value.problems


def test_a_scalar_is_a_list_of_one_and_the_rest_is_assumed(tmp_path: Path) -> None:
    study = read(tmp_path, SMALL)
    (axes,) = study.scenarios.values()
    assert (study.name, axes["models"], axes["gpus"], axes["clusters"]) == ("study", ("llama3-8b",), (64,), ())
    assert {name: values for name, values in axes.items() if values} == {
        **{"models": ("llama3-8b",), "gpus": (64,), "packings": ("off",), "minimize": ("time",), "fix": ({},)},
        **{"bubble_ceiling": (0.1,), "hbm_limit": (0.0,), "max_tp": (0,), "max_micro_batch": (0,), "max_vpp": (16,)},
        **{"min_cp_tokens": (2048,), "vocab_padding": (0.25,)},
    }
    assert (study.token_budget, study.runs, study.prices, study.exclude) == (0.0, "", {}, ())


def test_the_names_of_the_options_do_too(tmp_path: Path) -> None:
    study = read(
        tmp_path, 'model = "gpt3"\ngpus = 64\nglobal-batch = 512\nseq_len = 2048\ndevice = "h100"\ndtype = "BF16"'
    )
    axes = study.scenarios[""]
    assert (axes["models"], axes["global_batches"], axes["seq_lens"]) == (("gpt3",), (512,), (2048,))
    assert (axes["devices"], axes["dtypes"]) == (("h100",), ("bf16",))


def test_globs_stand_for_families_and_aliases_for_their_preset(tmp_path: Path) -> None:
    axes = read(tmp_path, 'models = ["llama3*", "GPT-3 175B", "llama3-8b"]\ngpus = 8\nclusters = ["h100"]').scenarios[
        ""
    ]
    assert {"llama3-8b", "llama3-70b", "llama3.1-405b", "gpt3"} <= set(axes["models"])
    assert len(axes["models"]) == len(set(axes["models"]))
    assert axes["clusters"] == ("dgx-h100",)


def test_files_are_found_from_the_folder_of_the_study(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        'name = "mine"\nlayers = 8\nhidden = 512\nheads = 8\nkv_heads = 8\nhead_dim = 64\nffn_hidden = 2048\n'
        "vocab = 32000\nmax_seq_len = 2048\n"
    )
    axes = read(tmp_path, 'models = "mine.toml"\ngpus = 8').scenarios[""]
    assert axes["models"] == (str(tmp_path / "mine.toml"),)


def test_ranges_double(tmp_path: Path) -> None:
    assert read(tmp_path, SMALL.replace("64", '[8, "64:1024"]')).scenarios[""]["gpus"] == (8, 64, 128, 256, 512, 1024)
    assert counts("3:20") == [3, 6, 12]


@pytest.mark.parametrize(
    ("value", "numbers"),
    [
        ("1:1", [1]),
        ("3:20", [3, 6, 12]),
        ("8:64", [8, 16, 32, 64]),
        (64.0, [64]),
        ("8k", [8192]),
        ([1, "2:4"], [1, 2, 4]),
    ],
)
def test_whole_numbers_are_one_or_doublings(value: object, numbers: list[int]) -> None:
    assert counts(value) == numbers


@pytest.mark.parametrize(
    ("value", "why"), [("0:8", "expected a whole"), ("8:4", "go upwards"), (True, "expected a whole")]
)
def test_other_numbers_are_refused(value: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        counts(value)


def test_scenarios_override_the_keys_above_them(tmp_path: Path) -> None:
    study = read(
        tmp_path,
        SMALL + 'clusters = "dgx-h100"\nseq_lens = 8192\n[scenarios.base]\n[scenarios.long]\nseq_lens = 131072\n'
        '[scenarios.other]\ndevices = "b200"\n',
    )
    assert list(study.scenarios) == ["base", "long", "other"]
    assert [axes["seq_lens"] for axes in study.scenarios.values()] == [(8192,), (131072,), (8192,)]
    assert (study.scenarios["other"]["clusters"], study.scenarios["other"]["devices"]) == ((), ("b200",))


def test_limits_are_axes_like_any_other(tmp_path: Path) -> None:
    axes = read(
        tmp_path,
        SMALL + 'bubble_ceiling = [0.1, "5%"]\nhbm_limit = ["75 GB", 0]\nmax_tp = [4, 8]\n'
        'fix = [{tp = 8, sp = true}, "pp=2..4,recompute=full", {}, "layout=even", "layers=3,5,tp=2"]\n',
    ).scenarios[""]
    assert (axes["bubble_ceiling"], axes["hbm_limit"], axes["max_tp"]) == ((0.1, 0.05), (75e9, 0.0), (4, 8))
    assert axes["fix"][:3] == ({"tp": 8, "sequence_parallel": True}, {"pp": (2, 4), "recompute": "full"}, {})
    assert axes["fix"][3:] == ({"layout": "even"}, {"layers_per_stage": "3,5", "tp": 2})


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        *(("max_tp = 0", ""), ("max_vpp = 0", "a whole number"), ("max_vpp = 1", ""), ("seq_lens = 0", "a whole")),
        *(
            ("seed = 0", ""),
            ("seed = -1", "seed"),
            ("trials = 0", ""),
            ("trials = 10001", "trials: "),
            ("top = 0", ""),
        ),
        *(("trials = 1.5", "trials: "), ("time_limit = 0.5", ""), ("time_limit = 0", "time_limit: ")),
    ],
)
def test_a_count_is_from_its_least_to_its_most(line: str, refused: str, tmp_path: Path) -> None:
    if refused:
        assert refused in problems(tmp_path, SMALL + line)[0]
    else:
        key, value = line.split(" = ")
        study = read(tmp_path, SMALL + line)
        assert str(getattr(study.effort, key, study.scenarios[""].get(key))).strip("(,)") == value


def test_runs_are_found_from_the_folder_of_the_study(tmp_path: Path) -> None:
    assert read(tmp_path, SMALL + 'runs = "a.csv, b/c.csv"').runs == f"{tmp_path / 'a.csv'},{tmp_path / 'b/c.csv'}"


def test_names_are_looked_up_beside_other_problems_where_they_are_names(tmp_path: Path) -> None:
    found = problems(tmp_path, 'models = ["", 8, "lama3-8b"]\nclusters = ["dgx-h100"]\ngpus = 64\nseed = -1\n')
    assert [line.partition(": ")[0] for line in found] == ["models", "models", "seed", "models"]


def test_prices_are_per_hour(tmp_path: Path) -> None:
    study = read(tmp_path, SMALL + "token_budget = 15e12\n[prices]\nh100 = 3.6\n")
    assert study.prices == {"h100": pytest.approx(0.001)}
    assert study.token_budget == 15e12


def test_every_problem_is_told_at_once_with_its_key(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        'models = ["lama3-8b", "zzz*"]\ngpus = [0, "many"]\nclusterz = "dgx-h100"\nhbm_limit = 80\n'
        "bubble_ceiling = 1.5\n[scenarios.a]\nseq_lenz = 8192\n[[exclude]]\ngpus = 'some'\n",
    )
    text = "\n".join(found)
    assert "models: unknown model 'lama3-8b'. Did you mean llama3-8b" in text
    assert "models: no preset matches 'zzz*'" in text
    assert "gpus" in text
    assert "clusterz: unknown key; did you mean clusters" in text
    assert "hbm_limit: 80 has no unit; write '80 GB' or '75 GiB'" in text
    assert "bubble_ceiling: a share must be in (0, 1], but got 1.5" in text
    assert "scenarios.a.seq_lenz: unknown key; did you mean seq_lens?" in text
    assert "exclude[0].gpus: expected a number or a comparison" in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpus = 8", "models: missing"),
        (SMALL + 'clusters = "dgx-h100"\ndevices = "h100"', "give clusters or devices, not both"),
        (SMALL + 'dtypes = "fp6"', "dtypes: unknown dtype 'fp6'; known: bf16, fp16, fp8, fp4"),
        (SMALL + 'fix = "tpp=8"', "fix: unknown plan variable 'tpp'"),
        (SMALL + "fix = 8", "fix: expected {tp = 8}"),
        (SMALL + 'stacks = "megatron"', "stacks: unknown stack 'megatron'"),
        (SMALL.replace('"llama3-8b"', '"./no.json"'), "models: no such file"),
        (SMALL + "[[exclude]]\nscenarios = 'x'", "exclude[0].scenarios: no scenario 'x'; the study has none"),
        (SMALL + 'model = "gpt3"', "model: unknown key beside another spelling of it"),
        (SMALL + "tokens_per_batch = 1e12", "tokens_per_batch: expected at most 2147483647, but got 1000000000000"),
        (SMALL + "fix = {tp = [2, 4]}", 'fix: tp = [2, 4] is no value; write lists as "tp=2,4"'),
        (SMALL + "[[exclude]]\ngpus = '> e-'", "exclude[0].gpus: expected a number or a comparison"),
        (SMALL + "token_budget = inf", "token_budget: expected a finite number, but got Infinity"),
        ("models = [\n", "not TOML"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, text: str, words: str) -> None:
    assert words in "\n".join(problems(tmp_path, text))


def test_a_file_that_is_not_there_is_no_traceback(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be read: .*; `optimize batch --help`"):
        read_study(tmp_path / "none.toml")
    with pytest.raises(InputError, match="cannot be read"):
        read_study(tmp_path)
    (tmp_path / "bytes.toml").write_bytes(b"\x80\xfe")
    with pytest.raises(InvalidFile, match="not UTF-8"):
        read_study(tmp_path / "bytes.toml")


def test_comparisons_exclude_ranges() -> None:
    assert [holds(64, ["< 64"]), holds(64, ["<= 64"]), holds(64, [32, ">= 128"])] == [False, True, False]


@pytest.mark.parametrize(
    ("read", "item", "value"),
    [
        *((share, 0.1, 0.1), (share, "10%", 0.1), (share, 1, 1.0)),
        *((size, 0, 0.0), (size, "75 GB", 75e9), (size, "0.5 GiB", 2**29), (size, "1 B", 1.0)),
        *((condition, 4096, 4096), (condition, 0.5, 0.5), (condition, ">= 4096", ">= 4096")),
        *((pin_set, {"tp": 8}, {"tp": 8}), (pin_set, " tp = 8,pp=4", {"tp": "8", "pp": "4"}), (pin_set, "", {})),
        *((pin_set, "tp=2,4,pp=8", {"tp": "2,4", "pp": "8"}), (budget, "15T", 15e12), (budget, 5, 5)),
    ],
)
def test_a_value_of_a_study_is_read(read: Any, item: object, value: object) -> None:
    assert read(item) == value


@pytest.mark.parametrize(
    ("read", "item", "why"),
    [
        *((share, 0, "in "), (share, 1.001, "in "), (share, True, "in "), (share, "much", "is not a share")),
        *((size, False, "no unit"), (size, "0", "no unit"), (size, "1.5", "no unit"), (size, 80, "no unit")),
        *((size, "0 GB", "no size above 0"), (size, "-1 GB", "-1 GB"), (size, "1.5.5", "unknown unit")),
        *((condition, True, "expected a number"), (condition, "x", "expected a number"), (condition, None, "expected")),
        *((pin_set, 8, "expected"), (pin_set, "tp", "not of the form"), (pin_set, {"tp": [2]}, "is no value")),
        (budget, "much", "much"),
    ],
)
def test_a_value_of_a_study_that_means_nothing_is_refused(read: Any, item: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read(item)
