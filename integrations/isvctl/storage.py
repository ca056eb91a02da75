# SPDX-License-Identifier: Apache-2.0
"""The suite ``storage``: data volumes. What a guest writes is shown by real guests alone."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Final

from integrations.isvctl.guest import NOT_REAL, in_guest, uptime_s
from integrations.isvctl.site import GIB, Results, Site, need, refusal
from integrations.isvctl.steps import Output, Step
from integrations.isvctl.vm import about
from vgpuctl import VgpuctlError

TENANT: Final = "isv-storage"
SHIM_TENANT: Final = "isv-storage-api"
SHIM_TOKEN: Final = "isv-storage-api-token"  # noqa: S105 (a name)
QUOTA_MIB: Final = 100 * 1024
VM: Final = "holder"
VOLUME: Final = "data"
DEVICE: Final = "/dev/vdb"
MOUNT: Final = "/mnt/isv"
SENTINEL: Final = "kept"
SNAPSHOT: Final = "isv"
_MOUNT_IT: Final = f"mkdir -p {MOUNT} && mount -t ext4 {DEVICE} {MOUNT}"


def setup(site: Site) -> Output:
    """What the suite's storage API is asked for: a tenant with a quota, and a token of it."""
    site.fresh_tenant(SHIM_TENANT)
    site.admin.change_quota(SHIM_TENANT, {"disk": QUOTA_MIB})
    site.token(SHIM_TOKEN, SHIM_TENANT, "tenant-admin")
    manifest = site.work / "storage-manifest.json"
    manifest.write_text(json.dumps(_manifest()))
    return {"success": True, "storage": {"manifest_path": str(manifest)}}


def _manifest() -> dict[str, object]:
    provider = {
        "id": "vgpuctl-volumes", "name": "vgpuctl-volumes", "tenant_id": SHIM_TENANT, "sdk_version": "v1beta1",
        "provider": {
            "name": "data volumes", "description": "local disks of a host, one VM's at a time", "type": "block",
            "protocols": ["virtio"], "version": "1.0.0",
        },
        "shim": {"kind": "python", "module": str(Path(__file__).with_name("storage_shim.py"))},
        "capabilities": {
            "tenantManagement": {"list": "none", "get": "none", "getQuota": "native"},
            "volumeManagement": {"list": "native", "get": "native", "create": "native", "delete": "native"},
            "quotaManagement": "none",
        },
    }  # fmt: skip
    return {
        "schema_version": "v1alpha2", "namespace": "vgpuctl.local", "vendor": {"vendorName": "vgpuctl"},
        "providers": [provider],
    }  # fmt: skip


def launch_instance(site: Site) -> Output:
    site.fresh_tenant(TENANT)
    vm = site.vm(VM, TENANT, ssh_keys=[site.ssh_key()[1]])
    return {"success": vm["state"] == "running", **about(site, vm)}


def create_volume(site: Site) -> Output:
    """Made and attached while the VM stands still, then it runs again."""
    results = Results()
    with results.probe("create"):
        site.admin.create_volume({"name": VOLUME, "tenant": TENANT, "size_bytes": 10 * GIB})
    with results.probe("attach"):
        site.stop(VM, TENANT)
        site.admin.wait(site.admin.attach_volume(VOLUME, VM, TENANT))
        site.start(VM, TENANT)
        need(site.admin.vm(VM, TENANT)["volumes"] == [VOLUME], "the VM does not have it")
    if not site.guests:
        results.fail(("format", "mount", "write_sentinel"), NOT_REAL)
        return results.told("operations", volume_id=VOLUME, mount_point="")
    uptime_s(site, VM, TENANT)
    for name, command in (
        ("format", f"mkfs.ext4 -q -F {DEVICE}"),
        ("mount", _MOUNT_IT),
        ("write_sentinel", f"echo {SENTINEL} > {MOUNT}/sentinel && sync"),
    ):
        with results.probe(name):
            in_guest(site, VM, TENANT, command)
    return results.told("operations", volume_id=VOLUME, mount_point=MOUNT)


def snapshot_lifecycle(site: Site) -> Output:
    """While its VM runs, which then has both: what it wrote is read from a volume that was made of the snapshot."""
    results, copy, mount = Results(), f"{VOLUME}-restored", f"{MOUNT}-restored"
    with results.probe("create_snapshot"):
        if site.guests:
            in_guest(site, VM, TENANT, "sync")
        site.admin.wait(site.admin.create_volume_snapshot(VOLUME, TENANT, SNAPSHOT))
    with results.probe("restore_volume"):
        site.admin.wait(site.admin.copy_volume(VOLUME, {"snapshot": SNAPSHOT, "name": copy}, TENANT))
        site.admin.wait(site.admin.attach_volume(copy, VM, TENANT))
        need(site.admin.vm(VM, TENANT)["volumes"] == [VOLUME, copy], "the VM does not have it")
    if site.guests:
        with results.probe("verify_data") as evidence:
            at = f"/dev/disk/by-id/virtio-{copy}"
            in_guest(site, VM, TENANT, f"mkdir -p {mount} && mount -t ext4 -o ro,noload {at} {mount}")
            evidence["content_matches"] = in_guest(site, VM, TENANT, f"cat {mount}/sentinel").strip() == SENTINEL
            in_guest(site, VM, TENANT, f"umount {mount}")
            need(bool(evidence["content_matches"]), "what was written is not there")
    else:
        results.fail(("verify_data",), NOT_REAL)
    with suppress(VgpuctlError):  # what is left, the teardown of the tenant tells of
        site.admin.wait(site.admin.detach_volume(copy, VM, TENANT))
        site.admin.wait(site.admin.delete_volume(copy, TENANT))
    with suppress(VgpuctlError):
        site.admin.wait(site.admin.delete_volume_snapshot(VOLUME, TENANT, SNAPSHOT))
    return results.told("operations", volume_id=VOLUME, snapshot_id=SNAPSHOT)


