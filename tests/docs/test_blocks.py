"""Commands of a page: what may be written, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from maintain.docs.blocks import blocks
from maintain.docs.commands import Ran, filled
from optimizer.base.errors import InputError

PAGE = """\
```toml title="in/file.toml"
key = 1
```

```bash
optimize first | optimize second > out.txt   # both
cat out.txt in/file.toml
```

<!-- output from "second" until "key" -->
```text
old
```
"""


def echo(words: list[str], stdin: str) -> Ran:
    return Ran(output=f"{stdin}{' '.join(words)}\n", messages="said\n", code=3 if words == ["fails"] else 0)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_pipes_files_and_what_is_printed() -> None:
    assert filled(PAGE, echo) == PAGE.replace("old\n", "...\nsecond\n...\n")
    assert Path("out.txt").read_text() == "first\nsecond\n"
    assert filled(filled(PAGE, echo), echo) == filled(PAGE, echo)


def test_a_command_that_fails_is_an_error_unless_the_page_says_so() -> None:
    page = "```bash\noptimize fails\n```\n"
    with pytest.raises(InputError, match="returned 3, not 0"):
        filled(page, echo)
    assert filled(f"<!-- exit code 3 -->\n{page}", echo)
    with pytest.raises(InputError, match="returned 0, not 3"):
        filled("<!-- exit code 3 -->\n```bash\noptimize works\n```\n", echo)


def test_other_programs_are_not_run() -> None:
    with pytest.raises(InputError, match="rm is no command that a page may run"):
        filled("```bash\nrm -r x\n```\n", echo)
    assert filled("<!-- not run: it would hurt -->\n```bash\nrm -r x\n```\n", echo)


def test_an_output_may_name_its_command() -> None:
    page = '```bash\noptimize first\n```\n\n<!-- output of "optimize second | optimize third" -->\n```text\n```\n'
    assert "```text\nsecond\nthird\n```" in filled(page, echo)


def test_messages_and_lines_that_are_not_there() -> None:
    page = "```bash\noptimize a\n```\n\n<!-- messages -->\n```text\n```\n"
    assert "said" in filled(page, echo)
    with pytest.raises(ValueError, match="no line begins with 'z'"):
        next(blocks('<!-- output from "z" -->\n```text\n```\n')).chosen("a\n", "")
