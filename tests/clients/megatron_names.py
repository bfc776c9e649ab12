"""Run where a source of Megatron-LM is (PYTHONPATH): print the option strings of its parser, a line each.

presets/launchers/megatron-lm.csv is made of them.
"""

import argparse

from megatron_loads import prepared


def main() -> None:
    parser = prepared().add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))
    names = {name for action in parser._actions for name in action.option_strings}
    print("\n".join(sorted(name for name in names if name.startswith("--"))))


if __name__ == "__main__":
    main()
