# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.contract.engine.controller NAME URL DIRECTORY [ACT MOMENT EFFECT]``: one controller process.

The real database, runner and engine over hosts in a file. At an effect it can kill or stop itself, once.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from orchestrator.adapters.engine.durable import DurableEngine
from orchestrator.adapters.engine.live_controllers import LiveControllers, process_name
from orchestrator.adapters.engine.places import Bounds
from orchestrator.adapters.engine.work_queue import WorkQueue
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.runner import Runner
from orchestrator.store.queue_database import QueueDatabase
from tests.fakes.control_plane import control_plane
from tests.fakes.shared_hosts import SharedHosts

_ACTS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


def acting(reached: Path, act: Sequence[str]) -> Callable[[str, str], None]:
    """What tests/fakes/shared_hosts.py calls at effects: who makes the file ``reached`` ends or stops there."""

    def at(moment: str, effect: str) -> None:
        if tuple(act[1:]) == (moment, effect) and not reached.exists():
            reached.touch(exist_ok=False)
            signal.raise_signal(_ACTS[act[0]])  # to this thread: it gets no further

    return at


def main() -> None:
    name, url, place, *act = sys.argv[1:]
    directory = Path(place)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # before there are threads: only sigwait gets it
    at = acting(directory / f"{name}.reached", act)
    plane = control_plane(directory, hosts=SharedHosts(directory / "hosts", at), url=url)
    queue = url.replace("vgpuctl.sqlite", "queue.sqlite")
    bounds, process = Bounds(workers=4, per_host=2), process_name(name)
    engine = DurableEngine(
        plane.store,
        Runner(plane.world, plane.journal, DEFINITIONS),
        bounds=bounds,
        open_queue=lambda run: WorkQueue(QueueDatabase(queue), process, bounds, run),
        living=LiveControllers(plane.store, process, alone=url.startswith("sqlite")),
        afterwards=lambda _host, _subject: None,
    )
    engine.recover()
    signal.sigwait({signal.SIGTERM})
    engine.stop()


if __name__ == "__main__":
    main()
