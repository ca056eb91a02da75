# SPDX-License-Identifier: Apache-2.0
"""The suite ``security``, keys: the site draws a tenant's, or the tenant brings its own, and encrypted volumes are
closed with it."""

from __future__ import annotations

import base64
import hashlib
import os
from typing import Final

from integrations.isvctl.guest import in_guest, uptime_s
from integrations.isvctl.site import GIB, Results, Site, need, refusal
from integrations.isvctl.steps import Output
from vgpuctl import models

TENANT: Final = "isv-keys"
VM: Final = "holder"
VOLUME: Final = "closed"
_AT: Final = f"/dev/disk/by-id/virtio-{VOLUME}"
_KEY_BYTES: Final = 32
_SENTINEL: Final = "written-before"


def _encrypted(site: Site, name: str = VOLUME) -> str:
    """Id of a new one of the tenant."""
    site.admin.create_volume({"name": name, "tenant": TENANT, "size_bytes": GIB, "encrypted": True})
    return str(site.admin.volume(name, TENANT)["id"])


def _bring(site: Site) -> tuple[str, models.TenantKey]:
    """The id that a new key of the tenant's own has to have, and what the site then says of the tenant's key."""
    own = os.urandom(_KEY_BYTES)
    site.admin.rotate_tenant_key(TENANT, base64.b64encode(own).decode())
    return hashlib.sha256(own).hexdigest()[:16], site.admin.tenant_key(TENANT)


def kms_encryption_options_test(site: Site) -> Output:
    """The site's key of a tenant, and then the tenant's own in its place."""
    results, brought = Results(), ""
    with site.tenant(TENANT):
        _encrypted(site)
        drawn = site.admin.tenant_key(TENANT)
        with results.probe("provider_managed_key_available") as evidence:
            evidence["key"] = drawn["id"]
            need(drawn["id"] and drawn["origin"] == "site", "the site draws no key for a tenant")
        with results.probe("customer_managed_key_available") as evidence:
            evidence["key"], its = _bring(site)
            need((its["id"], its["origin"]) == (evidence["key"], "tenant"), "a tenant's own key was not taken")
            brought = evidence["key"]
        with results.probe("both_options_supported"):
            need(drawn["id"] and brought and brought != drawn["id"], "one of them is not there")
    return results.told(provider_managed_key_id=drawn["id"], customer_managed_key_id=brought)


def centralized_kms_test(site: Site) -> Output:
    """The server keeps tenants' keys, and each encrypted volume is closed with that of its tenant."""
    results, total, inspected, other = Results(), 0, 0, 0
    with site.tenant(TENANT):
        for name in (VOLUME, "more"):
            _encrypted(site, name)
        with results.probe("kms_service_reachable"):
            tenants = [tenant["name"] for tenant in site.admin.tenants()]
            keys = {name: site.admin.tenant_key(name) for name in tenants}
        with results.probe("kms_keys_present"):
            total = sum(key["id"] is not None for key in keys.values())
            need(total, "no tenant has a key")
        with results.probe("all_encrypted_resources_use_kms") as evidence:
            its = {name: [v for v in site.admin.volumes(name) if v["encryption"] == "luks"] for name in tenants}
            inspected = sum(map(len, its.values()))
            other = sum(abs(len(volumes) - keys[name]["volumes"]) for name, volumes in its.items())
            evidence["volumes"] = inspected
            need(inspected >= 2 and not other, f"{other} of {inspected} encrypted volumes have another key")
    return results.told(kms_keys_total=total, encrypted_resources_inspected=inspected, non_kms_resources=other)


def customer_managed_key_test(site: Site) -> Output:
    """A VM has a volume that is closed with its tenant's own key: the host opens it at each start, and once that key is
    destroyed nobody does."""
    results, key = Results(), ""
    with site.tenant(TENANT):
        volume = _encrypted(site)
        with results.probe("customer_managed_key_available"):
            key, its = _bring(site)
        with results.probe("key_manager_is_customer") as evidence:
            evidence["origin"] = its["origin"]
            need((its["id"], its["origin"]) == (key, "tenant"), "it is not the key that the tenant brought")
        with results.probe("resource_encrypted_with_customer_key"):
            need(its["volumes"] == 1, f"it closes {its['volumes']} volumes, not the one that there is")
        with results.probe("encrypt_decrypt_roundtrip"):
            _written_and_read(site)
        with results.probe("provider_managed_key_not_used") as evidence:
            site.admin.revoke_tenant_key(TENANT)
            evidence["code"] = refusal(
                lambda: site.start(VM, TENANT), "volume.keyless", otherwise="another key opens it"
            )
            site.admin.wait(site.admin.detach_volume(VOLUME, VM, TENANT))
    return results.told(key_id=key, encrypted_resource_id=volume)


def _written_and_read(site: Site) -> None:
    """Its VM is stopped then. Only real guests tell what is on it; any host opens it."""
    site.vm(VM, TENANT, volumes=[VOLUME], ssh_keys=[site.ssh_key()[1]])
    if site.guests:
        uptime_s(site, VM, TENANT)
        in_guest(site, VM, TENANT, f"echo {_SENTINEL} | dd of={_AT} conv=fsync 2>/dev/null")
    site.stop(VM, TENANT)
    site.start(VM, TENANT)
    if site.guests:
        uptime_s(site, VM, TENANT)
        read = in_guest(site, VM, TENANT, f"head -n 1 {_AT}")
        need(read.strip() == _SENTINEL, "what was written is not there")
    site.stop(VM, TENANT)
