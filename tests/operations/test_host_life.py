# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.errors import Conflict, Fatal, InvalidInput, NoCapacity, VgpuctlError
from orchestrator.core.hosts.host import Cordon
from orchestrator.operations.steps.host import choose_gpus
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, add_host, control_plane, create_vm


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    made = control_plane(tmp_path)
    yield made
    made.store.close()


def test_an_enrolled_host_is_ready_with_its_gpus_and_given_back_as_it_was(plane: ControlPlane) -> None:
    before = plane.machine(L40S_HOST).state()
    operation = plane.add_host(L40S_HOST)
    assert plane.services.operations.get(operation).state == "done"
    info = plane.services.hosts.get(L40S_HOST)
    assert (info.host.state, info.host.managed_gpus) == ("ready", ("0000:81:00.0", "0000:82:00.0"))
    assert all(gpu.sriov_enabled_vfs for gpu in info.snapshot.gpus) if info.snapshot else False
    plane.services.hosts.remove(L40S_HOST)
    plane.engine.drain()
    assert plane.machine(L40S_HOST).state() == before
    assert plane.services.hosts.list() == ()
    assert plane.keys.keys == {}


def test_only_the_gpus_that_were_given_are_switched(plane: ControlPlane) -> None:
    plane.add_host(L40S_HOST, gpus="0000:82:00.0")
    assert [gpu.enabled for gpu in plane.machine(L40S_HOST).gpus] == [False, True]
    assert plane.machine(L40S_HOST).managed == ("0000:82:00.0",)


def test_functions_that_were_on_before_stay_on_after(plane: ControlPlane) -> None:
    plane.machine(L40S_HOST).gpus[0].enabled = True
    plane.add_host(L40S_HOST)
    plane.services.hosts.remove(L40S_HOST)
    plane.engine.drain()
    assert [gpu.enabled for gpu in plane.machine(L40S_HOST).gpus] == [True, False]


def test_used_gpus_are_left_out_unless_asked_for(plane: ControlPlane) -> None:
    machine = plane.machine(T4_HOST)
    machine.mdevs["foreign"] = ("0000:41:00.0", "GRID T4-1Q", None)
    plane.add_host(T4_HOST)
    assert machine.managed == ("0000:42:00.0",)
    snapshot = plane.services.hosts.get(T4_HOST).snapshot
    assert snapshot is not None
    assert choose_gpus("all", snapshot) == ("0000:41:00.0", "0000:42:00.0")


def test_a_gpu_that_is_not_there_takes_the_enrolment_back(plane: ControlPlane) -> None:
    before = plane.machine(T4_HOST).state()
    operation = plane.services.operations.get(plane.add_host(T4_HOST, gpus="0000:99:00.0"))
    assert operation.state == "undone"
    assert operation.error is not None
    assert operation.error["code"] == "host.no_such_gpu"
    assert plane.machine(T4_HOST).state() == before
    assert plane.services.hosts.list() == ()


def test_one_machine_is_one_host(plane: ControlPlane) -> None:
    plane.add_host(T4_HOST)
    plane.machine(L40S_HOST).machine_id = plane.machine(T4_HOST).machine_id
    operation = plane.services.operations.get(plane.add_host(L40S_HOST))
    assert operation.state == "undone"
    assert operation.error is not None
    assert operation.error["code"] == "host.already_added"


def test_a_host_whose_ledger_remembers_newer_epochs_of_ours_is_enrolled_above_them(plane: ControlPlane) -> None:
    plane.machine(T4_HOST).ledger.epoch = 7
    operation = plane.services.operations.get(plane.add_host(T4_HOST))
    assert operation.state == "done"
    assert plane.services.hosts.get(T4_HOST).host.epoch == 8


