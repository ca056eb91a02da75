# SPDX-License-Identifier: Apache-2.0
"""Base images of snapshots: whose they are, which hosts they go to, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, NotFound, QuotaExceeded
from orchestrator.core.tenancy.quota import Limit
from orchestrator.core.vms.image import MAX_OF_TENANT, NewImage
from orchestrator.core.vms.vm import Vm
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, control_plane, create_vm
from tests.operations import disk_snapshots as own
from tests.operations.suspending import running


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    made = control_plane(tmp_path)
    own.with_snapshot(running(T4_HOST))(made)
    yield made
    made.store.close()


def failure(plane: ControlPlane, operation: str | None) -> str:
    """Code of the error with which it was taken back; "": it went well."""
    plane.engine.drain()
    ended = plane.services.operations.get(str(operation))
    assert ended.state in {"done", "undone"}, ended
    return "" if ended.error is None else str(ended.error["code"])


def train(plane: ControlPlane) -> Vm:
    return plane.services.vms.get("default", "train")


def images(plane: ControlPlane) -> list[str]:
    with plane.store.read() as tx:
        return [image.name for image in tx.images.list()]


def limit(plane: ControlPlane, mib: int) -> None:
    with plane.store.begin() as tx:
        tx.quotas.put(Limit(tenant="default", resource="images", amount=mib))


def files_of(plane: ControlPlane) -> set[str]:
    return {name for name, (owner, _, _) in plane.machine(T4_HOST).volumes.items() if owner == train(plane).id}


def test_a_snapshot_becomes_an_image_that_vms_on_other_hosts_are_made_of(plane: ControlPlane) -> None:
    before, at_first = train(plane), files_of(plane)
    assert failure(plane, own.make_image(plane)) == ""
    assert (train(plane).snapshots, train(plane).state) == (before.snapshots, "running")
    assert files_of(plane) == at_first, "the copy is gone from the host"
    plane.add_host(L40S_HOST)
    plane.services.vms.create(replace(create_vm("twin", profile="NVIDIA L40S-12Q"), image="trained"))
    plane.engine.drain()
    twin = plane.services.vms.get("default", "twin")
    assert (twin.state, twin.host, twin.spec.image) == ("running", L40S_HOST, "default/trained")


def test_it_is_the_tenants_own(plane: ControlPlane) -> None:
    assert failure(plane, own.make_image(plane)) == ""
    assert [image.name for image in plane.services.images.list(("other",)) if image.tenant] == []
    with pytest.raises(NotFound) as unknown:
        plane.services.images.get("default/trained", "other")
    assert unknown.value.code == "image.unknown"
    with plane.store.read() as tx:
        assert tx.quotas.used("default")["images"] == 1, "MiB of its file"


def test_what_is_there_or_too_much_is_refused_before_anything_is_copied(plane: ControlPlane) -> None:
    at_first = files_of(plane)
    with plane.store.read() as tx:
        site = tx.images.list()[0].name
    with pytest.raises(Conflict) as taken:
        own.make_image(plane, site)
    assert taken.value.code == "image.exists"
    with pytest.raises(NotFound) as unknown:
        plane.services.disk_snapshots.image("default", "train", "never", "trained")
    assert unknown.value.code == "snapshot.unknown"
    limit(plane, 0)
    with pytest.raises(QuotaExceeded):
        own.make_image(plane)
    limit(plane, 1000)
    for number in range(MAX_OF_TENANT):
        plane.services.images.add(NewImage(name=f"i{number}", source=f"http://there/{number}"), "default")
    with pytest.raises(Conflict) as many:
        own.make_image(plane)
    assert many.value.code == "image.too_many"
    assert files_of(plane) == at_first


def test_a_quota_that_its_file_exceeds_leaves_nothing(plane: ControlPlane) -> None:
    """How large the file is shows when it has come."""
    at_first = files_of(plane)
    limit(plane, 1)
    operation = own.make_image(plane)
    plane.services.images.add(NewImage(name="meanwhile", source="http://there/1"), "default")
    assert failure(plane, operation) == "quota.exceeded"
    assert (images(plane).count("default/trained"), files_of(plane)) == (0, at_first)
    with plane.store.read() as tx:
        assert tx.quotas.used("default")["images"] == 1


def test_a_name_that_was_given_meanwhile_leaves_the_other_image(plane: ControlPlane) -> None:
    operation = own.make_image(plane)
    other = plane.services.images.add(NewImage(name="trained", source="http://there/1"), "default")
    assert failure(plane, operation) == "image.exists"
    assert plane.services.images.get("trained", "default") == other
