# SPDX-License-Identifier: Apache-2.0
"""The suite ``control-plane``: the API answers, a token's life, a tenant's life."""

from __future__ import annotations

from typing import Final

from integrations.isvctl.site import Results, Site, need, refusal
from integrations.isvctl.steps import Output, Step, absent
from vgpuctl import models

TENANT: Final = "isv-control"
MADE: Final = "isv-made"
KEY: Final = "isv-control-key"


def check_api(site: Site) -> Output:
    results = Results()
    with results.probe("server") as evidence:
        evidence["version"] = site.admin.connection.call("GET", "/v1/server")["version"]
    with results.probe("caller") as evidence:
        evidence["actor"] = site.admin.whoami()["actor"]
    return results.told(account_id=results["caller"].get("actor", ""))


def create_access_key(site: Site) -> Output:
    site.fresh_tenant(TENANT)
    about, _ = site.token(KEY, TENANT, "tenant-user")
    return {"success": True, "access_key_id": about["id"], "username": about["name"]}


def _key(site: Site) -> models.Token:
    return next(token for token in site.admin.tokens(TENANT) if token["name"] == KEY)


def test_access_key(site: Site) -> Output:
    caller = site.kept(KEY).whoami()
    return {"success": True, "authenticated": True, "identity_id": caller["actor"], "account_id": caller["actor"]}


def disable_access_key(site: Site) -> Output:
    number = _key(site)["id"]
    site.admin.revoke_token(number, TENANT)
    need(_key(site)["revoked_at"], "it is not told as revoked")
    return {"success": True, "access_key_id": number, "status": "Inactive"}


def verify_key_rejected(site: Site) -> Output:
    return {"success": True, "rejected": True, "error_code": refusal(site.kept(KEY).whoami, "token.refused")}


def delete_access_key(site: Site) -> Output:
    """It went with its tenant's other tokens: nobody lists it, it opens nothing."""
    site.clear(TENANT)
    code = refusal(site.kept(KEY).whoami, "token.refused")
    return {"success": True, "message": f"nothing is left of it ({code})"}


def create_tenant(site: Site) -> Output:
    name = site.fresh_tenant(MADE)["name"]
    return {"success": True, "tenant_name": name, "tenant_id": name}


def list_tenants(site: Site) -> Output:
    names = [tenant["name"] for tenant in site.admin.tenants()]
    tenants = [{"tenant_name": name, "tenant_id": name} for name in names]
    listed = MADE in names
    return {
        "success": listed, "found_target": listed, "target_tenant": MADE, "count": len(names), "tenants": tenants,
    }  # fmt: skip


def get_tenant(site: Site) -> Output:
    tenant = site.admin.tenant(MADE)
    return {
        "success": True, "tenant_name": tenant["name"], "tenant_id": tenant["name"],
        "description": f"made at {tenant['created_at']}",
    }  # fmt: skip


def delete_tenant(site: Site) -> Output:
    site.clear(MADE)
    code = refusal(lambda: site.admin.tenant(MADE), "tenant.unknown")
    return {"success": True, "message": f"it is gone ({code})"}


STEPS: Final = {
    "check_api": Step(check_api),
    "create_access_key": Step(create_access_key, "setup"),
    "create_tenant": Step(create_tenant, "setup"),
    "test_access_key": Step(test_access_key),
    "disable_access_key": Step(disable_access_key),
    "verify_key_rejected": Step(verify_key_rejected),
    "list_tenants": Step(list_tenants),
    "get_tenant": Step(get_tenant),
    "s3_object_lifecycle": absent(
        "POST /v1/buckets", "there is no object store: out of the field of what places VMs", "put", "get", "delete",
        member="operations", bucket_name="", object_key="",
    ),
    "delete_access_key": Step(delete_access_key, "teardown"),
    "delete_tenant": Step(delete_tenant, "teardown"),
}  # fmt: skip
