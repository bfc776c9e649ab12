"""Rewrite what is generated of the documentation: `python -m maintain.docs [PAGE ...]`."""

from __future__ import annotations

import sys

from maintain.docs.site import rewrite

if __name__ == "__main__":
    rewrite(sys.argv[1:])
