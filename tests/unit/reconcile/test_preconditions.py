# SPDX-License-Identifier: Apache-2.0
"""All that create, start, restore and upgrade rely on: broken it is a finding, and what that says puts it right."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import orchestrator
from orchestrator.core.drivers.lock import DriverLock, Locked
from tests.fakes.control_plane import A100_HOST, L40S_HOST, T4_HOST, ControlPlane, plane_with
from tests.fakes.control_plane import create_vm as asked
from tests.fakes.fake_actions import lose_ledger, take_network_away
from tests.operations.gpu_cards import SWAPPED, maintain
from tests.operations.layouts import apply as apply_layout

Change = Callable[[ControlPlane, str], object]
"""Of a host, by its name."""
PROFILES = {T4_HOST: "GRID T4-2Q", L40S_HOST: "NVIDIA L40S-12Q", A100_HOST: "GRID A100D-1-20C"}


@dataclass(frozen=True, kw_only=True)
class Row:
    """``mend``: what the finding says is to be done."""

    code: str
    broken: Change
    mend: Change
    hosts: tuple[str, ...] = (T4_HOST,)
    with_vm: bool = True
    takes_more: bool = True
    """Another VM has room there."""


def repair(plane: ControlPlane, host: str) -> None:
    """Twice at most: what is put right may show another."""
    for _ in range(2):
        if codes(plane, host):
            assert plane.findings.repair(host=host), "no repair was begun"
            plane.engine.drain()


def by_itself(plane: ControlPlane, _host: str) -> None:
    plane.engine.drain()


def start_again(plane: ControlPlane, _host: str) -> None:
    for change in (plane.services.vms.stop, plane.services.vms.start):
        change("default", "train")
        plane.engine.drain()


def _restarted(plane: ControlPlane, host: str) -> None:
    start_again(plane, host)
    plane.machine(host).qemu_replaced.clear()


def _machine(name: str, value: object) -> Change:
    """The host is so; the other way round it is mended."""
    return lambda plane, host: vars(plane.machine(host)).update({name: value})


def _gpus(name: str, value: object) -> Change:
    return lambda plane, host: [vars(gpu).update({name: value}) for gpu in plane.machine(host).gpus]


def _lock(version: str) -> Change:
    lock = DriverLock(site=(Locked(component="host_driver", version=version),))
    return lambda plane, _: plane.services.driver_locks.apply(lock)


def _vm(plane: ControlPlane) -> str:
    return plane.services.vms.get("default", "train").id


def _stopped(plane: ControlPlane, host: str) -> None:
    machine, vm = plane.machine(host), _vm(plane)
    machine.domains[vm] = (machine.domains[vm][0], False)


def _without_vgpu(plane: ControlPlane, host: str) -> None:
    plane.machine(host).mdevs.clear()
    plane.machine(host).vf_types.clear()


def _without_instances(plane: ControlPlane, host: str) -> None:
    plane.machine(host).gpus[0].instances.clear()


def _with_layout(plane: ControlPlane, host: str) -> None:
    apply_layout("1g.10gb")(plane)
    plane.engine.drain()
    _without_instances(plane, host)


def _apply_layout(plane: ControlPlane, _host: str) -> None:
    apply_layout("1g.10gb")(plane)
    plane.engine.drain()


def _keeping(what: str) -> tuple[Change, Change]:
    """Files are taken away and put back."""
    kept: dict[str, object] = {}

    def take(plane: ControlPlane, host: str) -> None:
        kept.update(getattr(plane.machine(host), what))
        getattr(plane.machine(host), what).clear()

    return take, lambda plane, host: getattr(plane.machine(host), what).update(kept)


def _moved(plane: ControlPlane, host: str) -> None:
    maintain(plane.machine(host), SWAPPED[host])


VOLUMES, SEEDS = _keeping("volumes"), _keeping("seeds")
NETWORK = "default.default"
RELIED_ON = {
    "the host answers": Row(code="host.unreachable", broken=_machine("answers", False), mend=_machine("answers", True)),
    "its agent is new enough": Row(code="agent.too_old", broken=_machine("protocol", 8), mend=by_itself),
    "the ledger": Row(code="host.ledger_lost", broken=lambda p, h: lose_ledger(p.machine(h)), mend=repair,
                      hosts=(T4_HOST, L40S_HOST, A100_HOST)),
    "QEMU is confined": Row(code="host.unconfined", broken=_machine("confinement", "none"),
                            mend=_machine("confinement", "apparmor")),
    "room on the host's disk": Row(code="host.disk_full", broken=_machine("free_bytes", 0),
                                   mend=_machine("free_bytes", None)),
    "the driver has the GPUs": Row(code="gpu.no_driver", broken=_gpus("driver", "nouveau"),
                                   mend=_gpus("driver", "nvidia"), with_vm=False, hosts=(T4_HOST, L40S_HOST)),
    "virtual functions": Row(code="gpu.functions_off", broken=_gpus("enabled", False), mend=repair,
                             hosts=(L40S_HOST, A100_HOST), with_vm=False),
    "the driver that is locked": Row(code="driver.drift", broken=_lock("999.1.1"), mend=_lock("580.95.02")),
    "cards are where they were": Row(code="gpu.moved", broken=_moved, mend=repair, with_vm=False,
                                     hosts=(T4_HOST, L40S_HOST)),
    "a MIG layout": Row(code="mig.layout_differs", broken=_with_layout, mend=_apply_layout, hosts=(A100_HOST,),
                        takes_more=False, with_vm=False),
    "a VM's networks": Row(code="network.cut_off", broken=lambda p, h: take_network_away(p.machine(h), NETWORK),
                           mend=repair),
    "a VM is plugged in": Row(code="network.cut_off", mend=repair,
                              broken=lambda p, h: p.machine(h).cut_off.add((_vm(p), NETWORK))),
    "the QEMU that is installed": Row(code="host.older_qemu", mend=_restarted,
                                      broken=lambda p, h: p.machine(h).qemu_replaced.add(_vm(p))),
    "a VM's disk": Row(code="vm.volume_missing", broken=VOLUMES[0], mend=VOLUMES[1]),
    "a VM's seed": Row(code="vm.seed_missing", broken=SEEDS[0], mend=SEEDS[1]),
    "a VM's domain": Row(code="vm.domain_missing", broken=lambda p, h: p.machine(h).domains.clear(), mend=repair),
    "a VM runs": Row(code="vm.not_running", broken=_stopped, mend=repair, hosts=(T4_HOST, L40S_HOST, A100_HOST)),
    "a VM's vGPU": Row(code="vm.device_missing", broken=_without_vgpu, mend=start_again,
                       hosts=(T4_HOST, L40S_HOST)),
}  # fmt: skip
ELSEWHERE = {
    "agent.sessions_full": "tests/unit/agent/test_sessions.py",
    "host.unreached": "tests/contract/engine/test_asymmetric_reach.py",
    "host.half_seen": "libvirt answers: tests/unit/core/test_diff.py",
    "host.broke": "tests/unit/reconcile/test_one_that_breaks.py",
    "host.confinement_unknown": "tests/unit/reconcile/test_unconfined_hosts.py",
    "host.restored": "tests/operations/test_after_restore.py",
    "vm.lease_in_doubt": "tests/operations/test_restored_wants.py",
    "ovn.tunnel_silent": "tests/unit/reconcile/test_tunnels.py",
    "ovn.tunnel_slow": "tests/unit/reconcile/test_tunnels.py",
    "ovn.tunnels_unmeasured": "tests/unit/reconcile/test_tunnels.py",
    "ovn.card_waits": "tests/unit/reconcile/test_tunnels.py",
    "host.no_ovn": "OVN's own databases: tests/contract/test_ovn_networks.py",
    "host.fabric": "the fabric manager answers: tests/unit/core/test_diff.py",
    "gpu.fabric_fault": "tests/operations/test_gpu_faults.py",
    "gpu.fault": "tests/operations/test_gpu_faults.py",
    "gpu.missing": "tests/unit/core/test_gpu_cards.py",
    "gpu.replaced": "tests/unit/core/test_gpu_cards.py",
    "vm.claim_missing": "a claim is the database's own",
    "vm.device_differs": "tests/unit/reconcile/test_lost_ledger.py",
    "vm.not_in_ledger": "tests/unit/core/test_diff.py",
    "vm.not_compared": "tests/unit/reconcile/test_one_that_breaks.py",
    "vm.gpu_fault": "tests/operations/test_gpu_faults.py",
    "vm.cpus_differ": "tests/unit/core/test_diff.py",
    "vm.memory_differs": "tests/unit/core/test_diff.py",
    "vm.scheduler_differs": "tests/unit/core/test_diff.py",
    "vm.mixed_sizes_off": "tests/unit/core/test_diff.py",
    "vm.placement_differs": "tests/unit/core/test_diff.py",
    "vm.partition_differs": "tests/unit/core/test_diff.py",
    "vm.partition_inactive": "tests/unit/core/test_diff.py",
    "vm.nic_foreign": "tests/unit/core/test_nic_findings.py",
    "vm.nic_gone": "tests/unit/core/test_nic_findings.py",
    "vm.pool_away": "tests/operations/test_pools.py",
    "vm.snapshot_missing": "tests/operations/test_disk_snapshots.py",
    "vm.definition_changed": "each start writes it again",
    "volume.missing": "tests/unit/core/test_diff.py",
}
"""Relied on as well, and shown there."""
NOTHING_RELIES_ON = {
    "gpu.facts_differ", "gpu.shared", "host.cordoned", "host.maintenance_failed",
    "orphan.data", "orphan.domain", "orphan.image", "orphan.nic",
    "orphan.partition", "orphan.seed", "orphan.vgpu", "orphan.volume", "vm.device_left", "vm.nic_left",
    "vm.running", "vm.unlicensed", "vm.lease_ends_soon", "vm.lease_over", "vm.disk_kept_too_long",
    "vm.snapshot_unknown",
}  # fmt: skip
_CODE = re.compile(r'"((?:agent|driver|gpu|host|mig|network|orphan|ovn|vm|volume)\.[a-z_]+)"')
CASES = [pytest.param(row, host, id=f"{what}, {host}") for what, row in RELIED_ON.items() for host in row.hosts]


def codes(plane: ControlPlane, host: str) -> set[str]:
    return {one.finding.code for one in plane.findings.observe(host)}


def test_every_code_of_a_finding_has_its_place_here() -> None:
    top = Path(orchestrator.__file__).parent
    files = [*(top / "core/diff").glob("*.py"), top / "reconcile/wanted.py"]
    written = {code for file in files for code in _CODE.findall(file.read_text(encoding="utf-8"))}
    scenes = {row.code for row in RELIED_ON.values()}
    assert written - scenes - ELSEWHERE.keys() - NOTHING_RELIES_ON == set()
    assert scenes | ELSEWHERE.keys() | NOTHING_RELIES_ON == written | {"host.unreachable"}


@pytest.mark.parametrize(("row", "host"), CASES)
def test_what_is_relied_on_is_found_when_it_is_broken_and_mended_as_the_finding_says(
    tmp_path: Path, row: Row, host: str
) -> None:
    with plane_with(tmp_path, host) as plane:
        if row.with_vm:
            plane.services.vms.create(asked(profile=PROFILES[host]))
            plane.engine.drain()
        assert codes(plane, host) == set()
        row.broken(plane, host)
        assert row.code in codes(plane, host)
        row.mend(plane, host)
        assert codes(plane, host) == set()
        if row.takes_more:
            plane.services.vms.create(asked("another", profile=PROFILES[host]))
            plane.engine.drain()
            assert plane.services.vms.get("default", "another").state == "running"
        plane.reconciler.close()
