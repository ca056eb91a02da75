# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.walkthrough import commands_of, walk

PAGE = """\
Text.
```console
$ word=hello
$ echo "$word  world"
hello world
```
More text.
```console
$ seq 5
1
…
5
$ false || echo "exit $?"
exit 1
$ true
```
"""


def _walk(page: Path, text: str) -> None:
    page.write_text(text)
    walk(commands_of(page), page.parent, limit_s=60)


def test_a_page_that_is_true_is_walked_to_its_end(tmp_path: Path) -> None:
    _walk(tmp_path / "page.md", PAGE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("hello world", "hello moon"),
        ("exit 1", "exit 2"),
        ("1\n…\n5", "1\n5"),
        ("$ true\n", "$ true\nsomething\n"),
        ("$ true", "$ false"),
        ("$ seq 5", "$ exit 0"),
    ],
)
def test_a_page_that_is_not_true_is_told(tmp_path: Path, old: str, new: str) -> None:
    with pytest.raises(AssertionError):
        _walk(tmp_path / "page.md", PAGE.replace(old, new))
