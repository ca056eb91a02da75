#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A tenant and who has a role in it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: tenant
short_description: Make, change and delete tenants of vgpuctl
version_added: 0.2.0
author:
  - vgpuctl (@vgpuctl)
description:
  - A tenant has VMs, members, networks and a quota of its own.
extends_documentation_fragment:
  - vgpuctl.cloud.site
  - vgpuctl.cloud.site.described
options:
  name:
    description: Its name.
    type: str
    required: true
  state:
    description: A tenant with VMs cannot be made V(absent).
    type: str
    choices: [present, absent]
    default: present
  members:
    description:
      - Roles by subject, like V(uid:1000) for a user of the server's machine. A role of null takes one away; those that
        are not named stay.
    type: dict
"""

EXAMPLES = r"""
- name: A tenant with two people
  vgpuctl.cloud.tenant:
    name: research
    members:
      "uid:1000": tenant-admin
      "uid:1001": tenant-user
    labels: {cost-centre: "4711"}
"""

RETURN = r"""
tenant:
  description: Name, members by subject, description and labels; empty when it is gone.
  returned: success
  type: dict
  sample: {name: research, members: {"uid:1000": tenant-admin}, description: "", labels: {cost-centre: "4711"}}
"""

from ansible_collections.vgpuctl.cloud.plugins.module_utils.site import (
    DESCRIBED,
    ApiError,
    answer,
    describe,
    merged,
    run,
    with_about,
)

ROLES = ("admin", "operator", "tenant-admin", "tenant-user", "read-only")


def _seen(site, name):
    found = site.find("tenant.unknown", "tenants", name)
    if found is None:
        return {}
    members = site.all("tenants", name, "members")
    return {
        "name": name,
        "members": {one["subject"]: one["role"] for one in members},
        "description": found["description"],
        "labels": found["labels"],
    }


def _check_roles(members):
    """Before anything is made: a tenant and its members are several requests."""
    for subject, role in (members or {}).items():
        if role not in (None, *ROLES):
            raise ApiError("role.invalid", f"{role!a} of {subject!a} is no role", f"one of {', '.join(ROLES)}, or null")


def _present(site, name, before):
    _check_roles(site.params["members"])
    members = merged(before.get("members", {}), site.params["members"])
    after = {"name": name, "members": members, **with_about(site.params, before)}
    if site.check_mode or before == after:
        return after
    if not before:
        before = {**site.post("tenants", body={"name": name}), "members": {}}
    describe(site, ["tenants", name], before)
    for subject, role in (site.params["members"] or {}).items():
        if role is not None:
            site.put("tenants", name, "members", body={"subject": subject, "role": role})
        elif subject in before["members"]:
            site.delete("tenants", name, "members", subject=subject)
    return _seen(site, name)


def _work(site):
    name = site.params["name"]
    before = _seen(site, name)
    if site.params["state"] == "present":
        after = _present(site, name, before)
    else:
        after = {}
        if before and not site.check_mode:
            site.delete("tenants", name, unknown="tenant.unknown")
    return answer(before, after, tenant=after)


def main():
    run(
        {
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "members": {"type": "dict"},
            **DESCRIBED,
        },
        _work,
    )


if __name__ == "__main__":
    main()
