# SPDX-License-Identifier: Apache-2.0
"""One bad host costs that host: the others are looked at, everything can be listed, the timers go on."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from orchestrator.adapters.engine.timer import Course
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import FileSnapshot, HostSnapshot
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.fake_host import FakeHosts
from tests.fakes.fake_machine import FakeMachine, l40s, t4
from tests.fakes.new_database import engine_beside
from tests.hostile.answers import errors, snapshots, whole
from tests.hostile.bad_agent import Answer, BadAgentLink, answering
from tests.hostile.test_frames import good
from tests.postgres.cluster import Cluster

BAD = f"{T4_HOST}.test"
Observe = Callable[[Host], HostSnapshot]


class HostsWithABadOne(FakeHosts):
    """``observe_bad`` is asked for the bad host's snapshot once it is set."""

    observe_bad: Observe | None = None

    def observe(self, host: Host) -> HostSnapshot:
        if host.address == BAD and self.observe_bad is not None:
            return self.observe_bad(host)
        return super().observe(host)

    def turn(self, answer: Answer) -> None:
        self.observe_bad = BadAgentLink(answer).observe


@contextmanager
def fleet(state: Path, url: str | None = None) -> Iterator[tuple[ControlPlane, HostsWithABadOne]]:
    hosts = HostsWithABadOne({
        BAD: FakeMachine(machine_id="m1", gpus=[t4()]), f"{L40S_HOST}.test": FakeMachine(machine_id="m2", gpus=[l40s()])
    })  # fmt: skip
    plane = control_plane(state, hosts=hosts, url=url)
    plane.add_host(T4_HOST)
    plane.add_host(L40S_HOST)
    yield plane, hosts
    plane.reconciler.close()
    plane.store.close()


def nothing_else_is_harmed(plane: ControlPlane) -> None:
    """The good host is looked at, and whatever lists things lists them."""
    before = plane.services.hosts.get(L40S_HOST).host.last_seen_at or 0
    plane.world.clock.sleep(101)  # that a host as before was seen is written once it is 100 s old
    plane.reconciler.round()
    by_name = {info.host.name: info for info in plane.services.hosts.list()}
    assert by_name[L40S_HOST].host.state == "ready"
    assert (by_name[L40S_HOST].host.last_seen_at or 0) > before
    assert by_name[T4_HOST].host.name == T4_HOST
    assert {info.host for info in plane.services.gpus.list(None)} >= {L40S_HOST}
    plane.findings.list(host=None)
    plane.services.tenancy.audit.seal()
    json.dumps([one.finding.observed for one in plane.findings.list(host=None)]).encode()


def test_whatever_a_host_answers_the_others_are_looked_at(tmp_path: Path) -> None:
    every = itertools.chain(whole(), errors(), itertools.islice(snapshots(good()), 0, None, 9))
    with fleet(tmp_path) as (plane, hosts):
        for _name, answer in every:
            hosts.turn(answer)
            nothing_else_is_harmed(plane)
        hosts.observe_bad = None
        nothing_else_is_harmed(plane)
        assert plane.services.hosts.get(T4_HOST).host.state == "ready", "it may come back"


@pytest.mark.soak
def test_whatever_a_host_answers_the_others_are_looked_at_every_case(tmp_path: Path) -> None:
    with fleet(tmp_path) as (plane, hosts):
        for _name, answer in snapshots(good()):
            hosts.turn(answer)
            nothing_else_is_harmed(plane)


@pytest.mark.parametrize(
    "error",
    [RecursionError("too deep"), MemoryError(), KeyError("a"), UnicodeEncodeError("utf-8", "\ud800", 0, 1, "no")],
    ids=repr,
)
def test_an_exception_nobody_thought_of_is_a_finding_about_its_host(tmp_path: Path, error: Exception) -> None:
    def broken(_host: Host) -> HostSnapshot:
        raise error

    with fleet(tmp_path) as (plane, hosts):
        hosts.observe_bad = broken
        nothing_else_is_harmed(plane)
        found = [one.finding for one in plane.findings.list(host=T4_HOST)]
        assert [(one.code, type(error).__name__ in one.observed) for one in found] == [("host.broke", True)]
        hosts.observe_bad = None
        plane.reconciler.round()
        assert plane.findings.list(host=T4_HOST) == ()


def test_a_round_with_a_bad_host_in_it_has_gone_well(tmp_path: Path) -> None:
    course = Course("observe", 10)
    with fleet(tmp_path) as (plane, hosts):
        hosts.turn(answering("[" * 100_000))
        course.round(plane.reconciler.round)
    assert (course.health().failed, course.health().error) == (0, None)


def with_files(hosts: FakeHosts, names: list[str]) -> Observe:
    def observe(host: Host) -> HostSnapshot:
        seeds = tuple(FileSnapshot(name=name, size_bytes=1, owner=None) for name in names)
        return replace(FakeHosts.observe(hosts, host), seeds=seeds)

    return observe


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_file_name_of_any_length_is_a_finding(tmp_path: Path, postgres: Cluster, backend: str) -> None:
    url = postgres.database() if backend == "postgresql" else None
    with fleet(tmp_path, url) as (plane, hosts):
        hosts.observe_bad = with_files(hosts, ["x" * 174, "\u00e4" * 127, "same", "same"])
        nothing_else_is_harmed(plane)
        found = sorted(one.finding.subject for one in plane.findings.list(host=T4_HOST))
        assert found == ["seed same", f"seed {'x' * 174}", f"seed {chr(228) * 127}"]


def test_a_stored_snapshot_that_cannot_be_read_makes_its_own_host_unknown_and_nothing_else(tmp_path: Path) -> None:
    with fleet(tmp_path) as (plane, hosts):
        plane.services.vms.create(create_vm())
        plane.engine.drain()
        plane.store.close()
        engine = engine_beside(f"sqlite:///{tmp_path / 'vgpuctl.sqlite'}")
        for document in ('{"machine_id":"\\ud800"}', '{"machine_id":', "[" * 5000, "7", '{"gpus":3}'):
            with engine.begin() as connection:
                query = text("UPDATE snapshots SET document = :d WHERE host = :h")
                assert connection.execute(query, {"d": document, "h": T4_HOST}).rowcount == 1
            again = control_plane(tmp_path, hosts=hosts)
            by_name = {info.host.name: info for info in again.services.hosts.list()}
            assert by_name[T4_HOST].snapshot is None
            assert by_name[L40S_HOST].snapshot is not None
            assert {info.host for info in again.services.gpus.list(None)} == {L40S_HOST}
            assert [vm.spec.name for vm in again.services.vms.list(None)] == ["train"]
            again.store.close()
        engine.dispose()
        again = control_plane(tmp_path, hosts=hosts)
        again.world.clock.sleep(3600)
        again.reconciler.round()
        assert again.services.hosts.get(T4_HOST).snapshot is not None, "the next look is readable"
        again.reconciler.close()
        again.store.close()
