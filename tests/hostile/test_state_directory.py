# SPDX-License-Identifier: Apache-2.0
"""A server keeps its keys and database where nobody else can exchange them, or does not begin."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.core.errors import Fatal
from orchestrator.server.serve import run


def _foreign(directory: Path) -> Path:
    """One of another user's: made so by root, found by everybody else."""
    if os.geteuid() != 0:
        return Path("/")
    directory.mkdir()
    os.chown(directory, 65534, -1)
    return directory


def _refused(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGPUCTL_STATE", str(state))
    before = sorted(state.iterdir())
    with pytest.raises(Fatal) as refused:
        run(detached=False)
    assert refused.value.code == "server.state_unsafe"
    assert sorted(state.iterdir()) == before


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o702, 0o2773])
def test_a_state_directory_that_everybody_may_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(mode)
    _refused(state, monkeypatch)


def test_a_state_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _refused(_foreign(tmp_path / "state"), monkeypatch)


def test_a_link_to_such_a_directory_is_refused_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there, link = tmp_path / "there", tmp_path / "link"
    there.mkdir()
    there.chmod(0o777)
    link.symlink_to(there)
    _refused(link, monkeypatch)
