# SPDX-License-Identifier: Apache-2.0
"""The suite ``image-registry``: an image of one's own, a VM from it, an offering that says how machines are set up."""

from __future__ import annotations

from typing import Final

from integrations.isvctl.site import Results, Site, need, refusal
from integrations.isvctl.steps import Output, Step
from integrations.isvctl.vm import about
from orchestrator.client.content import open_content

TENANT: Final = "isv-images"
IMAGE: Final = "isv-image"
SECOND: Final = "isv-second-image"
OFFERING: Final = "isv-offering"
VM: Final = "from-image"


def _upload(site: Site, name: str) -> str:
    """``ISV_IMAGE_FILE``, which may boot; else a small raw disk, which does not."""
    given = site.files("ISV_IMAGE_FILE")
    path = given[0] if given else site.work / "isv-image.raw"
    if not given:
        path.write_bytes(bytes(510) + b"\x55\xaa" + bytes(2**20 - 512))
    with open_content(path) as content:
        return str(site.admin.upload_image(name, content, None if given else "raw")["name"])


def _remove(site: Site, name: str) -> None:
    if name in _names(site):
        site.admin.remove_image(name)


def _names(site: Site) -> set[str]:
    return {image["name"] for image in site.admin.images()}


def upload_image(site: Site) -> Output:
    _remove(site, IMAGE)
    name = _upload(site, IMAGE)
    return {"success": True, "image_id": name, "storage_bucket": "the server's images", "disk_ids": [name]}


def crud_image(site: Site) -> Output:
    results = Results()
    _remove(site, SECOND)
    with results.probe("create"):
        _upload(site, SECOND)
    with results.probe("get") as evidence:
        evidence["format"] = site.admin.image(SECOND)["format"]
    with results.probe("list"):
        need(SECOND in _names(site), "it is not listed")
    with results.probe("delete") as evidence:
        site.admin.remove_image(SECOND)
        evidence["code"] = refusal(lambda: site.admin.image(SECOND), "image.unknown")
    return results.told("operations", image_id=SECOND)


def launch_instance(site: Site) -> Output:
    site.fresh_tenant(TENANT)
    site.vm(VM, TENANT, image=IMAGE, ssh_keys=[site.ssh_key()[1]])
    site.address(VM, TENANT)
    vm = site.admin.vm(VM, TENANT)
    need(vm["image"] == IMAGE, f"it was made from {vm['image']}")
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
    site.clear(TENANT)
    return {"success": True, "message": "nothing is left of the VM"}


def teardown_image(site: Site) -> Output:
    for name in (IMAGE, SECOND):
        _remove(site, name)
    need(IMAGE not in _names(site), "the image is still listed")
    return {"success": True, "message": f"the image is gone ({refusal(lambda: site.admin.image(IMAGE), 'image.')})"}


STEPS: Final = {
    "upload_image": Step(upload_image, "setup"),
    "crud_image": Step(crud_image),
    "launch_instance": Step(launch_instance),
    "crud_install_config": Step(crud_install_config),
    "teardown_instance": Step(teardown_instance, "teardown"),
    "teardown_image": Step(teardown_image, "teardown"),
}
