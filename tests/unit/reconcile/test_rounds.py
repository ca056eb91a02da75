# SPDX-License-Identifier: Apache-2.0
"""What rounds of looks cost, and who waits for whom in them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

from sqlalchemy import Connection, Engine, event

from orchestrator.core.errors import Retryable
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.reconcile.reconciler import Reconciler
from orchestrator.services.hosts.observing import HostObserver
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.fake_host import FakeHosts

LIMIT_S = 60.0
DOWN = 20


class HalfDown(FakeHosts):
    """Most of its hosts do not answer before they are let go."""

    let_go: threading.Event
    observed: Counter[str]

    def observe(self, host: Host) -> HostSnapshot:
        self.observed[host.name] += 1
        if host.name.startswith("down"):
            assert self.let_go.wait(LIMIT_S)
            raise Retryable("host.unreachable", "down")
        return super().observe(host)


def with_hosts_down(plane: ControlPlane) -> HalfDown:
    with plane.store.begin() as tx:
        known = tx.hosts.get(T4_HOST)
        for number in range(DOWN):
            name = f"down{number}"
            tx.hosts.add(replace(known, name=name, address=name, state="unreachable", managed_gpus=()))
    hosts = HalfDown(plane.hosts.machines)
    hosts.let_go, hosts.observed = threading.Event(), Counter()
    return hosts


def test_hosts_that_are_down_do_not_keep_the_others_from_their_looks(tmp_path: Path) -> None:
    plane = control_plane(tmp_path)
    plane.add_host(T4_HOST)
    plane.add_host(L40S_HOST)
    hosts = with_hosts_down(plane)
    observer = HostObserver(store=plane.store, link=hosts, clock=plane.world.clock)
    reconciler: Reconciler = replace(plane.reconciler, observer=observer, at_once=2, silent_timeout_s=0.0)
    for _ in range(2):
        reconciler.round()
    assert (hosts.observed[T4_HOST], hosts.observed[L40S_HOST]) == (2, 2)
    hosts.let_go.set()
    reconciler.close()
    plane.store.close()


def test_who_tells_of_a_host_that_does_not_answer_waits_for_nothing_and_it_is_looked_at_once_more(
    tmp_path: Path,
) -> None:
    plane = control_plane(tmp_path)
    plane.add_host(T4_HOST)
    hosts = with_hosts_down(plane)
    begun, ended = threading.Semaphore(0), threading.Semaphore(0)

    class Heard(HostObserver):
        def observe(self, name: str) -> None:
            begun.release()
            super().observe(name)
            ended.release()

    observer = Heard(store=plane.store, link=hosts, clock=plane.world.clock)
    reconciler: Reconciler = replace(plane.reconciler, observer=observer, at_once=2, between_s=0.05)
    for _ in range(3):
        reconciler.observe_soon("down0")
    assert begun.acquire(timeout=LIMIT_S)
    for _ in range(3):  # while it is looked at, in vain
        reconciler.observe_soon("down0")
    assert not begun.acquire(blocking=False)
    hosts.let_go.set()
    for _ in range(2):
        assert ended.acquire(timeout=LIMIT_S)
    reconciler.close()
    assert hosts.observed["down0"] == 2
    plane.store.close()


def test_a_host_that_tells_without_a_pause_is_looked_at_no_more_often_than_others_bear(tmp_path: Path) -> None:
    plane = control_plane(tmp_path)
    plane.add_host(T4_HOST)
    began = list[float]()

    class Timed(HostObserver):
        def observe(self, name: str) -> None:
            began.append(time.monotonic())
            super().observe(name)

    observer = Timed(store=plane.store, link=plane.hosts, clock=plane.world.clock)
    reconciler: Reconciler = replace(plane.reconciler, observer=observer, between_s=0.1)
    last = first = time.monotonic()
    while last < first + 0.45:
        last = time.monotonic()
        reconciler.observe_soon(T4_HOST)
    deadline = time.monotonic() + LIMIT_S
    while (not began or began[-1] < last) and time.monotonic() < deadline:
        time.sleep(0.01)
    reconciler.close()
    assert began[-1] >= last, "what it told last was not looked at"
    assert len(began) - 1 <= (began[-1] - first) / reconciler.between_s
    plane.store.close()


def test_who_asks_is_told_how_hosts_are_now_and_not_how_a_look_that_began_before_saw_them(tmp_path: Path) -> None:
    plane = control_plane(tmp_path)
    plane.add_host(T4_HOST)
    begun, let_go = threading.Semaphore(0), threading.Event()

    class Held(FakeHosts):
        def observe(self, host: Host) -> HostSnapshot:
            found = super().observe(host)
            begun.release()
            assert let_go.wait(LIMIT_S)
            return found

    hosts = Held(plane.hosts.machines)
    observer = HostObserver(store=plane.store, link=hosts, clock=plane.world.clock)
    reconciler: Reconciler = replace(plane.reconciler, observer=observer, timeout_s=LIMIT_S)
    reconciler.observe_soon(T4_HOST)
    assert begun.acquire(timeout=LIMIT_S)
    asking = threading.Thread(target=partial(reconciler.round, asked=True))
    asking.start()
    try:
        assert begun.acquire(timeout=LIMIT_S), "it is looked at once more, while the first look is under way"
    finally:
        let_go.set()
        asking.join(LIMIT_S)
        reconciler.close()
        plane.store.close()


def test_a_look_that_finds_nothing_writes_what_it_saw_and_nothing_more(tmp_path: Path) -> None:
    plane = control_plane(tmp_path)
    plane.add_host(T4_HOST)
    plane.services.vms.create(create_vm())
    plane.engine.drain()
    plane.reconciler.observe(T4_HOST)
    written = []

    def committed(connection: Connection) -> None:
        if connection.get_execution_options()["how"] != "reading":
            written.append(connection)

    event.listen(Engine, "commit", committed)
    try:
        plane.reconciler.observe(T4_HOST)
    finally:
        event.remove(Engine, "commit", committed)
    assert len(written) == 1
    plane.store.close()
