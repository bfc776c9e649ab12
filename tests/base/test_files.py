"""Files are read within bounds and written whole, never over what somebody still needs."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from optimizer.base import files
from optimizer.base.errors import InputError
from optimizer.base.files import read_bytes, replace_file
from optimizer.cli import cli
from optimizer.frameworks.export_folder import FILES, write_texts
from tests.catalog.readers.test_damage import MODEL, RUNS, written
from tests.sweep.test_damage import filled

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), prog_name="optimize")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs.csv").write_text(RUNS)
    (tmp_path / "model.toml").write_text(written("model.toml", MODEL))
    (tmp_path / "model.json").write_text('{"model_type": "llama"}')
    (tmp_path / "study.toml").write_text(
        'models = "llama3-8b"\ngpus = 8\nglobal_batches = 64\ntrials = 0\nfix = "pp=1"\n'
    )
    filled(tmp_path / "study.db")
    return tmp_path


STUDIED = ("--model", "./model.toml", "--gpus", "8", "--global-batch", "64")


@pytest.mark.parametrize(
    ("kept", "arguments"),
    [
        ("study.db", ("batch", "show", "--store", "study.db", "--html", "study.db")),
        ("study.db", ("batch", "show", "--store", "study.db", "--html", "study.html")),
        ("runs.csv", ("batch", "show", "--store", "study.db", "--html", "runs.html")),
        ("study.toml", ("batch", "study.toml", "--html", "study.toml")),
        ("runs.csv", ("validate", "--runs", "runs.csv", "--csv", "runs.csv")),
        ("runs.csv", ("validate", "--runs", "runs.csv", "--html", "runs.csv")),
        ("runs.csv", ("calibrate", "--runs", "runs.csv", "--out", "runs.csv")),
        ("model.json", ("scaling", *STUDIED[:2], "--gpus", "8,16", "--html", "model.json")),
        ("model.toml", (*STUDIED, "--trials", "0", "--html", "model.toml")),
        ("model.toml", ("timeline", *STUDIED, "--html", "model.toml")),
        ("study.db", ("timeline", *STUDIED, "--html", "study.db")),
        ("study.db", ("communication", *STUDIED, "--html", "study.db")),
        ("model.toml", ("pareto", *STUDIED, "--tokens", "1e12", "--hardware", "h100", "--html", "model.toml")),
    ],
)
def test_no_output_takes_the_place_of_an_input_or_a_store(folder: Path, kept: str, arguments: tuple[str, ...]) -> None:
    before = (folder / kept).read_bytes()
    found = run(*arguments)
    assert (folder / kept).read_bytes() == before
    if "study.html" not in arguments:
        assert found.exit_code == 2, found.output
        assert "stays as it is" in found.stderr or "input of this command" in found.stderr


@pytest.mark.parametrize("arguments", [(*STUDIED, "--html", "-"), ("validate", "--csv", "-")])
def test_a_dash_is_no_file(folder: Path, arguments: tuple[str, ...]) -> None:
    assert "'-' is no name of a file" in run(*arguments).stderr
    assert not (folder / "-").exists()


def test_a_table_of_runs_is_told_to_be_an_input_before_it_is_fitted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fitted(*_: object, **__: object) -> None:
        raise AssertionError("fitted first")

    monkeypatch.setattr("optimizer.calibration.calibrate.calibrate", fitted)
    assert run("calibrate", "--runs", "runs.csv", "--out", "runs.csv").exit_code == 2


def test_a_report_is_replaced_by_the_next(folder: Path) -> None:
    for _ in range(2):
        found = run("validate", "--runs", "runs.csv", "--csv", "out.csv", "--html", "out.html")
        assert found.exit_code == 0, found.output


def test_an_old_report_stays_when_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    path.write_text("<html>old</html>")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="No space left on device"):
        replace_file(path, "<html>new</html>", files.HTML)
    assert path.read_text() == "<html>old</html>"
    assert list(tmp_path.iterdir()) == [path]


def test_permissions_and_links_stay(tmp_path: Path) -> None:
    path, link = tmp_path / "report.html", tmp_path / "link.html"
    path.write_text("<a>")
    path.chmod(0o640)
    link.symlink_to(path)
    replace_file(link, "<b>", files.HTML)
    assert link.is_symlink()
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("<b>", 0o640)
    fresh = tmp_path / "fresh.html"
    replace_file(fresh, "<b>", files.HTML)
    fresh_by_hand = tmp_path / "hand.html"
    fresh_by_hand.write_text("<b>")
    assert fresh.stat().st_mode == fresh_by_hand.stat().st_mode


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"x" * 1001)
    for place in (tmp_path / "pipe", "/dev/zero", "/dev/urandom", tmp_path, tmp_path / "absent", "a\0b", "x" * 5000):
        start = time.monotonic()
        with pytest.raises(OSError) as caught:  # noqa: PT011
            read_bytes(place, 1000)
        assert caught.value.strerror
        assert time.monotonic() - start < 5
    with pytest.raises(OSError, match="more than"):
        read_bytes(tmp_path / "large", 1000)
    assert len(read_bytes(tmp_path / "large", 1001)) == 1001


def test_the_output_of_another_command_is_read() -> None:
    code = "import sys; from optimizer.base.files import read_bytes; print(len(read_bytes(sys.argv[1])))"
    text = f"{sys.executable} -c '{code}' <(sleep 0.3; echo hello)"
    done = subprocess.run(["bash", "-c", text], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "6\n"


WRITER = """
import itertools, sys
from pathlib import Path
from optimizer.frameworks.export_folder import FILES, write_texts
names = sorted(FILES)[:6]
for number in itertools.count():
    write_texts({name: f"{number}\\n" * 2000 for name in names}, Path(sys.argv[1]), force=True)
    if not number:
        print("writing", flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux exchanges two folders in one step")
def test_an_export_is_whole_whenever_it_is_killed(tmp_path: Path) -> None:
    out = tmp_path / "launch"
    write_texts(dict.fromkeys(sorted(FILES)[:6], "0\n" * 2000), out)
    for number in range(7):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(out)], cwd=ROOT, stdout=subprocess.PIPE) as writer:
            assert writer.stdout.readline() == b"writing\n"
            time.sleep(0.024 * number)
            writer.send_signal(signal.SIGKILL)
        assert len({(out / name).read_text() for name in sorted(FILES)[:6]}) == 1
        assert len(list(out.iterdir())) == 6


