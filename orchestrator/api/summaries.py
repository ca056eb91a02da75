# SPDX-License-Identifier: Apache-2.0
"""What each operation of the API does, in a few words: for pages and clients that are written from its description."""

from __future__ import annotations

from typing import Final

THINGS: Final = {
    "vms": ("a VM", "VMs"),
    "hosts": ("a host", "hosts"),
    "gpus": ("a GPU", "GPUs"),
    "profiles": ("a profile", "profiles"),
    "images": ("an image", "images"),
    "mig_layouts": ("a host's MIG layout", "MIG layouts"),
    "networks": ("a network", "networks"),
    "volumes": ("a volume", "volumes"),
    "offerings": ("an offering", "offerings"),
    "driver_bundles": ("a driver bundle", "driver bundles"),
    "driver_lock": ("the driver lock", "driver locks"),
    "driver_upgrades": ("the driver upgrade", "driver upgrades"),
    "guests": ("a VM's guest", "guests"),
    "operations": ("an operation", "operations"),
    "capacity": ("what fits", "capacity"),
    "findings": ("findings", "findings"),
    "status": ("the status of the site", "statuses"),
    "server": ("the server", "servers"),
    "tenants": ("a tenant", "tenants"),
    "tokens": ("a token", "tokens"),
    "quotas": ("a tenant's quota", "quotas"),
    "policies": ("a tenant's policy", "policies"),
    "audit": ("the audit", "audit records"),
    "whoami": ("who asks", "callers"),
}
"""By the file of the routes: one of what they are about, and several."""
UNLIKE_THEIR_NAMES: Final = {
    "vms_extend": "Extend a VM's lease",
    "vms_open_console": "Open a VM's console",
    "vms_console_log": "Get a VM's console log",
    "vms_open_tcp": "Open a TCP port of a VM's guest",
    "hosts_scan": "Scan a host for its key",
    "hosts_check_new": "Check a host before it is added",
    "hosts_upgrade_agent": "Upgrade a host's agent",
    "hosts_provision": "Provision a host with its driver",
    "images_set_guest_driver": "Set an image's guest driver",
    "images_upload": "Upload an image's content",
    "images_upload_of_tenant": "Upload the content of a tenant's image",
    "images_get_of_tenant": "Get an image that a tenant may use",
    "images_set_guest_driver_of_tenant": "Set the guest driver of a tenant's image",
    "images_describe_of_tenant": "Describe a tenant's image",
    "images_remove_of_tenant": "Remove a tenant's image",
    "driver_bundles_upload": "Upload a driver bundle's content",
    "driver_lock_check": "Check hosts and VMs against the driver lock",
    "networks_create": "Create a tenant's network",
    "networks_get_of_tenant": "Get a tenant's network",
    "networks_describe_of_tenant": "Describe a tenant's network",
    "networks_delete_of_tenant": "Delete a tenant's network",
    "guests_provisioned": "Get what a VM's guest was provisioned with",
    "operations_stream": "Stream an operation's changes",
    "capacity_explain": "Explain where a VM would go",
    "capacity_gpu_map": "Get the map of GPUs",
    "findings_observe": "Observe hosts for findings",
    "tenants_members": "List a tenant's members",
    "tenants_put_member": "Put a tenant's member",
    "tenants_remove_member": "Remove a tenant's member",
}
"""By id, where the name of the route's function is no verb of the thing, or says too little."""


def summary_of(operation_id: str) -> str:
    """``Get a VM`` of ``vms_get``."""
    if operation_id in UNLIKE_THEIR_NAMES:
        return UNLIKE_THEIR_NAMES[operation_id]
    noun, _, verb = operation_id.rpartition("_")
    one, several = THINGS[noun]
    return f"{verb.capitalize()} {several if verb == 'list' else one}"
