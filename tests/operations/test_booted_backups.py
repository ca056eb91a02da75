# SPDX-License-Identifier: Apache-2.0
"""Backups that are booted to see whether they do: without network, for as long as it takes, and nothing stays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.actions.host_actions import DefineDomain
from orchestrator.core.domain_xml import domain_xml
from orchestrator.core.errors import InvalidInput, QuotaExceeded
from orchestrator.core.operation import Operation
from orchestrator.core.tenancy.quota import Limit
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.steps import boot_check
from orchestrator.services.vms.boot_checks import boot_backup
from tests.fakes.control_plane import T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.recount import miscounted
from tests.operations import backups as own
from tests.operations.suspending import delete, running


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    made = control_plane(tmp_path)
    own.with_backup(running(T4_HOST))(made)
    yield made
    made.store.close()


def printing(plane: ControlPlane, text: str) -> None:
    plane.machine(T4_HOST).written["console"] = text


def booted(plane: ControlPlane, profile: str | None = "GRID T4-2Q") -> Operation:
    """With nothing left of it on the host or in the database."""
    machine = plane.machine(T4_HOST)
    before = set(machine.volumes), set(machine.domains), set(machine.mdevs)
    operation = str(own.boot(plane, profile=profile))
    plane.engine.drain()
    assert (set(machine.volumes), set(machine.domains), set(machine.mdevs)) == before
    with plane.store.read() as tx:
        assert not list(miscounted(tx))
        assert [vm.spec.name for vm in tx.vms.list(tenant="default")] in (["train"], [])
    return plane.services.operations.get(operation)


def outcome(plane: ControlPlane) -> tuple[str | None, str | None]:
    backup = own.the_backup(plane)
    assert backup.booted_at is not None
    return backup.boot_outcome, backup.boot_line


def test_one_that_asks_for_a_login_is_written_down_and_nothing_stays(plane: ControlPlane) -> None:
    printing(plane, "Debian 12\r\n\x1b[1mtrain login: ")
    ended = booted(plane)
    assert (ended.state, ended.warnings) == ("done", ())
    assert outcome(plane) == ("login", "train login:")


def test_one_that_prints_something_else_for_as_long_as_it_has_is_done_with_a_warning(plane: ControlPlane) -> None:
    printing(plane, "Kernel panic - not syncing\r\n")
    ended = booted(plane)
    assert (ended.state, "Kernel panic" in str(ended.warnings)) == ("done", True)
    assert outcome(plane) == ("output", "Kernel panic - not syncing")


def test_one_that_stays_silent_has_failed(plane: ControlPlane) -> None:
    printing(plane, "")
    ended = booted(plane)
    assert (ended.state, (ended.error or {})["code"]) == ("undone", "backup.silent")
    assert outcome(plane) == ("silent", "")


def test_one_whose_vm_does_not_go_on_running_has_failed(plane: ControlPlane) -> None:
    printing(plane, "no bootable device")
    plane.machine(T4_HOST).guests_die = True
    ended = booted(plane)
    assert (ended.state, (ended.error or {})["code"]) == ("undone", "vm.guest_died")
    assert outcome(plane) == ("ended", "no bootable device")


def test_its_copy_is_on_no_network_and_not_started_by_its_host(plane: ControlPlane) -> None:
    own.boot(plane)
    with plane.store.read() as tx:
        vm = tx.vms.find("default", f"boot-{own.the_backup(plane).id[:8]}")
    assert vm is not None
    assert (vm.spec.networks, vm.spec.boot_policy, vm.wanted) == ((), "ask-controller", "absent")
    assert "<interface" not in domain_xml(vm.id, DefineDomain(vm=vm.id, domain=vm.domain).domain)


def test_it_is_of_the_profile_of_its_vm_and_wants_one_where_that_is_gone(plane: ControlPlane) -> None:
    printing(plane, "login:")
    assert booted(plane, profile=None).state == "done"
    delete(plane)
    plane.engine.drain()
    with pytest.raises(InvalidInput) as unknown:
        own.boot(plane, profile=None)
    assert unknown.value.code == "backup.which_profile"
    assert booted(plane).state == "done"


def test_asked_for_again_it_is_the_one_that_goes_on(plane: ControlPlane) -> None:
    first = own.boot(plane)
    assert own.boot(plane) == first


def test_it_counts_on_the_quota_of_its_tenant(plane: ControlPlane) -> None:
    with plane.store.begin() as tx:
        tx.quotas.put(Limit(tenant="default", resource="vms", amount=1))
    with pytest.raises(QuotaExceeded):
        own.boot(plane)


def test_one_that_is_cancelled_or_whose_vm_is_deleted_is_taken_back(plane: ControlPlane) -> None:
    machine = plane.machine(T4_HOST)
    before = set(machine.volumes)
    for end in (
        plane.services.operations.cancel,
        lambda _: plane.services.vms.delete("default", f"boot-{own.the_backup(plane).id[:8]}"),
    ):
        operation = str(own.boot(plane))
        end(operation)
        plane.engine.drain()
        assert plane.services.operations.get(operation).state == "undone"
        assert set(machine.volumes) == before
    assert own.the_backup(plane).booted_at is None


def test_from_the_moment_it_was_seen_it_only_goes_on() -> None:
    assert DEFINITIONS["boot_backup"].no_return is boot_check.SEEN


def test_a_vm_of_that_name_that_is_another_is_left_alone(plane: ControlPlane) -> None:
    backup = own.the_backup(plane)
    plane.services.vms.create(replace(create_vm(f"boot-{backup.id[:8]}", profile="GRID T4-2Q"), start=False))
    plane.engine.drain()
    with pytest.raises(Exception, match="boot-") as there:
        boot_backup(plane.services.vms, "default", backup.id, "GRID T4-2Q", 4)
    assert getattr(there.value, "code", "") == "vm.exists"