def test_an_export_leaves_other_files_where_they_are(tmp_path: Path) -> None:
    out = tmp_path / "launch"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    write_texts({"megatron.args": "1"}, out)
    write_texts({"megatron.args": "2"}, out, force=True)
    assert {path.name: path.read_text() for path in out.iterdir()} == {"notes.txt": "mine", "megatron.args": "2"}
    assert [path.name for path in tmp_path.iterdir()] == ["launch"]


def test_what_a_killed_run_left_of_a_file_is_swept(tmp_path: Path) -> None:
    left, own = tmp_path / ".report.html.abcdefgh.unfinished", tmp_path / ".report.html.mine"
    another = tmp_path / ".other.html.abcdefgh.unfinished"
    for path in (left, own, another):
        path.write_text("half")
        os.utime(path, (0, 0))
    with left.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # somebody writes it still
        replace_file(tmp_path / "report.html", "<html>")
        assert left.exists()
    replace_file(tmp_path / "report.html", "<html>2")
    assert sorted(path.name for path in tmp_path.iterdir()) == [another.name, own.name, "report.html"]


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        *(("a,b,c,d\n1", "a,b,c,e\n2", False), ("a,b,c\n", "a,b,x\n", True), ("a,b\n", "a,b,c\n", True)),
        *(
            (" a , b,c", "a,b,c", False),
            ("\n", "a,b,c", False),
            ("", "a", False),
            ("<p>", "a", True),
            ("{}", "a", True),
        ),
    ],
)
def test_a_table_takes_the_place_of_one_with_the_same_first_columns(
    tmp_path: Path, old: str, new: str, kept: bool
) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(old)
    if kept:
        with pytest.raises(InputError, match="stays as it is"):
            replace_file(path, new, files.CSV)
    else:
        replace_file(path, new, files.CSV)
    assert path.read_text() == (old if kept else new)
