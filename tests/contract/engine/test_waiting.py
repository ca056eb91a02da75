# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from pathlib import Path

import pytest

from orchestrator.adapters.engine.durable import POLL_S
from orchestrator.store.database import Store
from tests.contract.engine.test_durable import Recording, add, durable, queued
from tests.fakes.control_plane import KEY

WAITING = 1000
WORKERS = 8


def resident_mib() -> float:
    """Memory of this process that is in use."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


@pytest.mark.parametrize("of_one_host", [True, False], ids=["for-their-host", "for-each-other"])
def test_a_thousand_operations_that_wait_hold_no_thread(tmp_path: Path, of_one_host: bool) -> None:
    url = f"sqlite:///{tmp_path / 'e.sqlite'}"
    store = Store(url, key=KEY, new_site="s")
    first = [add(store, f"first{number}", subject=f"vm{number}", host="away") for number in range(2)]
    runs = Recording(store)
    engine = durable(store, url, runs, 2, lambda *_: None)
    while len(runs.running) < len(first):
        engine.submit(first[0])
        threading.Event().wait(0.1)
    threads, memory = threading.active_count(), resident_mib()
    with store.begin() as tx:
        for number in range(WAITING):
            subject = f"w{number}" if of_one_host else "vm0"
            tx.operations.add(queued(f"op{number:04}", subject=subject, at=1.0), host="away", inputs={})
    engine.submit("op0000")
    with store.read() as tx:
        assert len(tx.operations.list(unfinished=True, limit=2 * WAITING)) == WAITING + len(first)
    threading.Event().wait(2 * POLL_S)  # the queue has been offered them by then, or is about to be
    print(
        f"{WAITING} waiting operations: {threading.active_count() - threads} more threads,"
        f" {resident_mib() - memory:.1f} MiB more"
    )
    assert threading.active_count() - threads <= WORKERS
    assert runs.running == set(first)
    runs.gate.set()
    engine.stop()
    with store.read() as tx:
        left = tx.operations.list(unfinished=True, limit=2 * WAITING)
    assert len(left) > WAITING // 2
    store.close()
