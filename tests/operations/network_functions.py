# SPDX-License-Identifier: Apache-2.0
"""VMs with a vGPU and a function of a network card near it. For scenes."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.core.errors import Bug
from orchestrator.services.messages import HostChange
from tests.fakes.control_plane import L40S_HOST, ControlPlane, create_vm
from tests.fakes.fake_nics import CARD
from tests.operations.of_one_vm import cases_of

PROFILE = "NVIDIA L40S-12Q"


def _prepare(plane: ControlPlane) -> None:
    plane.add_host(L40S_HOST)
    plane.machine(L40S_HOST).nics = (CARD,)
    plane.observer.observe(L40S_HOST)
    plane.services.hosts.change(L40S_HOST, HostChange(rdma_nics=(CARD.address,)))


def create_with_function(plane: ControlPlane) -> None:
    _prepare(plane)
    _create(plane)
    plane.engine.drain()
    nic = plane.services.vms.get("default", "train").nic
    if nic is None or plane.machine(L40S_HOST).nic_owners.keys() != {nic.function}:
        raise Bug("test.scene", "the VM has no function of a network card")


def _create(plane: ControlPlane) -> str | None:
    return plane.services.vms.create(replace(create_vm(profile=PROFILE), nic="rdma")).operation


CASES = cases_of("network function", _prepare, create_with_function, _create)
