"""`python -m optimizer` is `optimize`."""

from __future__ import annotations

import gc
import os
import sys

from optimizer.base.interruption import SHELLS, Stop

SELDOM = 100_000  # objects between two looks for circles of them: modules make many objects and few circles


def main() -> None:
    """Entry point of the command: it ends without a word of Python's wherever it is interrupted."""
    # Before numpy loads: matrices here are small, and threads that share one wait longer than they compute.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(SELDOM)
    stop = Stop()
    stop.listen()
    try:
        from optimizer.cli import main as run

        run()
    except BaseException:
        if not stop.number:
            stop.forget()
            raise
        # Nothing of what was interrupted, such as the import of a library, need be whole enough for an orderly end.
        sys.stderr.flush()
        os._exit(SHELLS + stop.number)


if __name__ == "__main__":
    main()
