# SPDX-License-Identifier: Apache-2.0
"""Encrypted data volumes: who has their keys, how long, and what becomes of a volume whose key is gone."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, InvalidInput
from orchestrator.core.hosts.volume_key import VolumeKey
from orchestrator.services.vms.volumes import VolumeTraits
from orchestrator.store.volume_keys import own_row, tenant_row, volume_row
from tests.fakes.control_plane import T4_HOST, ControlPlane, plane_with
from tests.fakes.fake_data_volumes import key_of
from tests.operations.test_vm_life import finished
from tests.operations.test_volumes import done, having, refused, volume
from tests.operations.volumes import SIZE, new_encrypted


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST) as made:
        yield made


def passphrase(plane: ControlPlane, name: str = "data") -> str:
    with plane.store.read() as tx:
        return tx.volume_keys.get(volume(plane, name)).passphrase


def secret_ids(plane: ControlPlane) -> set[str]:
    with plane.store.read() as tx:
        return {row for row in tx.secrets.ids() if "-key:" in row}


def test_its_vm_starts_with_its_key_and_no_host_keeps_it(plane: ControlPlane) -> None:
    new_encrypted(plane)
    done(plane, plane.services.vms.create(having("data")))
    there, machine = volume(plane), plane.machine(T4_HOST)
    assert there.file == f"data.{there.id}.luks.raw"
    assert machine.written[key_of(there.file)] == passphrase(plane)
    done(plane, plane.services.vms.stop("default", "train"))
    done(plane, plane.services.vms.start("default", "train"))
    done(plane, plane.services.volumes.detach("default", "data", "train"))
    done(plane, plane.services.volumes.attach("default", "data", "train"))
    done(plane, plane.services.volumes.resize("default", "data", 2 * SIZE))
    machine.written[key_of(there.file)] = "that of another file"
    done(plane, plane.services.vms.stop("default", "train"))
    ended = finished(plane, plane.services.vms.start("default", "train").operation)
    assert (ended.error or {})["code"] == "vm.start_failed"


def test_no_passphrase_is_in_the_database_otherwise_than_closed(plane: ControlPlane, tmp_path: Path) -> None:
    new_encrypted(plane)
    done(plane, plane.services.vms.create(having("data")))
    key, files = passphrase(plane), [file for file in tmp_path.rglob("*") if file.is_file()]
    kept = b"".join(file.read_bytes() for file in files)
    assert volume_row(volume(plane).id).encode() in kept
    assert key.encode() not in kept
    assert key not in repr(VolumeKey(volume="", passphrase=key))


def test_deleting_one_destroys_its_key_with_its_row_and_says_so(plane: ControlPlane) -> None:
    new_encrypted(plane)
    new_encrypted(plane, "other")
    done(plane, plane.services.vms.create(having("data")))
    done(plane, plane.services.vms.delete("default", "train"))
    gone, stays = volume(plane), volume(plane, "other")
    ended = finished(plane, plane.services.volumes.delete("default", "data").operation)
    assert ended.state == "done"
    assert "key destroyed" in [step.message for step in plane.services.operations.get(ended.id).steps]
    assert secret_ids(plane) == {tenant_row("default"), volume_row(stays.id)}
    assert key_of(gone.file) not in plane.machine(T4_HOST).written
    plane.services.volumes.delete("default", "other")
    assert secret_ids(plane) == {tenant_row("default")}


def test_a_rotated_key_closes_the_same_passphrases(plane: ControlPlane) -> None:
    new_encrypted(plane)
    new_encrypted(plane, "other")
    done(plane, plane.services.vms.create(having("data")))
    with plane.store.read() as tx:
        tenant_key, closed = tx.secrets.get(tenant_row("default")), tx.secrets.get(volume_row(volume(plane).id))
    before = passphrase(plane)
    rotated = plane.services.tenancy.tenants.rotate_key("default")
    assert rotated is not None
    assert (rotated.origin, rotated.volumes) == ("site", 2)
    with plane.store.read() as tx:
        assert tx.secrets.get(tenant_row("default")) != tenant_key
        assert tx.secrets.get(volume_row(volume(plane).id)) != closed
    assert passphrase(plane) == before
    done(plane, plane.services.vms.stop("default", "train"))
    done(plane, plane.services.vms.start("default", "train"))


OWN = base64.b64encode(bytes(range(32))).decode()


def test_a_tenant_s_own_key_takes_the_place_of_the_site_s_until_another_comes(plane: ControlPlane) -> None:
    tenants = plane.services.tenancy.tenants
    assert (tenants.key("default"), tenants.rotate_key("default")) == (None, None)
    new_encrypted(plane)
    done(plane, plane.services.vms.create(having("data")))
    before = passphrase(plane)
    for own, origin, row in ((OWN, "tenant", own_row("default")), (None, "site", tenant_row("default"))):
        rotated = tenants.rotate_key("default", own)
        assert rotated is not None
        assert rotated == tenants.key("default")
        assert (rotated.origin, rotated.volumes) == (origin, 1)
        assert secret_ids(plane) == {row, volume_row(volume(plane).id)}
        assert passphrase(plane) == before
    done(plane, plane.services.vms.stop("default", "train"))
    done(plane, plane.services.vms.start("default", "train"))


def test_a_tenant_may_bring_its_key_before_its_first_volume_and_it_goes_with_the_tenant(plane: ControlPlane) -> None:
    tenants = plane.services.tenancy.tenants
    tenants.create("research")
    brought = tenants.rotate_key("research", OWN)
    assert brought is not None
    assert brought.id == hashlib.sha256(bytes(range(32))).hexdigest()[:16]
    volumes = plane.services.volumes
    its = volumes.create("research", "data", SIZE, traits=VolumeTraits(encrypted=True)).volume
    with plane.store.read() as tx:
        assert tx.volume_keys.get(its).passphrase
    assert tenants.key("research") == replace(brought, volumes=1)
    volumes.delete("research", "data")
    tenants.delete("research")
    assert secret_ids(plane) == set()


@pytest.mark.parametrize("text", ["", "short", OWN[:-4], OWN + OWN, OWN[:20] + "\n" + OWN[20:], "é" * 44, "-" * 44])
def test_what_is_no_key_is_refused_and_nothing_changes(plane: ControlPlane, text: str) -> None:
    new_encrypted(plane)
    there = plane.services.tenancy.tenants.key("default")
    with pytest.raises(InvalidInput, match="32 bytes") as refusal:
        plane.services.tenancy.tenants.rotate_key("default", text)
    assert refusal.value.code == "tenant.key_invalid"
    assert plane.services.tenancy.tenants.key("default") == there


def test_a_revoked_key_leaves_volumes_that_can_only_be_deleted(plane: ControlPlane) -> None:
    tenants, volumes = plane.services.tenancy.tenants, plane.services.volumes
    new_encrypted(plane)
    volumes.create("default", "plain", SIZE)
    done(plane, plane.services.vms.create(having("data")))
    refused("tenant.key_in_use", Conflict, lambda: tenants.revoke_key("default"))
    done(plane, plane.services.vms.stop("default", "train"))
    assert (tenants.revoke_key("default"), secret_ids(plane)) == (1, set())
    assert (volume(plane).encryption, volume(plane, "plain").encryption) == ("keyless", "none")
    ended = finished(plane, plane.services.vms.start("default", "train").operation)
    assert (ended.state, (ended.error or {})["code"]) == ("undone", "volume.keyless")
    done(plane, volumes.detach("default", "data", "train"))
    refused("volume.keyless", Conflict, lambda: volumes.attach("default", "data", "train"))
    done(plane, plane.services.vms.start("default", "train"))
    done(plane, volumes.delete("default", "data"))
    new_encrypted(plane, "next")
    assert passphrase(plane, "next")


def test_what_would_lay_its_content_bare_is_refused_by_name(plane: ControlPlane) -> None:
    volumes = plane.services.volumes
    new_encrypted(plane)
    refused("volume.exists", Conflict, lambda: volumes.create("default", "data", SIZE))
    done(plane, plane.services.vms.create(having("data")))
    take = plane.services.volume_snapshots.create
    refused("volume.encrypted", Conflict, lambda: take("default", "data", "before"))
    refused("vm.not_suspendable", Conflict, lambda: plane.services.suspension.suspend("default", "train"))
