# SPDX-License-Identifier: Apache-2.0
"""Base images of tenants: a tenant's own alone, or shared with the others; within what it may have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, InvalidInput, NotFound, QuotaExceeded, VgpuctlError
from orchestrator.core.vms.image import MAX_OF_TENANT, Image, NewImage
from orchestrator.services.messages import CreateVm
from tests.fakes.control_plane import T4_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.recount import miscounted


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST) as made:
        for tenant in ("vision", "speech"):
            made.services.tenancy.tenants.create(tenant)
        yield made
        with made.store.read() as tx:
            assert list(miscounted(tx)) == []


def add(
    plane: ControlPlane, name: str, tenant: str | None = "vision", *, text: str = "", shared: bool = False
) -> Image:
    content = iter([(text or f"{tenant}/{name}").encode()])
    return plane.services.images.add(NewImage(name=name, source=content, size_bytes=1024), tenant, shared=shared)


def asks(tenant: str, image: str, name: str = "vm") -> CreateVm:
    return replace(create_vm(name), tenant=tenant, image=image)


def names(plane: ControlPlane, *tenants: str) -> list[str]:
    return [one.name for one in plane.services.images.list(tenants or None)]


def test_only_its_tenant_sees_it_and_makes_vms_of_it(plane: ControlPlane) -> None:
    image = add(plane, "ours")
    assert (image.name, image.tenant, image.short, image.shared) == ("vision/ours", "vision", "ours", False)
    assert names(plane) == ["guest", "vision/ours"]
    assert names(plane, "vision") == ["guest", "vision/ours"]
    assert names(plane, "speech") == ["guest"]
    vms, images = plane.services.vms, plane.services.images
    for name in ("ours", "vision/ours"):
        assert images.get(name, "vision") == image
        for asked in (partial(vms.create, asks("speech", name)), partial(images.get, name, "speech")):
            with pytest.raises(NotFound) as unknown:
                asked()
            assert (unknown.value.code, "ours'" in str(unknown.value.hint)) == ("image.unknown", False)
            assert "did you mean" not in str(unknown.value.hint)
    vms.create(asks("vision", "ours"))
    plane.engine.drain()
    made = vms.get("vision", "vm")
    assert (made.state, made.spec.image) == ("running", "vision/ours")
    assert vms.create(asks("vision", "ours")).existing
    with pytest.raises(Conflict, match="is the base of 1 VM: vision/vm"):
        images.remove("ours", "vision")


def test_two_tenants_have_images_of_one_name_and_the_site_another(plane: ControlPlane) -> None:
    first, second = add(plane, "base", "vision"), add(plane, "base", "speech")
    assert first.sha256 != second.sha256
    site = add(plane, "base", None)
    found = {tenant: plane.services.images.get("base", tenant).name for tenant in ("vision", "speech", "default")}
    assert found == {"vision": "vision/base", "speech": "speech/base", "default": "base"}
    assert plane.services.images.get("base") == site
    plane.services.vms.create(asks("vision", "base"))
    assert plane.services.vms.get("vision", "vm").spec.image == "vision/base"


def test_a_tenant_takes_no_name_that_the_site_has(plane: ControlPlane) -> None:
    with pytest.raises(Conflict) as taken:
        add(plane, "guest")
    assert taken.value.code == "image.exists"


def test_one_that_is_shared_is_anothers_by_its_full_name_until_it_is_not(plane: ControlPlane) -> None:
    vms = plane.services.vms
    add(plane, "common", shared=True)
    assert names(plane, "speech") == ["guest", "vision/common"]
    with pytest.raises(NotFound) as near:
        vms.create(asks("speech", "common"))
    assert near.value.hint == "did you mean vision/common?"
    vms.create(asks("speech", "vision/common"))
    plane.engine.drain()
    assert vms.create(asks("speech", "vision/common")).existing
    assert add(plane, "common", shared=False).shared is False
    assert names(plane, "speech") == ["guest"]
    assert vms.get("speech", "vm").state == "running"
    with pytest.raises(NotFound):
        vms.create(asks("speech", "vision/common", "another"))
    with pytest.raises(Conflict) as used:
        plane.services.images.remove("common", "vision")
    assert "speech" not in used.value.message


@pytest.mark.parametrize("name", ["vision/common", "common"])
def test_what_is_anothers_or_the_sites_is_changed_by_no_tenant(plane: ControlPlane, name: str) -> None:
    add(plane, "common", shared=True)
    before = plane.services.images.list()
    images = plane.services.images
    for change in (lambda: images.remove(name, "speech"), lambda: images.set_guest_driver(name, "580.65.06", "speech")):
        with pytest.raises(NotFound):
            change()
    with pytest.raises(NotFound, match="tenant vision has no image 'guest'"):
        images.remove("guest", "vision")
    assert images.list() == before


def test_the_files_of_its_images_count_in_its_quota(plane: ControlPlane) -> None:
    plane.services.tenancy.quotas.change("vision", {"images": 2})
    add(plane, "one")
    add(plane, "two")
    add(plane, "two")  # the same again
    with pytest.raises(QuotaExceeded) as beyond:
        add(plane, "three")
    assert "the quota of images is 2MiB, 2MiB in use, 1MiB asked for" in beyond.value.message
    used = {one.resource: one.used for one in plane.services.tenancy.quotas.get("vision")}
    assert used["images"] == 2
    plane.services.images.remove("one", "vision")
    add(plane, "three")
    add(plane, "three", "speech")


def test_what_is_sent_beyond_the_quota_is_not_read(plane: ControlPlane) -> None:
    plane.services.tenancy.quotas.change("vision", {"images": 1})

    def never() -> Iterator[bytes]:
        raise AssertionError("it is read")
        yield b""

    with pytest.raises(QuotaExceeded):
        plane.services.images.add(NewImage(name="large", source=never(), size_bytes=2**40), "vision")


def test_a_tenant_has_so_many_images_and_no_more(plane: ControlPlane) -> None:
    for number in range(MAX_OF_TENANT):
        add(plane, f"image-{number}")
    with pytest.raises(Conflict) as full:
        add(plane, "more")
    assert full.value.code == "image.too_many"


@pytest.mark.parametrize(
    "tenant, name, code",
    [
        ("vision", "../etc", "image.name_invalid"),
        ("vision", "a/b", "image.name_invalid"),
        ("vision", "x" * 57, "image.name_invalid"),
        ("nobody", "ours", "tenant.unknown"),
    ],
)
def test_bad_names_are_refused_and_leave_nothing(plane: ControlPlane, tenant: str, name: str, code: str) -> None:
    before = plane.services.images.list(), set(plane.image_files.files)
    with pytest.raises(VgpuctlError) as refused:
        add(plane, name, tenant)
    assert (refused.value.code, bool(refused.value.hint)) == (code, True)
    assert (plane.services.images.list(), set(plane.image_files.files)) == before


@pytest.mark.parametrize("image", ["a/b/c", "/guest", "vision/", "Vision/ours", "vision/..", "x" * 64])
def test_a_vm_of_no_image_name_is_refused(plane: ControlPlane, image: str) -> None:
    with pytest.raises(InvalidInput):
        plane.services.vms.create(asks("vision", image))


def test_a_tenant_with_images_is_not_deleted(plane: ControlPlane) -> None:
    add(plane, "ours")
    with pytest.raises(Conflict) as used:
        plane.services.tenancy.tenants.delete("vision")
    assert (used.value.code, used.value.hint) == ("tenant.in_use", "'vgpuctl image remove ours --tenant vision'")
    plane.services.images.remove("ours", "vision")
    plane.services.tenancy.tenants.delete("vision")


def test_content_that_two_have_is_kept_until_neither_has_it(plane: ControlPlane) -> None:
    image = add(plane, "one", text="the same")
    assert add(plane, "two", "speech", text="the same").sha256 == image.sha256
    plane.services.images.remove("one", "vision")
    assert image.sha256 in plane.image_files.files
    plane.services.images.remove("two", "speech")
    assert image.sha256 not in plane.image_files.files
