# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.adapters.state.directory import ExecutorLock
from orchestrator.core.errors import Conflict


def test_a_state_directory_has_one_executor_until_it_lets_go(tmp_path: Path) -> None:
    first = ExecutorLock(tmp_path / "lock")
    with pytest.raises(Conflict) as refused:
        ExecutorLock(tmp_path / "lock")
    assert refused.value.code == "serve.already_running"
    first.release()
    ExecutorLock(tmp_path / "lock").release()
