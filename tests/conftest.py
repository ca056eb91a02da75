# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import settings

from tests.operations.counts import FAULTS
from tests.postgres.cluster import Cluster, cluster
from tools.client_code import write_client

_NAME = "fault_matrix"
_MEMORY: Final = Path("/dev/shm")
_ENOUGH: Final = 1 << 30
"""Bytes, of which the quick tests need a tenth."""

# Properties have no deadline and are drawn alike in each run: they judge the commit, not the load nor the draw. Said
# before other conftests import tests.
settings.load_profile("ci")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    # A test's data need not outlive the machine, only the processes under test.
    with cluster("fsync=off", "max_connections=200") as made:
        yield made


class Collected:
    """Brings the counts of xdist's workers together."""

    def __init__(self, faults: Counter[str]) -> None:
        self._faults = faults

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._faults.update(getattr(node, "workeroutput", {}).get(_NAME, {}))


def pytest_configure(config: pytest.Config) -> None:
    # Where it is set, as in many containers, each of the servers and commands that tests begin compiles all it imports.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False  # each worker would compile all the tests once more
    write_client()  # where nobody ran make dev after a pull
    # Collecting for every 700 objects, as Python does by itself, is a sixth of the processor time of quick tests.
    gc.set_threshold(20_000, 10, 10)
    if "VGPUCTL_TESTS_IN_MEMORY" in os.environ and _keeps_programs(_MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))
    config.pluginmanager.register(Collected(config.stash.setdefault(FAULTS, Counter())))


def _keeps_programs(memory: Path) -> bool:
    """Whether the tests' temporary files can lie there: databases that are written through to a disk wait for it."""
    if not memory.is_dir() or shutil.disk_usage(memory).free < _ENOUGH:
        return False
    return not os.statvfs(memory).f_flag & os.ST_NOEXEC


def pytest_sessionfinish(session: pytest.Session) -> None:
    # What thousands of tests have imported and kept takes seconds to look through once more. A worker that does not end
    # within five is interrupted by execnet, as if somebody had pressed Ctrl-C (docs/decisions/tests.md).
    gc.freeze()
    if hasattr(session.config, "workeroutput"):
        faults = session.config.stash[FAULTS]
        session.config.workeroutput[_NAME] = dict(faults)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for backend, count in sorted(config.stash[FAULTS].items()):
        terminalreporter.write_line(f"fault matrix on {backend}: {count} runs of an operation, each with its own fault")
