"""Rewrite what is generated of the documentation: `python -m optimizer.tools.docs [PAGE ...]`."""

from __future__ import annotations

import sys

from optimizer.tools.docs.site import rewrite

if __name__ == "__main__":
    rewrite(sys.argv[1:])
