"""The README is one screen, and its two commands are those that everybody runs."""

import re

from maintain.docs.site import README, file_of

TEXT = file_of(README).read_text(encoding="utf-8")


def test_the_first_two_commands_install_and_run() -> None:
    first, second = re.findall(r"^```bash\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)[:2]
    assert first == "python -m pip install . && optimize --model gpt3 --gpus 1024\n"
    assert second == "python -m pip install '.[dev]' && python -m pytest\n"


def test_it_is_one_screen() -> None:
    assert len(TEXT.splitlines()) <= 110
    assert len(TEXT) <= 6500
