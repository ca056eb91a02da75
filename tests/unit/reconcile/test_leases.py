# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, NoCapacity, QuotaExceeded
from orchestrator.core.tenancy.access import EVERYWHERE
from orchestrator.core.vms.lease import DAY_S, WantedEnd, show_moment
from orchestrator.core.vms.vm import Vm
from orchestrator.services.site_time import EVEN_FOR_S
from tests.fakes.control_plane import T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.fake_host import FakeHosts
from tests.fakes.fake_machine import FakeMachine, l40s, t4

HOUR = 3600


@pytest.fixture(params=["mdev", "vendor_vfio"])
def plane(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """One GPU, on one host."""
    gpu = t4() if request.param == "mdev" else l40s()
    made = control_plane(tmp_path, hosts=FakeHosts({f"{T4_HOST}.test": FakeMachine(machine_id="m1", gpus=[gpu])}))
    made.add_host(T4_HOST)
    yield made
    made.reconciler.close()
    made.store.close()


def profile(plane: ControlPlane) -> str:
    """All of its GPU."""
    return "NVIDIA L40S-48Q" if "L40S" in plane.services.gpus.list(T4_HOST)[0].gpu.model else "GRID T4-16Q"


def leased(plane: ControlPlane, name: str = "train", *, lease_s: int | None = HOUR) -> Vm:
    request = create_vm(name, profile=profile(plane))
    plane.services.vms.create(replace(request, end=WantedEnd(after_s=lease_s)))
    plane.engine.drain()
    return plane.services.vms.get("default", name)


def later(plane: ControlPlane, seconds: float) -> list[str]:
    """So much later: what a look finds, after everything it began has ended."""
    plane.world.clock.sleep(seconds)
    plane.reconciler.observe(T4_HOST)
    plane.engine.drain()
    return codes(plane)


def codes(plane: ControlPlane) -> list[str]:
    return [one.finding.code for one in plane.findings.observe(T4_HOST)]


def train(plane: ControlPlane) -> Vm:
    return plane.services.vms.get("default", "train")


def actions(plane: ControlPlane) -> list[tuple[str, str]]:
    with plane.store.read() as tx:
        return [(one.actor, one.action) for one in tx.audit.all()]


def test_a_lease_warns_ends_and_keeps_the_disk(plane: ControlPlane) -> None:
    made = leased(plane)
    machine = plane.machine(T4_HOST)
    assert codes(plane) == []
    assert later(plane, HOUR - 800) == ["vm.lease_ends_soon"]
    assert train(plane).state == "running"
    assert later(plane, 900) == ["vm.lease_over"]
    over = train(plane)
    assert (over.state, over.deallocated) == ("stopped", "lease_over")
    assert machine.volumes
    assert not machine.mdevs
    assert ("lease", "end_lease") in actions(plane)
    assert later(plane, 8 * DAY_S) == ["vm.disk_kept_too_long"]
    assert train(plane).id == made.id
    assert machine.volumes


def test_the_place_of_an_ended_lease_is_anothers_and_both_can_be_deleted(plane: ControlPlane) -> None:
    leased(plane)
    with pytest.raises(NoCapacity):
        leased(plane, "other")
    later(plane, 2 * HOUR)
    assert leased(plane, "other", lease_s=None).state == "running"
    assert codes(plane) == ["vm.lease_over"]
    plane.services.vms.extend("default", "train", WantedEnd(after_s=HOUR))
    with pytest.raises(NoCapacity):
        plane.services.vms.start("default", "train")
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    assert plane.services.vms.get("default", "other").state == "running"
    assert codes(plane) == []
    plane.services.vms.delete("default", "other")
    plane.engine.drain()
    assert not plane.machine(T4_HOST).volumes


def test_an_ended_lease_is_extended_and_the_vm_started_with_its_disk(plane: ControlPlane) -> None:
    made = leased(plane)
    later(plane, 2 * HOUR)
    with pytest.raises(Conflict) as raised:
        plane.services.vms.start("default", "train")
    assert raised.value.code == "lease.over"
    plane.services.vms.extend("default", "train", WantedEnd(after_s=HOUR))
    assert codes(plane) == []
    plane.services.vms.start("default", "train")
    plane.engine.drain()
    again = train(plane)
    assert (again.state, again.deallocated, again.id) == ("running", None, made.id)
    assert codes(plane) == []
    assert later(plane, 2 * HOUR) == ["vm.lease_over"]


def test_an_extended_lease_does_not_end(plane: ControlPlane) -> None:
    leased(plane)
    plane.world.clock.sleep(HOUR - 60)
    plane.services.vms.extend("default", "train", WantedEnd(after_s=DAY_S))
    assert later(plane, HOUR) == []
    assert train(plane).state == "running"


def test_a_stopped_vm_gives_its_place_back_too(plane: ControlPlane) -> None:
    leased(plane)
    plane.services.vms.stop("default", "train")
    plane.engine.drain()
    later(plane, 2 * HOUR)
    assert train(plane).deallocated == "lease_over"
    assert leased(plane, "other", lease_s=None).state == "running"


def test_nothing_ends_twice_or_while_somebody_works_on_it(plane: ControlPlane) -> None:
    leased(plane)
    plane.world.clock.sleep(2 * HOUR)
    plane.services.vms.stop("default", "train")
    assert plane.reconciler.leases.end_leases(T4_HOST) == ()
    plane.engine.drain()
    assert len(plane.reconciler.leases.end_leases(T4_HOST)) == 1
    assert plane.reconciler.leases.end_leases(T4_HOST) == ()
    plane.engine.drain()
    assert plane.reconciler.leases.end_leases(T4_HOST) == ()


def test_on_a_host_that_does_not_answer_a_lease_ends_when_it_is_back(plane: ControlPlane) -> None:
    leased(plane)
    plane.world.clock.sleep(2 * HOUR)
    with plane.store.begin() as tx:
        tx.hosts.update(replace(tx.hosts.get(T4_HOST), state="unreachable"))
    assert plane.reconciler.leases.end_leases(T4_HOST) == ()
    assert later(plane, 1) == ["vm.lease_over"]


@pytest.mark.fault("F101")
def test_after_a_jump_of_the_clock_no_lease_ends_until_it_has_run_evenly(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    leased(plane)
    clock = plane.world.clock
    running = clock.monotonic
    monkeypatch.setattr(clock, "monotonic", lambda: running() - DAY_S)
    clock.sleep(DAY_S)
    for _ in range(2):
        plane.time.look()
        assert plane.reconciler.leases.end_leases(T4_HOST) == ()
        clock.sleep(EVEN_FOR_S / 2 + 1)
    plane.time.look()
    assert len(plane.reconciler.leases.end_leases(T4_HOST)) == 1
    plane.engine.drain()


def test_an_ended_lease_counts_for_disk_and_vms_only_and_starting_it_asks_the_quota_again(plane: ControlPlane) -> None:
    leased(plane)
    later(plane, 2 * HOUR)
    held = {one.resource: one.used for one in plane.services.tenancy.quotas.get("default")}
    assert {name for name, amount in held.items() if amount} == {"vms", "disk", "networks"}
    plane.services.vms.extend("default", "train", WantedEnd(after_s=HOUR))
    plane.services.tenancy.quotas.change("default", {"devices": 0, "vms": 1})
    with pytest.raises(QuotaExceeded):
        plane.services.vms.start("default", "train")
    plane.services.tenancy.quotas.change(EVERYWHERE, {"devices": 1})
    plane.services.vms.start("default", "train")
    plane.engine.drain()
    assert train(plane).state == "running"


def test_a_tenants_policy_sets_the_end_bounds_it_and_goes_with_the_tenant(plane: ControlPlane) -> None:
    policies, tenants = plane.services.tenancy.policies, plane.services.tenancy.tenants
    policies.change("default", {"default_lease_s": HOUR, "max_lease_s": DAY_S})
    made = leased(plane, lease_s=None)
    assert made.lease_end is not None
    assert show_moment(made.lease_end) == show_moment(made.created_at + HOUR)
    with pytest.raises(QuotaExceeded) as raised:
        plane.services.vms.extend("default", "train", WantedEnd(after_s=2 * DAY_S))
    assert raised.value.code == "lease.too_long"
    assert train(plane).lease_end == made.lease_end
    tenants.create("short")
    policies.change("short", {"disk_grace_s": 0})
    tenants.delete("short")
    tenants.create("short")
    assert policies.get("short").disk_grace_s == 7 * DAY_S
