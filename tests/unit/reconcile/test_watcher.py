# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.core.controller import turn_of
from orchestrator.core.errors import Retryable
from orchestrator.core.hosts.host import Host
from orchestrator.core.readings.frame import HostFrame
from orchestrator.reconcile.watcher import Watcher
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.fake_host import FakeHosts

Event = dict[str, object] | HostFrame
STRANGER: Event = {"kind": "domain", "vm": "f0000000-0000-4000-8000-000000000000", "what": "stopped"}


class Talking(FakeHosts):
    """Hosts whose agents send what a test puts in; None ends the channel."""

    def __init__(self, hosts: FakeHosts) -> None:
        super().__init__(hosts.machines, hosts.site)
        self.events: dict[str, queue.Queue[Event | None]] = {name: queue.Queue() for name in (T4_HOST, L40S_HOST)}
        self.channels: queue.Queue[str] = queue.Queue()
        self.refuses = False

    def watch(self, host: Host) -> Iterator[Event]:
        self.channels.put(host.name)
        if self.refuses:
            raise Retryable("libvirt.unreachable", "libvirt is not running on the host")
        while (event := self.events[host.name].get(timeout=60)) is not None:
            yield event


class Scene:
    def __init__(self, plane: ControlPlane, most: int = 8, first: str = T4_HOST) -> None:
        self.link = Talking(plane.hosts)
        self.told: queue.Queue[str] = queue.Queue()
        self.watcher = Watcher(
            plane.store, self.link, self.told.put, plane.services.readings.kept, most=most,
            turn=lambda host: int(host != first),
        )  # fmt: skip

    def end(self) -> None:
        for events in self.link.events.values():
            events.put(None)
        for thread in list(self.watcher._listening.values()):
            thread.join(60)


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    made = control_plane(tmp_path)
    made.add_host(T4_HOST)
    made.add_host(L40S_HOST)
    yield made
    made.reconciler.close()
    made.store.close()


@pytest.fixture
def scene(plane: ControlPlane) -> Iterator[Scene]:
    made = Scene(plane)
    yield made
    made.end()


def test_what_happens_on_a_host_is_told_with_its_name(scene: Scene) -> None:
    scene.watcher.round()
    scene.link.events[L40S_HOST].put(STRANGER)
    assert scene.told.get(timeout=60) == L40S_HOST
    scene.link.events[T4_HOST].put({"kind": "libvirt_closed"})
    assert scene.told.get(timeout=60) == T4_HOST


def test_a_host_is_listened_to_once_and_again_after_its_channel_ended(scene: Scene) -> None:
    scene.watcher.round()
    assert {scene.link.channels.get(timeout=60) for _ in range(2)} == {T4_HOST, L40S_HOST}
    scene.watcher.round()
    scene.link.events[T4_HOST].put(None)
    scene.watcher._listening[T4_HOST].join(60)
    scene.watcher.round()
    assert scene.link.channels.get(timeout=60) == T4_HOST
    assert scene.link.channels.empty()


def test_a_host_that_refuses_is_asked_again_at_the_next_round(scene: Scene) -> None:
    scene.link.refuses = True
    for _ in range(2):
        scene.watcher.round()
        assert {scene.link.channels.get(timeout=60) for _ in range(2)} == {T4_HOST, L40S_HOST}
        for thread in scene.watcher._listening.values():
            thread.join(60)


def test_what_an_operation_of_ours_does_is_no_news_until_it_has_ended(plane: ControlPlane, scene: Scene) -> None:
    plane.services.vms.create(create_vm())
    vm = plane.services.vms.get("default", "train")
    event: dict[str, object] = {"kind": "domain", "vm": vm.id, "what": "started"}
    assert not scene.watcher._is_news(event)
    plane.engine.drain()
    assert scene.watcher._is_news(event)


@pytest.mark.fault("F45")
def test_an_event_that_comes_twice_and_late_makes_nothing_untrue(plane: ControlPlane, scene: Scene) -> None:
    """The guest had stopped, and runs again when that is told."""
    plane.services.vms.create(create_vm())
    plane.engine.drain()
    vm = plane.services.vms.get("default", "train")
    scene.watcher.round()
    for _ in range(2):
        scene.link.events[vm.host].put({"kind": "domain", "vm": vm.id, "what": "stopped"})
        plane.reconciler.observe(scene.told.get(timeout=60))
        assert plane.services.vms.get("default", "train").state == "running"
    assert (plane.findings.list(host=vm.host), plane.engine.waiting) == ((), [])


def test_only_ready_hosts_and_only_so_many_are_listened_to(plane: ControlPlane) -> None:
    none = Scene(plane, most=0)
    none.watcher.round()
    assert none.link.channels.empty()
    one = Scene(plane, most=1)
    plane.machine(T4_HOST).answers = False
    plane.reconciler.round()
    one.watcher.round()
    assert one.link.channels.get(timeout=60) == L40S_HOST
    plane.machine(T4_HOST).answers = True
    plane.reconciler.round()
    one.watcher.round()
    one.end()
    assert one.link.channels.empty()


def test_where_not_all_are_listened_to_those_whose_turn_is_first_are(plane: ControlPlane) -> None:
    for first in (T4_HOST, L40S_HOST):
        scene = Scene(plane, most=1, first=first)
        scene.watcher.round()
        assert scene.link.channels.get(timeout=60) == first
        scene.end()
        assert scene.link.channels.empty()


def test_readings_are_kept_and_are_no_news(plane: ControlPlane, scene: Scene) -> None:
    scene.watcher.round()
    scene.link.events[T4_HOST].put(HostFrame(0.0, ()))
    scene.link.events[T4_HOST].put(STRANGER)
    assert scene.told.get(timeout=60) == T4_HOST
    assert plane.services.readings.kept.last(T4_HOST) is not None
    assert plane.services.readings.kept.last(L40S_HOST) is None
    assert scene.told.empty()


def test_controllers_listen_to_different_hosts_first() -> None:
    hosts = [f"gpu-{number}" for number in range(1000)]
    living = frozenset(("a", "b", "c"))
    turns = {name: {host: turn_of(host, name, living) for host in hosts} for name in living}
    assert all(sorted(turns[name][host] for name in living) == [0, 1, 2] for host in hosts)
    assert all(250 < sum(turn == 0 for turn in turns[name].values()) < 420 for name in living)
    moved = [host for host in hosts if turns["a"][host] == 0 and turn_of(host, "a", living - {"b"}) != 0]
    assert moved == []


def test_after_close_nothing_is_told_and_nobody_listens_anew(scene: Scene) -> None:
    scene.watcher.round()
    assert {scene.link.channels.get(timeout=60) for _ in range(2)} == {T4_HOST, L40S_HOST}
    scene.watcher.close()
    scene.link.events[T4_HOST].put(STRANGER)
    scene.end()
    scene.watcher.round()
    assert scene.told.empty()
    assert scene.link.channels.empty()
