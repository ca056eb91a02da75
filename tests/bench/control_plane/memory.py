# SPDX-License-Identifier: Apache-2.0
"""What a process holds in memory, and what ``serve`` holds with many hosts."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from orchestrator.client.autostart import connect_running, server_info
from tests.bench.placement.rows import Row, rows_of
from tests.fakes.running import running_server

FLEETS: Final = (1000, 10_000)
_FLEET: Final = """\
groups:
  - {{name: l40s, count: {hosts}, gpu_model: L40S, gpus_per_host: 8, vcpus: 128, memory_gib: 1024}}
"""
_START_S: Final = 900
_SETTLE_S: Final = 60
"""Two looks at every host fit into it."""


def memory_mib(process: int | str = "self", *, most: bool = False) -> float:
    """Resident now, or the most that it ever was; MiB."""
    return _status(process, "VmHWM" if most else "VmRSS") / 1024


def _status(process: int | str, name: str) -> int:
    return int(Path(f"/proc/{process}/status").read_text().split(f"{name}:")[1].split()[0])


def suite() -> Iterator[Row]:
    """Suite ``memory``: a server of each size of fleet, its hosts in memory."""
    for hosts in FLEETS:
        with tempfile.TemporaryDirectory() as directory:
            yield from _case(hosts, Path(directory))


def _case(hosts: int, directory: Path) -> Iterator[Row]:
    fleet = directory / "fleet.yaml"
    fleet.write_text(_FLEET.format(hosts=hosts))
    began = time.perf_counter()
    arguments = ("--simulate", str(fleet))
    with running_server(
        directory / "s", *arguments, module="orchestrator.server.serve", timeout_s=_START_S, tree=Path.cwd()
    ) as state:
        ready = time.perf_counter() - began
        connection = connect_running(state)
        assert connection is not None
        pid = int(server_info(connection)["pid"])
        time.sleep(_SETTLE_S)
        values = {"ready_s": ready, "most_mib": memory_mib(pid, most=True), "threads": _status(pid, "Threads")}
        yield from rows_of("memory", f"hosts={hosts}", "serve", values)
