# SPDX-License-Identifier: Apache-2.0
"""The suite ``vm``: one VM from its making to its end."""

from __future__ import annotations

import time
from functools import partial
from typing import Final

from integrations.isvctl.guest import uptime_s
from integrations.isvctl.site import KEY_NAME, LIMIT_S, Results, Site, Unmet, need, refusal
from integrations.isvctl.steps import Output, Step, absent
from vgpuctl import models

TENANT: Final = "isv-vm"
OTHER: Final = "isv-vm-other"
VM: Final = "machine"
TAGS: Final = {"Name": VM, "CreatedBy": "isvctl"}


def about(site: Site, vm: models.Vm) -> Output:
    """What the suite reads of an instance."""
    address = vm["addresses"][0] if vm["addresses"] else ""
    key = site.ssh_key()[0]
    return {
        "instance_id": vm["id"], "state": vm["state"], "public_ip": address, "private_ip": address,
        "instance_type": vm["profile"], "vpc_id": vm["network"], "ssh_user": site.guest_user,
        "key_file": str(key), "key_path": str(key), "ssh_key_path": str(key),
    }  # fmt: skip


def now(site: Site) -> Output:
    return about(site, site.admin.vm(VM, TENANT))


def launch_instance(site: Site) -> Output:
    site.fresh_tenant(TENANT)
    site.vm(VM, TENANT, ssh_keys=[site.ssh_key()[1]])
    site.address(VM, TENANT)
    vm = site.admin.vm(VM, TENANT)
    names = [line.split()[-1] for line in vm["ssh_keys"]]
    need(names, "the VM has no key")
    return {"success": True, **about(site, vm), "requested_key_name": KEY_NAME, "key_name": names[0]}


def list_instances(site: Site) -> Output:
    instances = [about(site, vm) for vm in site.admin.vms(TENANT)]
    wanted = now(site)["instance_id"]
    listed = wanted in {instance["instance_id"] for instance in instances}
    return {
        "success": listed, "instances": instances, "count": len(instances),
        "found_target": listed, "target_instance": wanted,
    }  # fmt: skip


def verify_tags(site: Site) -> Output:
    results = Results()
    with results.probe("label"):
        site.admin.change_vm(VM, TENANT, {"labels": TAGS})
    tags = site.admin.vm(VM, TENANT)["labels"]
    return results.told(instance_id=now(site)["instance_id"], tags=tags, tag_count=len(tags))


def serial_console(site: Site) -> Output:
    printed = site.until(lambda: site.admin.console_log(VM, TENANT), "the console printed nothing", 60)
    return {
        "success": True, "instance_id": now(site)["instance_id"], "console_available": True,
        "serial_access_enabled": False, "output_length": len(printed),
    }  # fmt: skip


def console_rbac(site: Site) -> Output:
    """A user of another tenant and one who may only watch are kept out; one of the tenant's own gets in, and nowhere
    else."""
    results = Results()
    with site.tenant(OTHER):
        stranger = site.token("isv-console-stranger", OTHER, "tenant-user")[1]
        watcher = site.token("isv-console-watcher", TENANT, "read-only")[1]
        own = site.token("isv-console-user", TENANT, "tenant-user")[1]
        with results.probe("denied_principal_cannot_access_console") as evidence:
            evidence["codes"] = [refusal(partial(who.console_log, VM, TENANT)) for who in (stranger, watcher)]
        with results.probe("allowed_principal_can_access_console"):
            need(own.console_log(VM, TENANT), "its own user reads nothing")
        with results.probe("allowed_principal_is_resource_scoped") as evidence:
            site.vm(VM, OTHER)
            evidence["code"] = refusal(lambda: own.console_log(VM, OTHER))
    return results.told(
        instance_id=now(site)["instance_id"], access_restricted=results.passed, rbac_model="role in a tenant",
        restricted_actions=["GET /v1/vms/{name}/console", "GET /v1/vms/{name}/console/log"],
    )  # fmt: skip


