# SPDX-License-Identifier: Apache-2.0
"""Backups and state directories that are not as they should be: one line, and nothing is left behind."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.core.errors import InvalidInput, VgpuctlError
from orchestrator.server import backup
from orchestrator.server.backup import DATABASE, back_up, restore
from tests.fakes.control_plane import KEY, control_plane

NOW = 1_800_000_000.0


@pytest.fixture
def good(tmp_path: Path) -> Path:
    state = tmp_path / "old"
    (state / "secrets").mkdir(parents=True)
    (state / "secrets" / "database_key").write_bytes(KEY)
    control_plane(state).store.close()
    back_up(state, tmp_path / "backup")
    return tmp_path / "backup"


def with_changed(good: Path, name: str, content: bytes | None) -> Path:
    """The backup with another content of one file, or without it."""
    bad = good.with_name("bad")
    with tarfile.open(good) as old, tarfile.open(bad, "w:gz") as new:
        for member in old:
            file = old.extractfile(member)
            data = b"" if file is None else file.read()
            if member.name == name:
                if content is None:
                    continue
                data = content
            member.size = len(data)
            new.addfile(member, io.BytesIO(data))
    return bad


def refused(state: Path, file: Path) -> str:
    with pytest.raises(VgpuctlError) as caught:
        restore(state, file, NOW)
    assert "\n" not in caught.value.message
    assert caught.value.hint
    return caught.value.code


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("secrets/database_key", None),
        ("secrets/database_key", b""),
        ("secrets/database_key", b"junk"),
        (DATABASE, b""),
        (DATABASE, b"junk" * 1000),
        (DATABASE, None),
    ],
)
def test_a_backup_without_its_key_or_database_is_refused(
    tmp_path: Path, good: Path, name: str, content: bytes | None
) -> None:
    code = refused(tmp_path / "new", with_changed(good, name, content))
    assert code in {"backup.unreadable", "store.damaged"}
    assert list((tmp_path / "new").iterdir()) == []


def as_file(state: Path) -> None:
    state.write_text("a file")


def below_a_file(state: Path) -> None:
    state.parent.write_text("a file")


def with_secrets(state: Path) -> None:
    (state / "secrets").mkdir(parents=True)


def open_to_all(state: Path) -> None:
    state.mkdir(parents=True)
    state.chmod(0o777)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (as_file, "backup.state_unusable"),
        (below_a_file, "backup.state_unusable"),
        (with_secrets, "backup.state_in_use"),
        (open_to_all, "backup.state_unusable"),
    ],
)
def test_a_state_directory_that_cannot_be_used_is_refused(
    tmp_path: Path, good: Path, make: Callable[[Path], None], code: str
) -> None:
    state = tmp_path / "place" / "new"
    if make is not below_a_file:
        state.parent.mkdir()
    make(state)
    assert refused(state, good) == code
    assert not (state / DATABASE).exists()


def test_what_is_unpacked_is_bounded(tmp_path: Path, good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup, "_MAX_UNPACKED_BYTES", 1000)
    assert refused(tmp_path / "new", good) == "backup.unreadable"
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.parametrize(
    "content", [gzip.compress(b"x", mtime=0), b"\xfd7zXZ\0junk", b"BZh9junk", b"\x1f\x8bjunk", b"", b"\0" * 1024]
)
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(InvalidInput) as caught:
        restore(tmp_path / "new", tmp_path / "file", NOW)
    assert caught.value.code == "backup.unreadable"
