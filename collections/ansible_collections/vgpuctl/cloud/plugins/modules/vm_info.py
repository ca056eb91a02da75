#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""VMs as the server knows them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vm_info
short_description: List VMs of vgpuctl
version_added: 0.2.0
author:
  - vgpuctl (@vgpuctl)
description:
  - VMs, all that the caller may see or those that the options pick.
extends_documentation_fragment:
  - vgpuctl.cloud.site
attributes:
  check_mode:
    description: Changes nothing.
    support: full
  diff_mode:
    description: There is nothing to compare.
    support: none
options:
  name:
    description: Only this VM; none is no error.
    type: str
  tenant:
    description: Only VMs of this tenant. With O(name) it is the context's tenant or V(default) when left out.
    type: str
  state:
    description: Only VMs in this state, like V(running).
    type: str
  host:
    description: Only VMs there; for those who may see hosts.
    type: str
  profile:
    description: Only VMs made with this profile.
    type: str
  selector:
    description: Only VMs whose labels it picks, like V(team=vision,!spare).
    type: str
"""

EXAMPLES = r"""
- name: Running VMs of a team
  vgpuctl.cloud.vm_info:
    tenant: research
    state: running
    selector: team=vision
  register: found

- name: Their addresses
  ansible.builtin.debug:
    msg: "{{ found.vms | map(attribute='addresses') | flatten }}"
"""

RETURN = r"""
vms:
  description: As the API answers them, by tenant and name.
  returned: success
  type: list
  elements: dict
  sample: [{name: train, tenant: research, state: running, addresses: [10.88.1.7]}]
"""

from ansible_collections.vgpuctl.cloud.plugins.module_utils.site import ApiError, run

FILTERS = ("state", "host", "profile", "selector")


def _work(site):
    params, name = site.params, site.params["name"]
    tenant = site.tenant if name else params["tenant"] or site.server.tenant
    try:
        vms = site.all("vms", tenant=tenant, **{key: params[key] for key in FILTERS})
    except ApiError as error:
        site.warn_of_missing(error)
        vms = []
    return {"changed": False, "vms": [vm for vm in vms if name in (None, "", vm["name"])]}


def main():
    run({name: {"type": "str"} for name in ("name", "tenant", *FILTERS)}, _work)


if __name__ == "__main__":
    main()
