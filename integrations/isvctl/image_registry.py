# SPDX-License-Identifier: Apache-2.0
"""The suite ``image-registry``: an image of one's own, a VM from it, an offering that says how machines are set up."""

from __future__ import annotations

from typing import Final

from integrations.isvctl.site import LIMIT_S, Results, Site, need, refusal
from integrations.isvctl.steps import Output, Step
from integrations.isvctl.vm import about
from orchestrator.client.content import open_content
from vgpuctl import Client

TENANT: Final = "isv-images"
USER: Final = "isv-images-user"
IMAGE: Final = "isv-image"
SECOND: Final = "isv-second-image"
OFFERING: Final = "isv-offering"
VM: Final = "from-image"


def _upload(site: Site, user: Client, name: str) -> str:
    """``ISV_IMAGE_FILE``, which may boot; else a small raw disk, which does not."""
    given = site.files("ISV_IMAGE_FILE")
    path = given[0] if given else site.work / "isv-image.raw"
    if not given:
        path.write_bytes(bytes(510) + b"\x55\xaa" + bytes(2**20 - 512))
    with open_content(path) as content:
        return str(user.upload_image(name, content, None if given else "raw", TENANT)["name"])


def upload_image(site: Site) -> Output:
    """By a user of a tenant, for that tenant alone."""
    site.fresh_tenant(TENANT)
    name = _upload(site, site.token(USER, TENANT, "tenant-user")[1], IMAGE)
    return {"success": True, "image_id": name, "storage_bucket": f"images of {TENANT}", "disk_ids": [name]}


def crud_image(site: Site) -> Output:
    results = Results()
    user = site.kept(USER)
    with results.probe("create"):
        _upload(site, user, SECOND)
    with results.probe("get") as evidence:
        evidence["format"] = user.image(SECOND, TENANT)["format"]
    with results.probe("list"):
        need({IMAGE, SECOND} <= _names(user), "it is not listed")
    with results.probe("delete") as evidence:
        user.remove_image(SECOND, TENANT)
        evidence["code"] = refusal(lambda: user.image(SECOND, TENANT), "image.unknown")
    return results.told("operations", image_id=SECOND)


def _names(user: Client) -> set[str]:
    """Of the tenant's own, as it calls them."""
    return {image["name"].rpartition("/")[2] for image in user.images(TENANT)}


def launch_instance(site: Site) -> Output:
    site.vm(VM, TENANT, image=IMAGE, ssh_keys=[site.ssh_key()[1]])
    site.address(VM, TENANT)
    vm = site.admin.vm(VM, TENANT)
    need(vm["image"].rpartition("/")[2] == IMAGE, f"it was made from {vm['image']}")
    return {"success": vm["state"] == "running", **about(site, vm)}


def crud_install_config(site: Site) -> Output:
    """An offering: what a machine has and which roles are run in it."""
    results = Results()
    profile = site.admin.profile(site.profile)
    known = {name: profile.get(name) for name in ("kind", "vgpu_type", "mig_profile")}
    wanted = {"name": OFFERING, **{name: value for name, value in known.items() if value}, "description": "first"}
    _forget(site)
    with results.probe("create"):
        site.admin.put_offering(wanted)
    with results.probe("read"):
        need(_description(site) == "first", "it is not read back")
    with results.probe("update"):
        site.admin.put_offering({**wanted, "version": 2, "description": "second", "provision": ["guest_check"]})
        need(_description(site) == "second", "it was not changed")
    with results.probe("delete"):
        site.admin.remove_offering(OFFERING)
        need(_description(site) is None, "it is still there")
    return results.told("operations", config_id=OFFERING, config_name=OFFERING)


def _description(site: Site) -> str | None:
    return next((one["description"] for one in site.admin.offerings() if one["name"] == OFFERING), None)


def _forget(site: Site) -> None:
    if _description(site) is not None:
        site.admin.remove_offering(OFFERING)


def teardown_instance(site: Site) -> Output:
    site.admin.wait(site.admin.delete_vm(VM, TENANT), timeout_s=LIMIT_S)
    code = refusal(lambda: site.admin.vm(VM, TENANT), "vm.unknown")
    return {"success": True, "message": f"nothing is left of the VM ({code})"}


def teardown_image(site: Site) -> Output:
    user = site.kept(USER)
    user.remove_image(IMAGE, TENANT)
    code = refusal(lambda: user.image(IMAGE, TENANT), "image.unknown")
    site.clear(TENANT)
    return {"success": True, "message": f"the image is gone ({code})"}


STEPS: Final = {
    "upload_image": Step(upload_image, "setup"),
    "crud_image": Step(crud_image),
    "launch_instance": Step(launch_instance),
    "crud_install_config": Step(crud_install_config),
    "teardown_instance": Step(teardown_instance, "teardown"),
    "teardown_image": Step(teardown_image, "teardown"),
}
