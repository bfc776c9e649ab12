"""Run where launchers are: `forks.py IMPORTS` imports what many of them need, then runs programs in forks of itself.

Reads lines of JSON: a program, folders to look into first, a home, and the files of its input, output and errors.
Writes a line with the status that each ended with.
"""

import importlib
import json
import os
import runpy
import signal
import sys
import traceback


def run(asked: dict) -> None:
    """The program as if this process had been started for it."""
    signal.alarm(asked["seconds"])
    os.environ["HOME"] = asked["home"]
    sys.path[1:1] = asked["path"]
    importlib.invalidate_caches()
    for number, (file, mode) in enumerate(zip(asked["files"], (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY), strict=True)):
        os.dup2(os.open(file, mode | (os.O_CREAT if number else 0)), number)
    sys.stdin = os.fdopen(0)
    sys.argv = [asked["program"]]
    runpy.run_path(asked["program"], run_name="__main__")


def main() -> None:
    exec(sys.argv[1])
    for line in sys.stdin:
        child = os.fork()
        if not child:
            status = 0
            try:
                run(json.loads(line))
            except BaseException:
                traceback.print_exc()
                status = 1
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        print(os.waitpid(child, 0)[1], flush=True)


if __name__ == "__main__":
    main()
