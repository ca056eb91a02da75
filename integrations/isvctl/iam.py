# SPDX-License-Identifier: Apache-2.0
"""The suite ``iam``: a user of a tenant. Programs are named tokens; people come from the identity provider."""

from __future__ import annotations

from typing import Final

from integrations.isvctl.site import Results, Site, need, refusal
from integrations.isvctl.steps import Output, Step

TENANT: Final = "isv-iam"
USER: Final = "isv-iam-user"


def create_user(site: Site) -> Output:
    site.fresh_tenant(TENANT)
    about, _ = site.token(USER, TENANT, "tenant-user")
    return {"success": True, "username": about["name"], "access_key_id": about["id"]}


def test_credentials(site: Site) -> Output:
    results = Results()
    user = site.kept(USER)
    with results.probe("identity") as evidence:
        evidence["actor"] = user.whoami()["actor"]
    with results.probe("access"):
        user.create_volume({"name": "notes", "tenant": TENANT, "size_bytes": 2**30})
        need([volume["name"] for volume in user.volumes(TENANT)] == ["notes"], "its volume is not listed")
        user.delete_volume("notes", TENANT)
    return results.told(account_id=results["identity"].get("actor", ""))


def teardown(site: Site) -> Output:
    site.clear(TENANT)
    code = refusal(site.kept(USER).whoami, "token.refused")
    return {"success": True, "message": f"the user is gone ({code})"}


STEPS: Final = {
    "create_user": Step(create_user, "setup"),
    "test_credentials": Step(test_credentials),
    "teardown": Step(teardown, "teardown"),
}
