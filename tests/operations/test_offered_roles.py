# SPDX-License-Identifier: Apache-2.0
"""Roles that an offering asks for are run in the guests of its new VMs, or nothing is made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.errors import Fatal, VgpuctlError
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.operation import Operation
from orchestrator.services.messages import CreateVm, Started
from orchestrator.services.vms.capacity import Question
from tests.fakes.control_plane import T4_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.drivers import with_bundle
from tests.fakes.fake_guests import FakeGuests

TOKEN = "eyJhbGciOi.TOKEN"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST) as made:
        yield made


def _offer(plane: ControlPlane, *roles: str, **settings: int | str) -> None:
    offering = Offering(
        name="ready", origin="site", kind="time_sliced", vgpu_type="GRID T4-4Q", provision=roles,
        provision_settings=settings,
    )  # fmt: skip
    plane.services.offerings.put(offering, look_up=True)


def _guests(plane: ControlPlane) -> FakeGuests:
    assert isinstance(plane.world.guests, FakeGuests)
    return plane.world.guests


def _wanted(**more: Any) -> CreateVm:
    return replace(create_vm(profile="ready"), **more)


def _create(plane: ControlPlane, **more: Any) -> tuple[Started, Operation | None]:
    """What was started, and the run as it ended."""
    started = plane.services.vms.create(_wanted(**more))
    plane.engine.drain()
    run = None if started.provisioning is None else plane.services.operations.get(started.provisioning)
    return started, run


def _refused(call: Callable[[], object]) -> VgpuctlError:
    with pytest.raises(VgpuctlError) as caught:
        call()
    return caught.value


def _secrets(plane: ControlPlane) -> tuple[str, ...]:
    with plane.store.read() as tx:
        return tuple(one for one in tx.secrets.ids() if one.startswith("guest."))


def test_the_roles_of_the_offering_are_run_once_the_vm_runs_with_those_that_were_named(plane: ControlPlane) -> None:
    _offer(plane, "guest_check", "guest_exporter", exporter_port=9500)
    assert plane.services.profiles.get("ready").offering.provision == ("guest_check", "guest_exporter")
    started, run = _create(plane, provision=("guest_mps",), provision_settings={"mps_memory_mib": 512})
    assert run is not None
    assert (run.state, run.error, run.subject_name) == ("done", None, "default/train")
    (wanted,) = _guests(plane).wanted
    assert wanted.roles == ("guest_mps", "guest_exporter", "guest_check")
    assert wanted.settings == {"exporter_port": 9500, "mps_memory_mib": 512}
    vm = plane.services.vms.get("default", "train")
    assert (vm.state, vm.operation) == ("running", started.provisioning)
    assert [one.operation for one in plane.services.guests.get("default", "train").results] == [run.id] * 3


def test_what_is_said_with_the_vm_goes_before_what_the_offering_says(plane: ControlPlane) -> None:
    _offer(plane, "guest_exporter", exporter_port=9500)
    _create(plane, provision_settings={"exporter_port": 9600})
    assert [dict(one.settings) for one in _guests(plane).wanted] == [{"exporter_port": 9600}]


def test_no_provision_leaves_the_offerings_roles_out_and_keeps_the_named_ones(plane: ControlPlane) -> None:
    _offer(plane, "guest_exporter", exporter_port=9500)
    assert _create(plane, no_provision=True)[1] is None
    assert not _guests(plane).wanted
    _, run = _create(plane, name="other", no_provision=True, provision=("guest_check",))
    assert run is not None
    assert [one.roles for one in _guests(plane).wanted] == [("guest_check",)]


def test_a_plan_shows_the_roles_and_makes_nothing(plane: ControlPlane) -> None:
    _offer(plane, "guest_check")
    assert plane.services.vms.plan(_wanted(provision=("guest_mps",))).provision == (
        "guest_mps",
        "guest_check",
    )
    assert plane.services.vms.plan(_wanted(no_provision=True)).provision == ()
    assert not plane.services.vms.list(None)


def test_a_driver_that_nobody_brought_is_the_same_refusal_to_create_plan_and_explain(plane: ControlPlane) -> None:
    _offer(plane, "guest_driver", "guest_check")
    request, question = _wanted(), Question(profile="ready")
    asked = (
        lambda: plane.services.vms.create(request),
        lambda: plane.services.vms.plan(request),
        lambda: plane.services.capacity.explain(question),
    )
    assert [_refused(call).code for call in asked] == ["bundle.missing"] * 3
    assert not plane.services.vms.list(None)
    with_bundle(plane, plane.machine(T4_HOST).driver_version or "", flavour="grid")
    assert plane.services.capacity.explain(question).explanation.fits
    assert plane.services.vms.plan(request).provision == ("guest_driver", "guest_check")


@pytest.mark.parametrize(("more", "code"), [
    ({"start": False}, "guest.not_started"),
    ({"provision": ("guest_chek",)}, "guest.role_unknown"),
    ({"provision": ("guest_licence",)}, "guest.secret_missing"),
    ({"provision_settings": {"exporter_port": 9500}}, "guest.setting_unused"),
    ({"no_provision": True, "provision_secrets": {"licence_token": TOKEN}}, "guest.setting_unused"),
])  # fmt: skip
def test_what_cannot_be_run_is_refused_by_plan_and_create_alike(
    plane: ControlPlane, more: dict[str, Any], code: str
) -> None:
    _offer(plane, "guest_check")
    request = _wanted(**more)
    assert _refused(lambda: plane.services.vms.plan(request)).code == code
    assert _refused(lambda: plane.services.vms.create(request)).code == code
    assert not plane.services.vms.list(None)
    assert _secrets(plane) == ()


def test_a_token_that_comes_with_the_vm_reaches_the_run_and_is_forgotten_then(plane: ControlPlane) -> None:
    _offer(plane, "guest_licence")
    started, run = _create(plane, provision_secrets={"licence_token": TOKEN})
    assert run is not None
    assert run.state == "done"
    assert [dict(one.secrets) for one in _guests(plane).wanted] == [{"licence_token": TOKEN}]
    assert _secrets(plane) == ()
    assert TOKEN not in repr((started, run, plane.services.tenancy.audit.list(limit=100)))


def test_a_vm_that_could_not_be_made_has_no_run_and_leaves_no_secret(plane: ControlPlane) -> None:
    _offer(plane, "guest_licence")
    plane.hosts.strike = lambda _number, moment, name: (
        Fatal("domain.refused", "libvirt says no") if (moment, name) == ("before", "DefineDomain") else None
    )
    started, run = _create(plane, provision_secrets={"licence_token": TOKEN})
    assert run is not None
    assert plane.services.operations.get(str(started.operation)).state == "undone"
    assert (run.state, (run.error or {}).get("code")) == ("undone", "vm.not_running")
    assert (_secrets(plane), _guests(plane).wanted) == ((), [])


def test_the_same_request_again_says_what_goes_on_and_begins_nothing(plane: ControlPlane) -> None:
    _offer(plane, "guest_check")
    first = plane.services.vms.create(_wanted())
    again = plane.services.vms.create(_wanted())
    assert (again.operation, again.provisioning, again.existing) == (first.operation, first.provisioning, True)
    plane.engine.drain()
    assert plane.services.vms.create(_wanted()).operation is None
    assert len(_guests(plane).wanted) == 1


def test_deleting_a_vm_while_its_roles_are_queued_ends_both(plane: ControlPlane) -> None:
    _offer(plane, "guest_licence")
    started = plane.services.vms.create(_wanted(provision_secrets={"licence_token": TOKEN}))
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    assert plane.services.operations.get(str(started.provisioning)).state == "undone"
    assert (plane.services.vms.list(None), _secrets(plane)) == ((), ())
