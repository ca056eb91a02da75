# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.core.errors import why_unreadable, why_unwritable


def _file(directory: Path) -> Path:
    file = directory / "file"
    file.write_bytes(b"\xff\xfe\xff")
    return file


def _loop(directory: Path) -> Path:
    link = directory / "loop"
    link.symlink_to(link)
    return link


CASES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "nothing there": (lambda directory: directory / "none", "there is no such file"),
    "below a file": (lambda directory: _file(directory) / "below", "a part of its path is no directory"),
    "a directory": (lambda directory: directory, "it is a directory"),
    "not text": (_file, "it is not UTF-8 text"),
    "a NUL byte": (lambda directory: directory / "a\0b", "its name is none that a file can have"),
    "a circle of links": (_loop, "too many levels of symbolic links"),
    "too long a name": (lambda directory: directory / ("x" * 300), "file name too long"),
}


@pytest.mark.parametrize("case", CASES)
def test_why_a_file_cannot_be_read_is_said_in_words(case: str, tmp_path: Path) -> None:
    make, words = CASES[case]
    with pytest.raises((OSError, ValueError)) as caught:
        make(tmp_path).read_text(encoding="utf-8")
    assert isinstance(caught.value, (OSError, ValueError))
    assert why_unreadable(caught.value) == words


def test_why_a_file_cannot_be_made_is_said_in_words(tmp_path: Path) -> None:
    for path, words in ((tmp_path / "none" / "x", "there is no such directory"), (tmp_path, "it is a directory")):
        with pytest.raises(OSError) as caught:
            path.write_text("x")
        assert why_unwritable(caught.value) == words
    with pytest.raises(OSError) as twice:
        tmp_path.mkdir()
    assert why_unwritable(twice.value) == "it exists already"


def test_a_file_of_somebody_elses_is_said_to_be_protected() -> None:
    assert why_unreadable(PermissionError(13, "Permission denied")) == "its permissions do not allow it"
