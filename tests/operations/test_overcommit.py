# SPDX-License-Identifier: Apache-2.0
"""How often the vCPUs and the memory of a host are promised, by whom it is decided, and what no VM ever gets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import InvalidInput, NoCapacity, VgpuctlError
from orchestrator.services.messages import HostChange
from orchestrator.services.vms.capacity import Question
from tests.fakes.control_plane import T4_HOST, ControlPlane, create_vm, plane_with


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST) as made:
        yield made


def own_vcpus(plane: ControlPlane) -> int:
    snapshot = plane.services.hosts.list()[0].snapshot
    assert snapshot is not None
    return snapshot.vcpus


def host_name(plane: ControlPlane) -> str:
    return plane.services.hosts.list()[0].host.name


def codes(error: VgpuctlError) -> set[str]:
    return {reason.code for reason in error.reasons}


def test_no_vm_has_more_vcpus_than_its_host_whoever_asks(plane: ControlPlane) -> None:
    services, more = plane.services, own_vcpus(plane) + 1
    for ask in (services.vms.create, services.vms.plan):
        for host in (None, host_name(plane)):
            with pytest.raises(InvalidInput) as refused:
                ask(replace(create_vm("big"), vcpus=more, host=host))
            assert codes(refused.value) == {"host.too_small"}
    capacity = plane.services.capacity
    question = Question(profile="GRID T4-2Q", vcpus=more, memory_mib=256)
    assert not capacity.explain(question).explanation.fits
    assert [row.fits_now for row in capacity.capacity(question)] == [0]


def test_vcpus_are_promised_four_times_and_memory_once(plane: ControlPlane) -> None:
    info = plane.services.hosts.list()[0]
    assert info.capacity is not None
    assert info.snapshot is not None
    assert info.capacity.vcpus == 4 * info.snapshot.vcpus
    assert info.capacity.memory_mib == info.snapshot.memory_mib - 512


def test_an_operator_decides_for_each_host(plane: ControlPlane) -> None:
    hosts, name, own = plane.services.hosts, host_name(plane), own_vcpus(plane)
    plane.services.vms.create(replace(create_vm("one"), vcpus=own))
    hosts.change(name, HostChange(vcpu_overcommit=1.0))
    with pytest.raises(NoCapacity) as refused:
        plane.services.vms.create(create_vm("two"))
    assert codes(refused.value) == {"host.vcpus"}
    changed = hosts.change(name, HostChange(vcpu_overcommit="site", memory_overcommit=2.0))
    assert (changed.host.vcpu_overcommit, changed.host.memory_overcommit) == (None, 2.0)
    assert changed.claimed_vcpus == own
    plane.services.vms.create(create_vm("two"))


def test_labels_of_a_host_are_set_and_taken_away_by_key(plane: ControlPlane) -> None:
    hosts, name = plane.services.hosts, host_name(plane)
    hosts.change(name, HostChange(labels={"rack": "3", "old": ""}))
    assert hosts.change(name, HostChange(labels={"old": None})).host.labels == (("rack", "3"),)
    with pytest.raises(InvalidInput, match="is not a label"):
        hosts.change(name, HostChange(labels={"-rack": "3"}))
    assert hosts.get(name).host.labels == (("rack", "3"),)
