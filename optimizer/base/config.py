"""Where a user's own files lie: defaults and presets."""

from __future__ import annotations

import os
from pathlib import Path

HOME, PROGRAM = "XDG_CONFIG_HOME", "mfu-optimizer"


def config_folder() -> Path:
    """The folder of a user's own files; it need not exist.

    Source: XDG Base Directory Specification, 0.8: $XDG_CONFIG_HOME counts where it is an absolute path.
    """
    home = os.environ.get(HOME, "")
    return Path(home if os.path.isabs(home) else os.path.expanduser("~/.config")) / PROGRAM


def shown(path: Path) -> str:
    """A path as one would type it, with "~" for the user's home."""
    home = os.path.expanduser("~")
    text = str(path)
    return f"~{text[len(home) :]}" if home != os.sep and text.startswith(home + os.sep) else text
