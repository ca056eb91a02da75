# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.client.token import token_headers, without_token
from orchestrator.core.errors import InvalidInput

TOKEN = "vgpuctl_0123456789ab_" + "A" * 43


def _file(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_without_a_token_the_server_goes_by_the_uid() -> None:
    assert token_headers({}) == {}


def test_a_token_is_taken_from_a_file_or_from_the_environment(tmp_path: Path) -> None:
    file = _file(tmp_path / "token", f"{TOKEN}\n")
    expected = {"Authorization": f"Bearer {TOKEN}"}
    assert token_headers({"VGPUCTL_TOKEN_FILE": str(file)}) == expected
    assert token_headers({"VGPUCTL_TOKEN": TOKEN}) == expected


@pytest.mark.parametrize("text", ["", " ", "two words", "a\r\nX-Other: 1", "\u00e4", "\x00"])
def test_what_would_not_fit_into_one_header_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        token_headers({"VGPUCTL_TOKEN_FILE": str(_file(tmp_path / "token", text))})
    assert caught.value.code == "token.malformed"


def test_a_file_that_others_can_read_is_refused_and_its_content_not_said(tmp_path: Path) -> None:
    file = _file(tmp_path / "token", TOKEN, 0o640)
    with pytest.raises(InvalidInput) as caught:
        token_headers({"VGPUCTL_TOKEN_FILE": str(file)})
    assert caught.value.code == "token.exposed"
    assert TOKEN not in f"{caught.value.message}{caught.value.hint}"


def test_a_missing_file_a_directory_and_a_fifo_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    for place in (tmp_path / "nothing", tmp_path, tmp_path / "fifo", Path("a\x00b")):
        with pytest.raises(InvalidInput) as caught:
            token_headers({"VGPUCTL_TOKEN_FILE": str(place)})
        assert caught.value.code == "token.unreadable"


def test_a_server_that_is_started_on_the_way_does_not_get_the_token() -> None:
    given = {"VGPUCTL_TOKEN": TOKEN, "VGPUCTL_TOKEN_FILE": "x", "PATH": "/bin"}
    assert without_token(given) == {"PATH": "/bin"}
