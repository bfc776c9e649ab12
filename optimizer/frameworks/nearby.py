"""What lies beside the files of a launch and is named in them: only in their folder, or in one that was given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os.path import isfile  # where Path.is_file raises, of names too long for a file, there is none
from pathlib import Path

from optimizer.base.files import lies_in, read_bytes
from optimizer.frameworks.bash.script import Find
from optimizer.frameworks.config.file import ConfigFile
from optimizer.frameworks.files import LARGEST, File


def advice_for(script: File | ConfigFile, paths: Sequence[str], given: Sequence[str] = ()) -> str:
    """What to do about configs that a script, or one that it trains by, names and that do not lie where it says."""
    names = " ".join(dict.fromkeys([*given, *(Path(path).name for path in paths)]))
    advice = f"give it too: optimize improve {script.name} {names}; or --root FOLDER, where its path begins"
    return f"it trains by {', '.join(paths)}, not found here; {advice}"


def out_of_reach(script: File, paths: Sequence[str]) -> list[str]:
    """A sentence for each file that a script names and that is there, but in no folder that it may read."""
    there = [
        path for path in dict.fromkeys(paths) if lying_near(script, path) is None and any(named_files(script, path))
    ]
    advice = f"lies outside of the folder of {Path(script.name).name}: --root FOLDER reads it"
    return [f"nothing of {path}, which {advice}" for path in there]


def not_here(script: File, paths: Sequence[str]) -> list[str]:
    """A sentence for the files that a script sources or starts and that are not here."""
    names = dict.fromkeys(Path(path).name for path in paths if not any(named_files(script, path)))
    advice = "not found here: give what it lies in by --root FOLDER, or each file after the script"
    return [f"it runs {', '.join(names)}, {advice}"] if names else []


def lying_near(script: File, path: str) -> Path | None:
    """A file that a file names and may read: it lies in its folder, or in its root; None without one."""
    homes: list[str | Path] = [Path(script.name).parent, *filter(None, [script.root])]
    return next((place for place in named_files(script, path) if lies_in(place, homes)), None)


def named_files(script: File, path: str) -> Iterator[Path]:
    """The files that a script can mean by a path: from its folder, beside it, or from its root, wherever that was."""
    folder, parts = Path(script.name).parent, Path(path.lstrip("/")).parts
    name = Path(path).name
    rooted = [Path(home, *parts[start:]) for home in (folder, script.root) if home for start in range(len(parts))]
    places = [*([] if path.startswith(("/", "$")) else [folder / path]), folder / name, *rooted]
    own = Path(script.name).resolve()
    yield from (place for place in places if name and isfile(place) and place.resolve() != own)


def sources(script: File, scripts: Sequence[File]) -> Find:
    """Finds what a script sources: among the files given, else lying beside it."""

    def find(path: str) -> bytes | None:
        name = Path(path).name
        given = next((each for each in scripts if each is not script and Path(each.name).name == name), None)
        if given is not None:
            return given.data
        place = lying_near(script, path)
        if place is None:
            return None
        try:
            return read_bytes(place, LARGEST)
        except OSError:
            return None

    return find
