"""The formulas of the acts: the documents' numbers, what the acts refuse, and what their questions say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.base.errors import InputError, InvalidFile
from optimizer.catalog.files import presets_folder
from optimizer.page.learn.act import ActQuestion
from optimizer.page.learn.acts import ACTS, five, four
from optimizer.page.learn.acts.four import Volumes, hop_rows
from optimizer.page.learn.acts.six import LARGEST, all_reduce_perf, pasted, printed, read_curve
from optimizer.page.learn.acts.three import operators_of
from optimizer.page.learn.content_files import texts
from optimizer.page.learn.priced import (
    CONTEXTS,
    LARGE,
    best,
    data_parallel_runs,
    designed,
    error,
    gpt3_runs,
    job_of,
    nearest,
)
from optimizer.reports.charts.drawing import drawing
from optimizer.studies.textbook import (
    CEILING,
    COUNTS,
    GPUS,
    HBM,
    INFINIBAND,
    LAB,
    NVLINK,
    DataParallel,
    LabDesign,
    corrected,
    curve,
)

ROOT = Path(__file__).resolve().parents[3]
QUESTIONS = {question.name: question for act in ACTS.values() for question in act.questions}
CHOSEN = {
    1: {"billions": 7, "gpus": 8, "batch": 32, "fabric": NVLINK, "constants": "document", "priced": True},
    2: {"tp": 8, "pp": 4, "microbatches": 8, "priced": True},
    3: {"tp_in": 8, "tp_out": 40, "replicas": 32, "tokens": 32768, "width": 2, "one_way": False},
    4: {"ranks": 8, "sequences": 32, "passing": 32},
    5: {"mode": "strong", "count": 256},
    6: {"paste": "", "line": 4, "rate": 300, "billions": 2},
    7: {"model": "gpt3-6.7b", "gpus": 64, "stage": 0},
    8: {"model": "llama3-8b", "way": "lora", "length": 2048, "recomputed": False},
    9: {"microbatches": 8, "stages": 8, "schedule": "1f1b"},
}
LINES = (
    "# nccl-tests version 2.13.6\n# Using devices\n"
    "#  Rank  0 Group  0 Pid 1 on node1 device  0 [0x00] NVIDIA A100\n"
    "#  Rank  1 Group  0 Pid 1 on node1 device  1 [0x00] NVIDIA A100\n"
    "# all_reduce_perf\n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong"
    "     time   algbw   busbw #wrong\n"
)
ROW = "{size} 256 float sum -1 {time} 0.1 0.1 0 {time} 0.1 0.1 0\n"
END = "# Avg bus bandwidth    : 0.1\n"


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=lambda question: question.name)
def test_every_choice_of_every_question_reveals_something_of_its_own(question: ActQuestion) -> None:
    revealed = [choice.reveal() for choice in question.choices]
    assert len(set(revealed)) == len(revealed) >= 3
    assert question.choice(question.right).key == question.right
    assert all(len(text) > 60 for text in revealed)
    with pytest.raises(InputError, match="has no choice 'Z'"):
        question.is_right("Z")


def test_no_question_has_the_identity_of_another() -> None:
    assert len(QUESTIONS) == sum(len(act.questions) for act in ACTS.values()) == 11


def test_reveals_have_the_numbers_of_the_formulas() -> None:
    revealed = QUESTIONS["act-2"].choice("B").reveal()
    assert all(text in revealed for text in ("118.69 GB", "77.67 GB", "9.375 %", "11.719 %", "36.05 %"))
    assert "2.25 times slower than NVLink" in QUESTIONS["act-2"].choice("A").reveal()  # 900 / 400 GB/s
    # 1023 / 1024, 1023 / (64 + 1023), 1023 / (1024 x 64); 255 / (256 x 8), 255 / (8 + 255).
    assert all(text in QUESTIONS["act-2"].choice("C").reveal() for text in ("99.9 %", "94.1 %", "1.6 %"))
    assert all(text in QUESTIONS["act-2"].choice("D").reveal() for text in ("12.5 %", "97 %"))
    # An all-reduce of 8 ranks sends 2 x 7/8 of 12,288 x 2,048 values of 2 B.
    sums = QUESTIONS["act-2-reflection"].choice("B").reveal()
    assert all(text in sums for text in ("88 MB", "0.10 ms", "0.22 ms"))
    slips = dict(ACTS[1].slips)
    assert "2.67 s" in slips["The sequence length is forgotten"]
    assert "51.5 / 50.7 / 50.7 %" in slips["Restored, the formula does not explain the message either"]
    assert "1,979" in slips["The peak is the one with sparsity"]
    needed = dict(ACTS[2].slips)["The bubble is counted too small"]
    assert "27.3 %" in needed
    assert "m = 27 at PP 4, and 135 at PP 16" in needed


@pytest.mark.parametrize(
    ("question", "choice", "numbers"),
    [
        # 2 x 7/8, 63/64 and 511/512 of 14 GB; the latter at 400 GB/s; 512 x 32 sequences.
        ("act-1", "A", ["69.9 ms on 512"]),
        ("act-1", "B", ["24.50 GB on 8", "27.95 GB on 512", "900 GB/s", "400 GB/s"]),
        ("act-1", "D", ["512 x 32 = 16,384"]),
        ("act-1-reflection", "D", ["13.8 instead of 27.6 GB"]),
        # 32,768 tokens of 32 replicas; 989e12 / 3.35e12 operations per byte.
        ("act-3", "B", ["1,024 tokens", "295"]),
        # 2 and 3 x 350 GB at 200 and 25 GB/s; 4 x 96 sums of 2 x 32 x 2,048 x 12,288 B, which send it twice.
        ("act-4", "A", ["700 GB", "3.50 s", "28 s"]),
        ("act-4", "B", ["1050 GB", "5.25 s"]),
        ("act-4", "C", ["384 all-reduces of 1.61 GB", "1,237 GB"]),
        # There and back over 7 boundaries, 32 micro-batches: 2 x 7 x 1.61 GB.
        ("act-4", "D", ["3.22 GB", "22.5 GB", "448 messages on 8"]),
        ("act-5", "B", ["On 8 GPUs each has 64", "on 512 GPUs 1.", "8/512"]),
        # 2^33 B in 64.08 ms, x 1.75.
        ("act-6", "A", ["134.06 GB/s", "234.61 GB/s"]),
        ("act-6", "B", ["600 GB/s", "234.61 of 300"]),
        ("act-6", "C", ["or 78%"]),
        # 2 + 2 + 12 / 64 bytes of each of 6.7e9 parameters.
        ("act-7", "A", ["4.19 bytes", "28 GB"]),
        ("act-7", "B", ["4.19 bytes"]),
        # 8.03e9 x 2 B.
        ("act-8", "A", ["8.0 billion", "16.1 GB"]),
        # 7 / 15 of the time, 7 / 70 of it with 63.
        ("act-9", "A", ["47 %"]),
        ("act-9", "B", ["7 / (8 + 7), or 47 %"]),
        ("act-9", "C", ["63 micro-batches", "10 %"]),
    ],
)
def test_reveals_say_what_can_be_reckoned_by_hand(question: str, choice: str, numbers: list[str]) -> None:
    said = QUESTIONS[question].choice(choice).reveal()
    assert [number for number in numbers if number not in said] == []


@given(st.integers(1, 175), st.sampled_from(COUNTS), st.integers(1, 128))
def test_mfu_never_exceeds_the_reference_and_falls_with_the_replicas(billions: int, gpus: int, batch: int) -> None:
    for constants in (LAB, corrected()):
        step = DataParallel(billions=billions, gpus=gpus, batch=batch, constants=constants)
        assert 0 < step.mfu < constants.reference
        shares = curve(step, NVLINK)
        assert list(shares) == sorted(shares, reverse=True)
        assert all(slow <= fast for slow, fast in zip(curve(step, INFINIBAND), shares, strict=True))


def test_the_model_size_cancels_and_the_batch_does_not() -> None:
    """Gradients and operations both grow with the parameters: only the batch changes the ratio."""
    assert DataParallel(billions=7).ratio == pytest.approx(DataParallel(billions=175).ratio)
    assert DataParallel(batch=64).ratio == pytest.approx(DataParallel(batch=32).ratio / 2)


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 64))
def test_failures_are_the_limits_that_are_broken(tp: int, pp: int, microbatches: int) -> None:
    design = LabDesign(tp=tp, pp=pp, microbatches=microbatches)
    kinds = set(design.failures)
    assert ("out of memory" in kinds) == (design.memory > HBM)
    assert ("bubble over its ceiling" in kinds) == (design.bubble > CEILING)
    assert ("tensor parallelism crosses nodes" in kinds) == (tp > 8)
    assert ("product does not divide" in kinds) == (design.dp * tp * pp != GPUS)
    assert design.exact_bubble >= design.bubble - 1e-12
    if designed(design).estimate is not None:
        assert design.divides


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LabDesign(tp=0), "tp must be at least 1, but got 0"),
        (lambda: DataParallel(gpus=0), "gpus must be positive, but got 0"),
        (lambda: DataParallel(fabric="ethernet"), "unknown fabric 'ethernet'"),
    ],
)
def test_what_makes_no_sense_is_refused(make: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()  # type: ignore[operator]


def test_a_design_that_cannot_be_built_says_why() -> None:
    found = designed(LabDesign(tp=64, pp=4, microbatches=8))
    assert found.estimate is None
    assert not found.fits
    assert any("64" in reason or "heads" in reason for reason in found.reasons)


def test_the_plan_called_best_is_not_slower_than_any_priced_design() -> None:
    answer = best(LARGE)
    assert answer.estimate is not None
    for tp, pp in ((8, 4), (8, 16), (4, 8), (2, 16)):
        m = 1536 * tp * pp // GPUS
        other = designed(LabDesign(tp=tp, pp=pp, microbatches=m))
        assert other.job.global_batch == answer.job.global_batch
        assert not other.fits or other.estimate is None or other.estimate.step_time >= answer.estimate.step_time


def test_measured_runs_are_rows_of_the_preset() -> None:
    text = (presets_folder() / "published.csv").read_text(encoding="utf-8")
    for each in (*data_parallel_runs(), *gpt3_runs()):
        assert f"{each.run.id}," in text
        assert 0 < each.measured < 1
    assert {each.plan.tp for each in data_parallel_runs()} == {1}
    counts = [each.job.gpus for each in data_parallel_runs() if each.run.id.startswith("sc21-t2-zero3-174")]
    assert counts == [384, 768, 1536]


def test_nearest_model_is_a_preset_at_every_slider_position() -> None:
    assert {nearest(billions) for billions in range(1, 176)} <= {
        nearest(1),
        *map(nearest, (3, 5, 7, 13, 20, 40, 70, 175)),
    }


@pytest.mark.parametrize("context", CONTEXTS)
def test_operators_stay_under_the_roof(context: str) -> None:
    answer = best(context)
    assert answer.plan is not None
    device = answer.job.cluster.device
    for each in operators_of(answer.job, answer.plan):
        assert each.moved / each.seconds <= device.memory_bandwidth
        assert each.rate <= min(answer.job.peak_flops, each.intensity * device.memory_bandwidth)


@pytest.mark.parametrize("context", CONTEXTS)
def test_what_a_real_plan_sends_is_what_the_study_says(context: str) -> None:
    study = four.study_of(context)
    caption, columns, rows = four.plan_rows(context)
    assert study.plan.summary() in caption
    assert len(rows) == len(study.rows)
    assert {len(row) for row in rows} == {len(columns)}


@given(st.integers(1, 10), st.integers(0, 10), st.integers(1, 128))
def test_fsdp_sends_half_as_much_again_as_data_parallelism(power: int, batch: int, microbatches: int) -> None:
    volumes = Volumes(ranks=2**power, batch=2**batch, microbatches=microbatches)
    dp, fsdp, tp, pp = volumes.sent
    assert fsdp.volume == pytest.approx(1.5 * dp.volume)
    assert pp.volume <= tp.volume
    assert pp.volume * (volumes.ranks - 1) == pytest.approx(volumes.pipeline_total)


def test_hops_are_the_documents() -> None:
    found = [
        (round(row.volume / 1e6, 3), round(1e3 * row.latency, 3), round(1e3 * row.energy, 3)) for row in hop_rows()
    ]
    assert found == [
        (73.4, 1.634, 46.976),
        (78.643, 6.713, 176.161),
        (205.521, 4.57, 131.533),
        (220.201, 18.667, 493.25),
        (33.554, 0.373, 1.342),
        (16.777, 0.187, 0.671),
        (16.777, 0.711, 4.698),
    ]


def test_weak_scaling_keeps_more_than_strong() -> None:
    strong, weak = (five.study_of(LARGE, mode) for mode in ("strong", "weak"))
    last = [study.efficiency(study.series("best plan")[-1]) for study in (strong, weak)]
    assert last[0] < last[1] <= 1.05
    assert strong.job.global_batch == weak.points[-1].global_batch == 1024
    assert job_of(LARGE).gpus == strong.points[-1].gpus


def test_columns_of_the_curve_are_those_printed() -> None:
    for line, (size, _, algorithm, bus) in zip(printed(), all_reduce_perf(), strict=True):
        assert line.size == size
        assert line.algorithm / 1e9 == pytest.approx(algorithm, rel=5e-4, abs=0.005)
        assert line.bus / 1e9 == pytest.approx(bus, rel=5e-4, abs=0.005)


def test_a_pasted_table_is_read_and_others_are_refused() -> None:
    text = LINES + ROW.format(size=2048, time="20.0") + ROW.format(size=1024, time="10.0") + END
    assert [(line.size, round(1e6 * line.seconds, 6), line.ranks) for line in pasted(text)] == [
        (1024, 10.0, 2),
        (2048, 20.0, 2),
    ]
    assert read_curve(text).source == "Your table"
    with pytest.raises(InvalidFile, match="stops here"):
        pasted(LINES + ROW.format(size=1024, time="10.0") + "2048 256 flo")
    with pytest.raises(InputError, match="at most 200,000 characters"):
        pasted("#" * (LARGEST + 1))
    assert "pasted table" in read_curve("cat /etc/passwd").problem
    assert read_curve(LINES + ROW.format(size=1024, time="10.0") + END).problem == "the table has fewer than two sizes"
    assert not Path("pasted table").exists()


def test_every_chart_has_words_and_the_same_numbers_as_a_table() -> None:
    for number, act in ACTS.items():
        shown = act.shown({**CHOSEN[number], "context": LARGE})
        assert set(shown.charts) >= {each["name"] for each in act.content["chart"]}
        for name in shown.charts:
            chart = act.chart(name, shown)
            assert len(chart.words) > 40
            assert chart.rows
            assert {len(row) for row in chart.rows} == {len(chart.columns)}
            found = drawing(chart.figure, chart.name)
            assert found.count("<path") + found.count("<rect") + found.count("<line") > len(chart.rows)


@pytest.mark.parametrize("number", ACTS)
def test_every_blank_of_an_act_has_a_value(number: int) -> None:
    act = ACTS[number]
    shown = act.shown({**CHOSEN[number], "context": LARGE})
    parts = [act.html(name, shown) for name in (*act.content["parts"], *shown.tables)]
    assert not any("{" in part or "}" in part for part in parts)
    assert {each["name"] for each in act.content["control"]} == set(CHOSEN[number])


@pytest.mark.parametrize("number", ACTS)
def test_every_block_of_an_act_is_in_its_files(number: int) -> None:
    act = ACTS[number]
    shown = act.shown({**CHOSEN[number], "context": LARGE})
    known = {
        "text": set(texts(f"act_{number}.md")),
        "controls": {*CHOSEN[number], "save"},
        "html": {*act.content["parts"], *shown.tables},
        "chart": set(shown.charts),
        "ask": set(QUESTIONS),
    }
    known |= {"control": known["controls"], "reveal": known["ask"]}
    blocks = [block for part in ("opening", "panel") for block in act.content[part]]
    named = [
        (kind, name)
        for kind, *names in (re.sub(r"^when \w+ ", "", block).split() for block in blocks)
        for name in names
    ]
    assert [(kind, name) for kind, name in named if name not in known.get(kind, {name})] == []
    assert {name for kind, name in named if kind == "text"} == known["text"]


def test_the_page_for_teachers_says_how_far_off_the_textbook_is() -> None:
    found = data_parallel_runs()
    told = f"on {len(found)} data-parallel runs the textbook's formula is {100 * error(found, 'textbook'):.0f} % off"
    text = " ".join((ROOT / "docs/tutorials/learn.md").read_text(encoding="utf-8").split())
    assert f"{told} on average, the cost model {100 * error(found, 'priced'):.0f} %" in text
