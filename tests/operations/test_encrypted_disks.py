# SPDX-License-Identifier: Apache-2.0
"""VMs whose own disk is encrypted: who has its key, what goes on with it, and what is refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, InvalidInput, QuotaExceeded
from orchestrator.services.vms.capacity import Question
from orchestrator.store.volume_keys import tenant_row, volume_row
from tests.fakes.control_plane import GIB, L40S_HOST, T4_HOST, ControlPlane, control_plane, create_vm, plane_with
from tests.fakes.fake_data_volumes import key_of
from tests.operations import moves, pools
from tests.operations.test_encrypted_volumes import secret_ids
from tests.operations.test_vm_life import finished
from tests.operations.test_volumes import done, refused
from tests.operations.volumes import create_encrypted_vm, new_encrypted

ENCRYPTED = replace(create_vm(), encrypted=True)


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST, L40S_HOST) as made:
        yield made


def passphrase(plane: ControlPlane) -> str:
    with plane.store.read() as tx:
        return tx.volume_keys.of_disk(plane.services.vms.get("default", "train")).passphrase


def test_it_starts_with_its_key_grows_and_is_deleted_with_it(plane: ControlPlane) -> None:
    done(plane, plane.services.vms.create(ENCRYPTED))
    assert plane.services.vms.create(ENCRYPTED).existing
    refused("vm.exists", Conflict, lambda: plane.services.vms.create(create_vm()))
    vm = plane.services.vms.get("default", "train")
    machine = plane.machine(vm.host)
    assert vm.volume == f"{vm.id}.luks.qcow2"
    assert machine.written[key_of(vm.volume)] == passphrase(plane)
    done(plane, plane.services.disk_growth.resize("default", "train", 8 * GIB))
    done(plane, plane.services.vms.stop("default", "train"))
    done(plane, plane.services.disk_growth.resize("default", "train", 9 * GIB))
    done(plane, plane.services.vms.start("default", "train"))
    ended = finished(plane, plane.services.vms.delete("default", "train").operation)
    assert "key destroyed" in [step.message for step in plane.services.operations.get(ended.id).steps]
    assert (secret_ids(plane), machine.volumes) == ({tenant_row("default")}, {})


def test_its_disk_is_opened_by_no_other_key(plane: ControlPlane) -> None:
    create_encrypted_vm(plane, start=False)
    plane.engine.drain()
    vm = plane.services.vms.get("default", "train")
    plane.machine(vm.host).written[key_of(vm.volume)] = "that of another disk"
    ended = finished(plane, plane.services.vms.start("default", "train").operation)
    assert (ended.error or {})["code"] == "vm.start_failed"


def test_no_passphrase_is_in_the_database_otherwise_than_closed(plane: ControlPlane, tmp_path: Path) -> None:
    done(plane, plane.services.vms.create(ENCRYPTED))
    kept = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert volume_row(plane.services.vms.get("default", "train").id).encode() in kept
    assert passphrase(plane).encode() not in kept


def test_a_create_that_fails_leaves_no_key(plane: ControlPlane) -> None:
    plane.machine(T4_HOST).guests_die = plane.machine(L40S_HOST).guests_die = True
    finished(plane, plane.services.vms.create(ENCRYPTED).operation)
    assert secret_ids(plane) == {tenant_row("default")}


def test_its_key_is_rotated_and_revoked_with_its_tenant_s(plane: ControlPlane) -> None:
    tenants = plane.services.tenancy.tenants
    new_encrypted(plane)
    done(plane, plane.services.vms.create(ENCRYPTED))
    before = passphrase(plane)
    rotated = tenants.rotate_key("default")
    assert rotated is not None
    assert (rotated.volumes, passphrase(plane)) == (2, before)
    refused("tenant.key_in_use", Conflict, lambda: tenants.revoke_key("default"))
    done(plane, plane.services.vms.stop("default", "train"))
    assert (tenants.revoke_key("default"), secret_ids(plane)) == (2, set())
    ended = finished(plane, plane.services.vms.start("default", "train").operation)
    assert (ended.state, (ended.error or {})["code"]) == ("undone", "vm.keyless")
    done(plane, plane.services.vms.delete("default", "train"))


def test_it_moves_while_it_is_stopped_and_not_with_its_memory(tmp_path: Path) -> None:
    plane = moves.plane_of_hosts(tmp_path)
    done(plane, plane.services.vms.create(replace(ENCRYPTED, profile=moves.MIGRATABLE.name, host=L40S_HOST)))
    vm, to = plane.services.vms.get("default", "train"), plane.services.moves.to_host("default", "train", moves.OTHER)
    assert {"move.encrypted"} <= {limit.code for limit in to.of("live").limits}
    assert to.may("cold")
    ended = finished(plane, moves.move_running(plane))
    moved = plane.services.vms.get("default", "train")
    assert (ended.state, moved.state) == ("done", "running")
    assert moved.host != vm.host
    assert plane.machine(moved.host).written[key_of(vm.volume)] == passphrase(plane)
    assert key_of(vm.volume) not in plane.machine(vm.host).written


def test_create_and_explain_refuse_it_in_a_pool(tmp_path: Path) -> None:
    plane = control_plane(tmp_path)
    pools.with_pool(plane)
    wanted = replace(ENCRYPTED, profile="NVIDIA L40S-12Q", pool="fast")
    question = Question(profile=wanted.profile, pool="fast", encrypted=True)
    refused("vm.encrypted_in_pool", InvalidInput, lambda: plane.services.vms.create(wanted))
    refused("vm.encrypted_in_pool", InvalidInput, lambda: plane.services.vms.plan(wanted))
    refused("vm.encrypted_in_pool", InvalidInput, lambda: plane.services.capacity.explain(question))


def test_a_policy_of_its_tenant_refuses_what_would_be_plain(plane: ControlPlane) -> None:
    services = plane.services
    services.volumes.create("default", "plain", GIB)
    done(plane, services.vms.create(create_vm("before")))
    services.tenancy.policies.change("default", {"encryption": "always"})
    question = Question(profile=ENCRYPTED.profile)
    for call in (
        lambda: services.vms.create(create_vm()), lambda: services.vms.plan(create_vm()),
        lambda: services.capacity.explain(question), lambda: services.volumes.create("default", "other", GIB),
    ):  # fmt: skip
        refused("encryption.required", QuotaExceeded, call)
    assert services.vms.create(create_vm("before")).existing
    assert services.volumes.create("default", "plain", GIB).volume.encryption == "none"
    assert services.capacity.explain(replace(question, encrypted=True)).explanation.fits
    done(plane, services.vms.create(ENCRYPTED))
    new_encrypted(plane)
    services.tenancy.policies.change("default", {"encryption": "optional"})
    done(plane, services.vms.create(create_vm("plain")))


def test_what_would_lay_its_content_bare_is_refused_by_name(plane: ControlPlane) -> None:
    services = plane.services
    done(plane, services.vms.create(ENCRYPTED))
    refused("snapshot.encrypted", Conflict, lambda: services.disk_snapshots.create("default", "train", "before"))
    refused("vm.not_suspendable", Conflict, lambda: services.suspension.suspend("default", "train"))
    copy = replace(ENCRYPTED, name="other", from_snapshot="train/before")
    refused("disk.copy_not_encrypted", InvalidInput, lambda: services.vms.create(copy))
    assert not services.vms.get("default", "train").snapshots
