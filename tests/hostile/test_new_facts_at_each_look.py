# SPDX-License-Identifier: Apache-2.0
"""A host whose GPUs are others at each look, and a tenant whose VM is another at each request, fill no memory."""

from __future__ import annotations

import gc
import struct
import tracemalloc
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

from orchestrator.api.schemas.vms import vm_json
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import HostSnapshot, HostVgpuType
from orchestrator.core.hosts.snapshot_rules import BOUNDS, checked
from orchestrator.core.units import MIB
from orchestrator.services.messages import VmChange
from tests.fakes.control_plane import T4_HOST, create_vm
from tests.hostile.test_bad_host import HostsWithABadOne, fleet


def grown_mib(again: Callable[[int], object], *, first: int, then: int) -> float:
    """What ``then`` rounds take more after ``first`` have filled what is filled once."""
    for number in range(first):
        again(number)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(first, first + then):
            again(number)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] / MIB
    finally:
        tracemalloc.stop()


def test_gpus_that_are_others_at_each_look_are_forgotten_again(tmp_path: Path) -> None:
    with fleet(tmp_path) as (plane, hosts):
        look = count()

        def telling(host: Host) -> HostSnapshot:
            told = super(HostsWithABadOne, hosts).observe(host)
            turn = next(look)
            types = tuple(
                HostVgpuType(name=f"GRID {turn}-{number}Q", type_id=number, framebuffer_mib=1024, max_instances=16)
                for number in range(BOUNDS[type(told.gpus[0])]["types"].most)
            )
            gpus = tuple(replace(gpu, types=types) for gpu in told.gpus)
            return checked(replace(told, gpus=gpus))

        hosts.observe_bad = telling
        index = plane.services.capacity.index
        sizes = []
        for _ in range(40):
            plane.look(T4_HOST)
            assert len(plane.services.gpus.list(T4_HOST)[0].types) == 512
            with index.current() as now:
                now.fleet()
                sizes.append(now.engine.fleet.size)
        assert max(sizes) < 40 * MIB
        assert sizes != sorted(sizes), "it never forgot"


def large_keys() -> tuple[str, ...]:
    blob = struct.pack(">I", 11) + b"ssh-ed25519" + bytes(10_000)
    return tuple(f"ssh-ed25519 {b64encode(blob).decode()} {number}" for number in range(20))


def test_a_vm_that_is_changed_again_and_again_is_kept_once(tmp_path: Path) -> None:
    with fleet(tmp_path) as (plane, _hosts):
        plane.services.vms.create(replace(create_vm(), ssh_keys=large_keys()))
        plane.engine.drain()

        def changed(number: int) -> None:
            plane.services.vms.change("default", "train", VmChange(labels={"turn": str(number)}))
            (vm,) = plane.services.vms.list(("default",))
            assert f'"turn":"{number}"'.encode() in vm_json(vm, None, None, watching=False)

        assert grown_mib(changed, first=5, then=40) < 2, "each version of it was kept"


def test_vms_that_are_gone_are_not_kept(tmp_path: Path) -> None:
    with fleet(tmp_path) as (plane, _hosts):

        def come_and_go(number: int) -> None:
            plane.services.vms.create(replace(create_vm(f"vm-{number}"), ssh_keys=large_keys()))
            plane.engine.drain()
            plane.services.vms.delete("default", f"vm-{number}")
            plane.engine.drain()

        assert grown_mib(come_and_go, first=3, then=10) < 1