def test_a_host_of_another_site_needs_a_take_over(plane: ControlPlane) -> None:
    plane.machine(T4_HOST).ledger.site = "other"
    operation = plane.services.operations.get(plane.add_host(T4_HOST))
    assert operation.state == "undone"
    assert operation.error is not None
    assert operation.error["code"] == "host.other_site"
    assert plane.machine(T4_HOST).ledger.site == "other"
    taken = plane.services.hosts.add(replace(add_host(T4_HOST), take_over=True))
    plane.engine.drain()
    assert plane.services.operations.get(str(taken.operation)).state == "done"


def test_a_host_with_vms_is_not_given_back(plane: ControlPlane) -> None:
    plane.add_host(T4_HOST)
    plane.services.vms.create(create_vm(start=False))
    plane.engine.drain()
    with pytest.raises(Conflict) as caught:
        plane.services.hosts.remove(T4_HOST)
    assert caught.value.code == "host.has_vms"
    assert plane.services.hosts.get(T4_HOST).host.state == "ready"


@pytest.mark.parametrize(
    "change,code",
    [
        ({"name": "-rf"}, "host.name_invalid"),
        ({"address": "-oProxyCommand=id"}, "host.address_invalid"),
        ({"address": "fe80::1%eth0"}, "host.address_invalid"),
        ({"address": "a b"}, "host.address_invalid"),
        ({"address": ""}, "host.address_invalid"),
        ({"port": 0}, "port.out_of_range"),
        ({"port": 65536}, "port.out_of_range"),
        ({"user": "root;id"}, "host.user_invalid"),
        ({"gpus": "first"}, "pci.address_invalid"),
        ({"gpus": ""}, "pci.address_invalid"),
        ({"fingerprint": "SHA256:other"}, "host.key_differs"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_stored(plane: ControlPlane, change: dict[str, Any], code: str) -> None:
    with pytest.raises(VgpuctlError) as caught:
        plane.services.hosts.add(replace(add_host(T4_HOST), **change))
    assert caught.value.code == code
    assert isinstance(caught.value, (InvalidInput, Fatal))
    assert plane.services.hosts.list() == ()
    assert plane.keys.keys == {}


def test_two_hosts_do_not_share_name_or_address(plane: ControlPlane) -> None:
    plane.add_host(T4_HOST)
    with pytest.raises(Conflict) as caught:
        plane.services.hosts.add(add_host(T4_HOST))
    assert caught.value.code == "host.exists"
    with pytest.raises(Conflict) as caught:
        plane.services.hosts.add(replace(add_host(T4_HOST), name="other"))
    assert caught.value.code == "host.address_taken"


def test_a_cordoned_host_gets_no_new_vms(plane: ControlPlane) -> None:
    plane.add_host(T4_HOST)
    plane.services.hosts.cordon(T4_HOST)
    with pytest.raises(NoCapacity) as caught:
        plane.services.vms.create(create_vm())
    assert "host.cordoned" in {reason.code for reason in caught.value.reasons}
    plane.services.hosts.uncordon(T4_HOST)
    assert plane.services.vms.create(create_vm()).operation


def test_who_cordoned_a_host_when_and_why_is_told_until_it_is_uncordoned(plane: ControlPlane) -> None:
    plane.add_host(T4_HOST)
    before = plane.world.clock.now()
    plane.services.hosts.cordon(T4_HOST, "fan 3 is loud")
    cordon = plane.services.hosts.get(T4_HOST).host.cordon
    assert cordon is not None
    assert cordon == Cordon(at=cordon.at, by="server", reason="fan 3 is loud")
    assert before <= cordon.at <= plane.world.clock.now()
    (told,) = (one.finding.observed for one in plane.findings.observe(T4_HOST) if one.finding.code == "host.cordoned")
    assert told.endswith(" by server: fan 3 is loud")
    plane.services.hosts.uncordon(T4_HOST)
    assert plane.services.hosts.get(T4_HOST).host.cordon is None
    assert "host.cordoned" not in {
        one.finding.code for one in plane.findings.observe(T4_HOST) if one.cleared_at is None
    }
