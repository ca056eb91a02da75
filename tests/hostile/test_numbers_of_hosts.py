# SPDX-License-Identifier: Apache-2.0
"""A host that tells the largest numbers that are believed costs nobody the answers about all hosts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import GpuSnapshot, HostSnapshot, HostVgpuType
from orchestrator.core.hosts.snapshot_rules import BOUNDS, checked
from orchestrator.services.vms.capacity import Question
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, create_vm
from tests.hostile.test_bad_host import HostsWithABadOne, fleet
from tests.unit.core.test_snapshot_bounds import at, leaves, put

_LONGEST_S = 2.0
"""Of any one answer, on a busy machine; they take milliseconds."""


def largest(snapshot: HostSnapshot) -> HostSnapshot:
    """With every number of its hardware as large as it is believed, one of a kind at a time."""
    for path in leaves(snapshot, int):
        if path[0] in {"epoch", "protocol", "nodes"} or not isinstance(path[-1], str):
            continue
        rows = BOUNDS[type(at(snapshot, path[:-1]))]
        if path[-1] not in {"id", "start", "size", "gpu_instance", "placement_id", "type_id"}:
            snapshot = put(snapshot, path, rows[path[-1]].most)
    return snapshot


def many_types(gpu: GpuSnapshot) -> GpuSnapshot:
    """As many as are believed, each as often as is believed, no two of one size."""
    types = tuple(
        HostVgpuType(name=f"GRID X-{number}Q", type_id=number, framebuffer_mib=number, max_instances=1024)
        for number in range(BOUNDS[GpuSnapshot]["types"].most - len(gpu.types))
    )
    return replace(gpu, types=(*gpu.types, *types))


def answers(plane: ControlPlane) -> dict[str, Callable[[], Any]]:
    services = plane.services
    question = Question(profile="GRID T4-2Q")
    return {
        "gpus": lambda: services.gpus.list(None),
        "capacity": lambda: services.capacity.capacity(Question(each=True)),
        "capacity of one": lambda: services.capacity.capacity(question),
        "explain": lambda: services.capacity.explain(question),
        "room": lambda: services.capacity.room(Question(each=True), "default"),
        "map": services.capacity.gpu_map,
        "hosts": services.hosts.list,
    }


def test_the_largest_numbers_that_a_host_is_believed_are_answered_at_once(tmp_path: Path) -> None:
    with fleet(tmp_path) as (plane, hosts):
        plane.services.vms.create(create_vm())
        plane.engine.drain()

        def telling(host: Host) -> HostSnapshot:
            told = largest(super(HostsWithABadOne, hosts).observe(host))
            return checked(replace(told, gpus=tuple(many_types(gpu) for gpu in told.gpus)))

        hosts.observe_bad = telling
        plane.reconciler.round()
        with plane.store.read() as tx:
            kept = tx.hosts.snapshot(T4_HOST)
        assert kept is not None
        assert kept.memory_mib == BOUNDS[HostSnapshot]["memory_mib"].most, "what it tells was not believed"
        assert len(kept.gpus[0].types) == BOUNDS[GpuSnapshot]["types"].most
        for name, answer in answers(plane).items():
            before = time.thread_time()
            answer()
            assert time.thread_time() - before < _LONGEST_S, name


def test_a_number_above_its_kind_leaves_the_host_as_it_was_known(tmp_path: Path) -> None:
    with fleet(tmp_path) as (plane, hosts):

        def telling(host: Host) -> HostSnapshot:
            told = super(HostsWithABadOne, hosts).observe(host)
            types = tuple(replace(one, max_instances=2**62) for one in told.gpus[0].types)
            return checked(replace(told, gpus=(replace(told.gpus[0], types=types),)))

        hosts.observe_bad = telling
        plane.reconciler.round()
        assert [one.finding.code for one in plane.findings.list(host=T4_HOST)] == ["host.unreachable"]
        before = time.thread_time()
        assert {info.host for info in plane.services.gpus.list(None)} == {T4_HOST, L40S_HOST}
        assert time.thread_time() - before < _LONGEST_S
