# SPDX-License-Identifier: Apache-2.0
"""What explain promises and what create does come from one and the same request of placement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.core.errors import VgpuctlError
from orchestrator.core.gpu.vgpu_parameters import Scheduler
from orchestrator.core.hosts.bridges import Uplink
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.placement.rules.wanted import Wanted
from orchestrator.core.placement.views import Request
from orchestrator.core.vms.network import Network
from orchestrator.services.vms.capacity import CapacityService, Question
from orchestrator.services.vms.planning import Planner
from tests.fakes.control_plane import GIB, L40S_HOST, T4_HOST, ControlPlane, create_vm, plane_with

MIB_PER_GIB = 1024


@dataclass(frozen=True, kw_only=True)
class RecordingPlanner(Planner):
    """Keeps what it asked placement."""

    asked: list[Request] = field(default_factory=list)

    def request(self, wanted: Wanted) -> Request:
        self.asked.append(super().request(wanted))
        return self.asked[-1]


KINDS = st.one_of(
    st.fixed_dictionaries(
        {"kind": st.just("time_sliced"), "vgpu_type": st.sampled_from(["GRID T4-2Q", "NVIDIA L40S-12Q"])},
        optional={"scheduler": st.just(Scheduler(policy="fixed_share")), "vgpu_count": st.integers(1, 3)},
    ),
    st.fixed_dictionaries({"kind": st.just("passthrough"), "gpu_count": st.integers(1, 2)}),
)
OFFERED = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(["shared", "pinned"]),
        "numa": st.sampled_from(["any", "prefer", "strict"]),
        "hugepages": st.sampled_from([None, "2M", "1G"]),
        "firmware": st.sampled_from(["bios", "uefi"]),
        "nic": st.sampled_from([None, "rdma"]),
        "anti_affinity": st.sampled_from(["none", "host"]),
        "gpu_models": st.sampled_from([(), ("T4",)]),
        "hosts": st.sampled_from([(), (("rack", "3"),)]),
        "migratable": st.booleans(),
    },
)
ASKED = st.fixed_dictionaries(
    {
        "vcpus": st.integers(1, 64),
        "memory_mib": st.integers(1, 64).map(MIB_PER_GIB.__mul__),
        "disk_bytes": st.integers(1 * GIB, 64 * GIB),
        "more_networks": st.sampled_from([(), ("office",)]),
    },
    optional={
        "host": st.sampled_from([None, T4_HOST, L40S_HOST]),
        "gpu": st.sampled_from([None, "0000:42:00.0"]),
        "nic": st.sampled_from([None, "rdma"]),
    },
)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with plane_with(tmp_path_factory.mktemp("plane"), T4_HOST, L40S_HOST) as made:
        with made.store.begin() as tx:
            tx.networks.add(Network(name="office", shared=True, uplink=Uplink(bridge="br0", vlan=7)))
            tx.offerings.put(
                Offering(name="asked", origin="site", kind="passthrough", gpu_count=1, anti_affinity="host")
            )
        made.services.vms.create(create_vm("there", profile="asked"))
        yield made


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(KINDS, OFFERED, ASKED)
def test_explain_asks_placement_what_create_asks(
    plane: ControlPlane, kind: dict[str, Any], offered: dict[str, Any], asked: dict[str, Any]
) -> None:
    with plane.store.begin() as tx:
        tx.offerings.put(Offering(name="asked", origin="site", **{**kind, **offered}))
    vms = plane.services.vms
    planner = RecordingPlanner(index=vms.planner.index, clock=vms.planner.clock, ids=vms.planner.ids)
    capacity = CapacityService(store=plane.store, index=planner.index, clock=planner.clock, moves=plane.services.moves)
    with suppress(VgpuctlError):
        wanted = replace(create_vm("new", profile="asked"), **asked)
        replace(vms, planner=planner).plan(wanted)
    try:
        explained = [capacity.explain(Question(profile="asked", **asked)).explanation.request]
    except VgpuctlError:
        explained = []
    assert [replace(one, vm_id="what-if", now_s=0.0) for one in planner.asked] == explained
