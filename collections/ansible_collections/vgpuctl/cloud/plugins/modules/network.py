#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A network that VMs are put on."""

from __future__ import annotations

DOCUMENTATION = r"""
module: network
short_description: Make, share and delete networks of vgpuctl
version_added: 0.2.0
author:
  - vgpuctl (@vgpuctl)
description:
  - NAT networks of the site, which tenants share, or of a tenant alone.
extends_documentation_fragment:
  - vgpuctl.cloud.site
attributes:
  check_mode:
    description: Says what it would do and changes nothing.
    support: full
  diff_mode:
    description: Shows what is there and what would be.
    support: full
options:
  name:
    description: Its name.
    type: str
    required: true
  tenant:
    description: Whose it is; the site's when left out, also where the context names a tenant.
    type: str
  subnet:
    description: Like V(10.88.1.0/24); the next free one when left out.
    type: str
  shared:
    description: Whether tenants may put VMs on a network of the site.
    type: bool
  state:
    description: A network with VMs cannot be made V(absent).
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: A network of a tenant
  vgpuctl.cloud.network:
    name: blue
    tenant: research
    subnet: 10.88.1.0/24

- name: A network of the site that takes no more VMs
  vgpuctl.cloud.network:
    name: old
    shared: false
"""

RETURN = r"""
network:
  description: Name, subnet, tenant (null is the site) and whether it is shared; empty when it is gone.
  returned: success
  type: dict
  sample: {name: blue, subnet: 10.88.1.0/24, tenant: research, shared: false}
"""

from ansible_collections.vgpuctl.cloud.plugins.module_utils.site import ApiError, answer, differing, given, run

NEXT_FREE = "(the next free one)"


def _present(site, place, before):
    params = site.params
    different = before and differing(before, given(params, ["subnet"]))
    if different:
        hint = "give it another name, or make that one absent"
        raise ApiError("network.exists", f"there is already a network {params['name']}: {different}", hint)
    shared = params["shared"] if params["shared"] is not None else before.get("shared", params["tenant"] is None)
    if site.check_mode:
        new = {"name": params["name"], "tenant": params["tenant"], "subnet": params["subnet"] or NEXT_FREE}
        return {**new, **before, "shared": shared}
    after = before or site.post(*place[:-1], body=given(params, ["name", "subnet"]))
    if after["shared"] != shared:
        after = site.post(*place, "share" if shared else "unshare")
    return after


def _work(site):
    params = site.params
    if params["tenant"] is not None and params["shared"]:
        raise ApiError("request.invalid", "a tenant's network is the tenant's alone", "leave out shared or tenant")
    place = ["networks", params["name"]] if params["tenant"] is None else _place_of_tenant(params)
    before = site.find("network.unknown", *place) or {}
    if params["tenant"] is not None and before.get("tenant") is None:
        before = {}  # a shared one of the site, which the tenant calls so too
    if params["state"] == "present":
        after = _present(site, place, before)
    else:
        after = {}
        if before and not site.check_mode:
            site.delete(*place)
    return answer(before, after, network=after)


def _place_of_tenant(params):
    return ["tenants", params["tenant"], "networks", params["name"]]


def main():
    run(
        {
            "name": {"type": "str", "required": True},
            "tenant": {"type": "str"},
            "subnet": {"type": "str"},
            "shared": {"type": "bool"},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        _work,
    )


if __name__ == "__main__":
    main()
