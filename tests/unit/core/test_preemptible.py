# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.gpu.device import Device
from orchestrator.core.tenancy.quota import Limit, preemptible, totals_of
from orchestrator.core.vms.priority import PRIORITIES, Priority, rank
from orchestrator.core.vms.vm import Vm, VmSpec

TENANTS = st.sampled_from(["red", "green", "blue"])
RESOURCES = st.sampled_from(["devices", "framebuffer", "vcpus", "memory", "vms", "disk", "devices:L40S", "vgpus:p"])
KINDS = st.sampled_from(["NVIDIA L40S-12Q", "GRID T4-4Q"])


def vm(number: int, tenant: str, priority: Priority, kind: str, state: str, age: int, adopted: bool) -> Vm:
    spec = VmSpec(
        name=f"vm{number}", tenant=tenant, profile="p", image="guest", vcpus=2, memory_mib=1024, disk_bytes=1 << 30,
        network="default", priority=priority, adopted="byhand" if adopted else None,
    )  # fmt: skip
    device = Device(kind="mdev", gpu="0000:41:00.0", parent="0000:41:00.0", type_name=kind, name="u")
    made = Vm(
        id=f"id{number}", spec=spec, state="running", host="h", devices=(device,), addresses=(), operation=None,
        created_at=float(age),
    )  # fmt: skip
    if state == "deallocated":
        return replace(made, state="stopped", deallocated="lease_over")
    return replace(made, state="stopped" if state == "stopped" else "creating" if state == "creating" else "running")


VMS = st.lists(
    st.tuples(
        TENANTS, st.sampled_from(PRIORITIES), KINDS, st.sampled_from(["running", "stopped", "creating", "deallocated"]),
        st.integers(0, 9), st.booleans(),
    ),
    max_size=12,
).map(lambda rows: [vm(number, *row) for number, row in enumerate(rows)])  # fmt: skip
LIMITS = st.lists(
    st.builds(Limit, tenant=st.one_of(TENANTS, st.just("*")), resource=RESOURCES, amount=st.integers(0, 5)),
    max_size=8,
    unique_by=lambda limit: (limit.tenant, limit.resource),
)


@given(VMS, LIMITS, TENANTS, st.sampled_from(PRIORITIES), st.data())
def test_whoever_is_chosen_is_less_important_and_takes_nothing_promised_from_another_tenant(
    vms: list[Vm], limits: list[Limit], tenant: str, priority: Priority, data: st.DataObject
) -> None:
    found = preemptible(vms, limits, tenant=tenant, priority=priority)
    chosen = data.draw(st.sets(st.sampled_from(sorted(found)))) if found else set()
    before = totals_of(vms)
    after = totals_of(replace(one, deallocated="preempted") if one.id in chosen else one for one in vms)
    for one in vms:
        if one.id in found:
            assert rank(one.spec.priority) < rank(priority)
            assert one.deallocated is None
            assert one.state in {"running", "stopped"}
            assert one.spec.adopted is None
    for limit in limits:
        if limit.tenant not in {tenant, "*"}:
            had = before.get(limit.tenant, Counter())[limit.resource]
            assert after.get(limit.tenant, Counter())[limit.resource] >= min(had, limit.amount)


@given(VMS, TENANTS)
def test_without_quotas_everybody_who_is_less_important_may_have_to_go(vms: list[Vm], tenant: str) -> None:
    assert preemptible(vms, [], tenant=tenant, priority="low") == frozenset()
    assert preemptible(vms, [], tenant=tenant, priority="high") == {
        one.id
        for one in vms
        if one.spec.priority != "high" and one.deallocated is None and one.state != "creating" and not one.spec.adopted
    }
