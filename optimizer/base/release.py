"""Which release this is: that of the installed package, which its build took from the tags of git."""

from __future__ import annotations

DISTRIBUTION = "mfu-optimizer"
NOT_INSTALLED = "0+not.installed"


def release() -> str:
    """The version of the installed package, such as 0.1.0, or 0.1.dev7+g1a2b3c4 seven commits after no tag at all.

    >>> release().startswith("0")
    True
    """
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return NOT_INSTALLED