def virtual_device_hardening(site: Site) -> Output:
    """In the definition that hosts are given for such a VM."""
    found = site.definition(site.wish("probe", TENANT)).findall("devices/*")
    results = Results()
    with results.probe("usb_devices_disabled"):
        controllers = [one for one in found if one.tag == "controller" and one.get("type") == "usb"]
        need(controllers and all(one.get("model") == "none" for one in controllers), "there is a USB controller")
        others = [one for one in found if one not in controllers and "usb" in {one.get("bus"), one.get("type")}]
        need(not others, "there are USB devices")
    with results.probe("clipboard_disabled"):
        screens = [one for one in found if one.tag == "graphics"]
        channels = [target.get("name") for one in found if one.tag == "channel" for target in one.iter("target")]
        # QEMU's VNC has a clipboard by a channel for that alone; the guest agent freezes file systems
        need(set(channels) <= {"org.qemu.guest_agent.0"}, f"there are channels {channels}")
        need(all(one.get("type") == "vnc" for one in screens), "there is a screen with a clipboard")
    with results.probe("unnecessary_virtual_devices_absent") as evidence:
        evidence["devices"] = sorted({one.tag for one in found})
        spare = {"sound", "tablet", "redirdev", "smartcard", "parallel", "audio", "watchdog", "tpm"}
        cards = [one for one in found if one.tag == "video"]
        need(len(cards) == len(screens), "there is a graphics card without a screen")
        need(not spare & set(evidence["devices"]), f"there are {spare & set(evidence['devices'])}")
    return results.told(instance_id=now(site)["instance_id"])


def stop_instance(site: Site) -> Output:
    site.stop(VM, TENANT)
    stopped = now(site)
    return {"success": stopped["state"] == "stopped", **stopped, "stop_initiated": True}


def start_instance(site: Site) -> Output:
    site.start(VM, TENANT)
    return _answering(site, {"start_initiated": True})


def reboot_instance(site: Site) -> Output:
    """Whether it booted again its console tells, and how long ago its guest."""
    before = len(site.admin.console_log(VM, TENANT))
    began = time.monotonic()
    site.admin.wait(site.admin.restart_vm(VM, TENANT), timeout_s=LIMIT_S)
    printed = len(site.until(lambda: site.admin.console_log(VM, TENANT), "the console printed nothing", 60))
    output = _answering(site, {"reboot_initiated": True, "console_grew": printed != before})
    up = output.get("uptime_seconds")
    return output | {"reboot_confirmed": up is not None and up < time.monotonic() - began}


def _answering(site: Site, more: Output) -> Output:
    """It runs, and whether it answers SSH."""
    site.address(VM, TENANT)
    output = {**now(site), **more, "ssh_ready": False}
    try:
        up = uptime_s(site, VM, TENANT)
    except Unmet as error:
        return {**output, "success": False, "error": str(error)}
    return {**output, "success": True, "ssh_ready": True, "uptime_seconds": up}


def describe_instance(site: Site) -> Output:
    return {"success": True, **now(site)}


def teardown(site: Site) -> Output:
    site.clear(TENANT)
    code = refusal(lambda: site.admin.tenant(TENANT), "tenant.unknown")
    return {"success": True, "message": f"nothing is left ({code})"}


STEPS: Final = {
    "launch_instance": Step(launch_instance, "setup"),
    "list_instances": Step(list_instances),
    "verify_tags": Step(verify_tags),
    "serial_console": Step(serial_console),
    "console_rbac": Step(console_rbac),
    "component_key_access": absent(
        "GET /v1/console-ssh", "a console is opened with a token, a login or a uid over HTTPS, not with the VM's SSH "
        "key; tenants have no network devices", "sol_access", "network_device_access", key_name=KEY_NAME,
    ),
    "virtual_device_hardening": Step(virtual_device_hardening),
    "stop_instance": Step(stop_instance),
    "start_instance": Step(start_instance),
    "reboot_instance": Step(reboot_instance),
    "describe_instance": Step(describe_instance),
    "teardown": Step(teardown, "teardown"),
}  # fmt: skip
