"""Launches of others as `optimize improve` reads them: their titles, and whether each patch gains what it says.

python -m maintain.public_launches [--out FOLDER] [--gpus 64] [--device h100] FILE... reads each file as one launch;
files joined with "," are one. It prints a row each. With --out it writes each launch with its patch made below that
folder, where the parser of its program may read it (tests/clients). Nothing of these files belongs into the project.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from optimizer.base.errors import InputError, OptimizerError
from optimizer.frameworks.files import File, read_files
from optimizer.frameworks.launch_as_read import Controls, LaunchAsRead, launch_as_read
from optimizer.frameworks.read import read_launch, with_followed
from optimizer.improve.patch import patched
from optimizer.improve.report import headline
from optimizer.improve.state import current_state
from optimizer.improve.writable import improve_files

ROUNDED = 0.01  # of a gain: buckets are counted in whole parameters
SHOWN = 160  # characters of a reason


def launch_row(names: Sequence[str], controls: Controls, out: Path | None = None) -> tuple[str, str, str]:
    """What became of a launch ("read" or "refused"), its title or the reason, and what became of its patch.

    Args:
        names: its files.
        controls: what they may leave open.
        out: where its files go with the patch made; None for nowhere.
    """

    def read(files: Sequence[File]) -> LaunchAsRead:
        return launch_as_read(read_launch(files, controls.gpus, controls.model).launch, controls, names[0])

    try:
        files = read_files(names)
        source = read_launch(files, controls.gpus, controls.model)
        question = launch_as_read(source.launch, controls, names[0])
    except OptimizerError as error:
        return "refused", " ".join(str(error).split()), "-"
    improvement = improve_files(question, source)
    title = headline(improvement, [Path(names[0]).name]).partition(": ")[2]
    edit = improvement.best or improvement.pair or next((each for each in improvement.edits if each.sure), None)
    if edit is None or source.launch.unpriced:
        return "read", title, "not priced" if source.launch.unpriced else "nothing gains"
    files = with_followed(files, source)
    try:
        texts = patched(source, question, edit, files, read)
    except InputError as error:
        return "read", title, " ".join(str(error).split())
    after = current_state(read([replace(file, data=texts[file.name]) for file in files]))
    gain = after.throughput / improvement.current.throughput - 1.0
    if out:
        for name, data in texts.items():
            path = out / names[0].strip("/").replace("/", "_") / Path(name).name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    same = abs(gain - edit.gain) <= ROUNDED * max(1.0, edit.gain)
    return "read", title, f"gains {gain:.1%}" + ("" if same else f", but {edit.gain:.1%} was promised")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--gpus", type=int)
    for option in ("model", "device"):
        parser.add_argument(f"--{option}", default="")
    given = parser.parse_args()
    controls = Controls(gpus=given.gpus, model=given.model, device=given.device)
    print("| launch | | title | patch |\n|---|---|---|---|")
    for name in given.files:
        row = (name, *launch_row(name.split(","), controls, given.out))
        print(f"| {' | '.join(cell[-SHOWN:] if cell == name else cell[:SHOWN] for cell in row)} |", flush=True)


if __name__ == "__main__":
    main()
