# SPDX-License-Identifier: Apache-2.0
"""What operations that wait cost."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.adapters.engine.durable import DurableEngine
from orchestrator.adapters.engine.live_controllers import LiveControllers
from orchestrator.adapters.engine.places import Bounds
from orchestrator.adapters.engine.work_queue import WorkQueue
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.runner import Runner
from orchestrator.store.queue_database import QueueDatabase
from tests.bench.control_plane.memory import memory_mib
from tests.bench.placement.rows import Row, rows_of
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, control_plane, create_vm
from tests.postgres.cluster import cluster

WAITING = 1000


def suite(policies: Sequence[str]) -> Iterator[Row]:
    if "sqlite" in policies:
        with tempfile.TemporaryDirectory() as directory:
            yield from _case("sqlite", Path(directory), f"sqlite:///{Path(directory) / 'e.sqlite'}")
    if "postgresql" in policies:
        with tempfile.TemporaryDirectory() as directory, cluster("max_connections=50") as postgres:
            yield from _case("postgresql", Path(directory), postgres.database())


def _case(case: str, directory: Path, url: str) -> Iterator[Row]:
    plane = control_plane(directory, url=url)
    plane.add_host(T4_HOST)
    plane.add_host(L40S_HOST)
    ended = threading.Semaphore(0)
    bounds = Bounds(workers=8, per_host=8)
    engine = DurableEngine(
        plane.store,
        Runner(plane.world, plane.journal, DEFINITIONS),
        bounds=bounds,
        open_queue=lambda run: WorkQueue(QueueDatabase(url.replace("e.sqlite", "queue.sqlite")), "bench", bounds, run),
        living=LiveControllers(plane.store, "bench", alone=case == "sqlite"),
        afterwards=lambda _host, _subject: ended.release(),
    )
    plane.services.vms.create(create_vm("warm"))
    ended.acquire()
    yield from rows_of("operations", case, "8 workers", _waiting(plane, engine))
    engine.stop()
    plane.store.close()


def _waiting(plane: ControlPlane, engine: DurableEngine) -> dict[str, float]:
    """Many operations behind one that runs: what they cost in threads and memory of this process."""
    running, go_on = threading.Event(), threading.Event()

    def hold(_number: int, _moment: str, _name: str) -> None:
        running.set()
        go_on.wait()

    plane.hosts.strike = hold
    first = plane.services.vms.delete("default", "warm")
    engine.submit(str(first.operation))
    running.wait()
    threads, memory = threading.active_count(), memory_mib()
    with plane.store.begin() as tx:
        job = tx.operations.get(str(first.operation))
        for number in range(WAITING):
            behind = replace(
                job.operation, id=f"waits-{number}", state="queued", attempt=0, created_at=job.operation.created_at + 1
            )
            tx.operations.add(behind, host=job.host, inputs=job.inputs)
    for number in range(WAITING):
        engine.submit(f"waits-{number}")
    time.sleep(5)  # three looks at least
    values = {
        "waiting": float(WAITING),
        "threads_more": float(threading.active_count() - threads),
        "memory_more_mib": memory_mib() - memory,
    }
    go_on.set()
    return values