def volume_resize(site: Site) -> Output:
    """While its VM runs, which has no partition on it: its file system is as long as the volume."""
    results, larger = Results(), 12 * GIB
    with results.probe("modify_volume"):
        site.admin.wait(site.admin.resize_volume(VOLUME, larger, TENANT))
        need(site.admin.volume(VOLUME, TENANT)["size_bytes"] == larger, "it has another size than was asked for")
    if not site.guests:
        results.fail(("grow_partition", "resize_filesystem", "verify_size"), NOT_REAL)
        return results.told("operations", volume_id=VOLUME)
    with results.probe("grow_partition"):
        seen = in_guest(site, VM, TENANT, f"blockdev --getsize64 {DEVICE}")
        need(int(seen) == larger, f"the guest sees {seen.strip()} bytes of it")
    with results.probe("resize_filesystem"):
        in_guest(site, VM, TENANT, f"resize2fs {DEVICE}")
    with results.probe("verify_size"):
        blocks, size = map(int, in_guest(site, VM, TENANT, f"stat -f -c '%b %S' {MOUNT}").split())
        need(blocks * size > 11 * GIB, f"its file system has {blocks * size} bytes")
        need(in_guest(site, VM, TENANT, f"cat {MOUNT}/sentinel").strip() == SENTINEL, "what was written is not there")
    return results.told("operations", volume_id=VOLUME)


def volume_persistence(site: Site) -> Output:
    results = Results()
    with results.probe("stop"):
        site.stop(VM, TENANT)
    with results.probe("start"):
        site.start(VM, TENANT)
    with results.probe("verify_attached"):
        need(site.admin.vm(VM, TENANT)["volumes"] == [VOLUME], "the VM does not have it any more")
    with results.probe("verify_data"):
        uptime_s(site, VM, TENANT)
        in_guest(site, VM, TENANT, _MOUNT_IT)
        read = in_guest(site, VM, TENANT, f"cat {MOUNT}/sentinel")
        need(read.strip() == SENTINEL, "what was written is not there")
    return results.told("operations", volume_id=VOLUME)


def provision_storage(site: Site) -> Output:
    results = Results()
    with site.tenant("isv-provision") as tenant:
        with results.probe("api_available"):
            need(site.has("POST /v1/volumes"), "the API has no volumes")
        with results.probe("provisioned"):
            site.admin.create_volume({"name": "asked", "tenant": tenant, "size_bytes": 12 * GIB})
        with results.probe("capacity_matches") as evidence:
            evidence["capacity_gib"] = site.admin.volume("asked", tenant)["size_bytes"] / GIB
            need(evidence["capacity_gib"] == 12, "it has another size than was asked for")
    return results.told()


def teardown_volume(site: Site) -> Output:
    """Refused while it is attached; then detached and deleted."""
    results = Results()
    with results.probe("kept_while_attached") as evidence:
        evidence["code"] = refusal(lambda: site.admin.delete_volume(VOLUME, TENANT), "volume.")
    with results.probe("detach"):
        site.stop(VM, TENANT)
        site.admin.wait(site.admin.detach_volume(VOLUME, VM, TENANT))
    with results.probe("delete"):
        site.admin.wait(site.admin.delete_volume(VOLUME, TENANT))
        refusal(lambda: site.admin.volume(VOLUME, TENANT), "volume.unknown")
    return results.told("operations")


def teardown(site: Site) -> Output:
    for tenant in (TENANT, SHIM_TENANT):
        site.clear(tenant)
    return {"success": True, "message": "nothing is left"}


STEPS: Final = {
    "setup": Step(setup, "setup"),
    "launch_instance": Step(launch_instance),
    "create_volume": Step(create_volume),
    "snapshot_lifecycle": Step(snapshot_lifecycle),
    "volume_resize": Step(volume_resize),
    "volume_persistence": Step(volume_persistence),
    "provision_storage": Step(provision_storage),
    "teardown_volume": Step(teardown_volume, "teardown"),
    "teardown": Step(teardown, "teardown"),
}  # fmt: skip
