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
  - Bridges that hosts have by themselves, as networks; an operator gives and takes those.
  - Networks of a tenant over all hosts, where the site has OVN.
extends_documentation_fragment:
  - vgpuctl.cloud.site
  - vgpuctl.cloud.site.described
options:
  name:
    description: Its name.
    type: str
    required: true
  tenant:
    description: Whose it is; the site's when left out, also where the context names a tenant.
    type: str
  subnet:
    description: Like V(10.88.1.0/24); the next free one when left out. Of a NAT network; O(kind=ovn) needs it.
    type: str
  kind:
    description: V(nat) is made on each host that needs it, V(ovn) is over all hosts; V(bridge) is what O(bridge) makes.
    type: str
    choices: [nat, bridge, ovn]
    version_added: 0.3.0
  more_subnets:
    description: Of O(kind=ovn), further ones. Those that are missing come, none goes.
    type: list
    elements: str
    version_added: 0.3.0
  mtu:
    description: Of O(kind=ovn), in bytes.
    type: int
    version_added: 0.3.0
  dns_servers:
    description: Of O(kind=ovn), whom guests ask for names.
    type: list
    elements: str
    version_added: 0.3.0
  search_domains:
    description: Of O(kind=ovn), where guests look names up too.
    type: list
    elements: str
    version_added: 0.3.0
  dhcp_options:
    description: Of O(kind=ovn), by name, like V(ntp_server); those that are not named stay.
    type: dict
    version_added: 0.3.0
  flow_log:
    description: Of O(kind=ovn), which connections are on record; as it is when left out, and of a new one V(off).
    type: str
    choices: ["off", refused, allowed, all]
    version_added: 0.3.0
  bridge:
    description: Linux bridge that hosts have by themselves; without one it is a NAT network.
    type: str
  vlan:
    description: The bridge that hosts have for this VLAN of O(bridge).
    type: int
  dhcp_servers:
    description: IPv4 addresses of the DHCP servers there that are believed; any that is no VM when none is given.
    type: list
    elements: str
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
    labels: {team: vision}

- name: A VLAN of the hosts' bridge, for one tenant
  vgpuctl.cloud.network:
    name: lab
    tenant: research
    bridge: br0
    vlan: 120
    dhcp_servers: [192.0.2.1]

- name: A network over all hosts
  vgpuctl.cloud.network:
    name: wide
    tenant: research
    kind: ovn
    subnet: 10.0.0.0/24
    more_subnets: [10.1.0.0/24]
    dhcp_options: {ntp_server: 192.0.2.7}

- name: A network of the site that takes no more VMs
  vgpuctl.cloud.network:
    name: old
    shared: false
"""

RETURN = r"""
network:
  description: >-
    Name, kind, subnet or bridge (the other is null), VLAN, DHCP servers, tenant (null is the site), whether it is
    shared, what guests of one of kind ovn are told, description and labels; empty when it is gone.
  returned: success
  type: dict
  sample:
    name: blue
    kind: nat
    subnet: 10.88.1.0/24
    bridge:
    vlan:
    dhcp_servers: []
    tenant: research
    shared: false
    description: ""
    labels: {team: vision}
"""

from ansible_collections.vgpuctl.cloud.plugins.module_utils.site import (
    DESCRIBED,
    ApiError,
    answer,
    describe,
    differing,
    given,
    run,
    with_about,
)

NEXT_FREE = "(the next free one)"
TOLD = ["more_subnets", "mtu", "dns_servers", "search_domains", "dhcp_options", "flow_log"]
"""Of one over all hosts; it can be changed."""


def _wanted(params):
    """Of where it is: a bridge without a VLAN is another one than that with it."""
    bridged = {"vlan": params["vlan"]} if params["bridge"] is not None else {}
    return {**given(params, ["subnet", "bridge", "dhcp_servers", "kind"]), **bridged}


def _told(params, before):
    """What is not so yet of what guests are told, and of subnets those that are missing."""
    told = {name: value for name, value in given(params, TOLD).items() if before.get(name) != value}
    if "more_subnets" in told:
        told["more_subnets"] = [one for one in told["more_subnets"] if one not in before.get("more_subnets", [])]
    if "dhcp_options" in told:
        had = before.get("dhcp_options", {})
        told["dhcp_options"] = {name: text for name, text in told["dhcp_options"].items() if had.get(name) != text}
    return {name: value for name, value in told.items() if value or name in {"dns_servers", "search_domains"}}


def _added(site, place):
    """On a bridge it is a tenant's by an operator's word; others a tenant makes for itself."""
    wanted = {"name": site.params["name"], **_wanted(site.params)}
    if site.params["bridge"] is None:
        return site.post(*place[:-1], body={**wanted, **given(site.params, TOLD)})
    wanted.pop("kind", None)
    return site.post("networks", body={**wanted, **given(site.params, ["tenant"])})


def _planned(params):
    place = {"kind": "nat", "subnet": NEXT_FREE, "more_subnets": [], "mtu": None}
    place.update(search_domains=[], dhcp_options={}, flow_log="off")
    place.update(given(params, TOLD))
    nowhere = dict.fromkeys(["out", "out_address", "provider", "gateway", "addresses"])
    place.update(bridge=None, vlan=None, dhcp_servers=[], peers=[], **nowhere)
    if params["bridge"]:
        place.update(
            kind="bridge", subnet=None, dns_servers=[], dns_domain=None
        )  # of a NAT network the server says both
    return {"name": params["name"], "tenant": params["tenant"], **place, **_wanted(params)}


def _merged(params, before):
    """What guests are told afterwards, of a network that is there."""
    told = _told(params, before) if before else {}
    for name in ("more_subnets", "dhcp_options"):
        if name in told:
            had = before.get(name, type(told[name])())
            told[name] = had + told[name] if name == "more_subnets" else {**had, **told[name]}
    return told


def _present(site, place, before):
    params = site.params
    different = before and differing(before, _wanted(params))
    if different:
        hint = "give it another name, or make that one absent"
        raise ApiError("network.exists", f"there is already a network {params['name']}: {different}", hint)
    shared = params["shared"] if params["shared"] is not None else before.get("shared", params["tenant"] is None)
    if site.check_mode:
        planned = {**_planned(params), **before, **_merged(params, before)}
        return {**planned, "shared": shared, **with_about(params, before)}
    after = before or _added(site, place)
    told = _told(params, after)
    if told:
        after = site.patch(*place, body=told)
    if after["shared"] != shared:
        after = site.post(*place, "share" if shared else "unshare")
    return describe(site, place, after)


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
            site.delete(*place, unknown="network.unknown")
    return answer(before, after, network=after)


def _place_of_tenant(params):
    return ["tenants", params["tenant"], "networks", params["name"]]


def main():
    run(
        {
            "name": {"type": "str", "required": True},
            "tenant": {"type": "str"},
            "subnet": {"type": "str"},
            "kind": {"type": "str", "choices": ["nat", "bridge", "ovn"]},
            "more_subnets": {"type": "list", "elements": "str"},
            "mtu": {"type": "int"},
            "dns_servers": {"type": "list", "elements": "str"},
            "search_domains": {"type": "list", "elements": "str"},
            "dhcp_options": {"type": "dict"},
            "flow_log": {"type": "str", "choices": ["off", "refused", "allowed", "all"]},
            "bridge": {"type": "str"},
            "vlan": {"type": "int"},
            "dhcp_servers": {"type": "list", "elements": "str"},
            "shared": {"type": "bool"},
            **DESCRIBED,
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        _work,
        mutually_exclusive=[("subnet", "bridge")],
        required_by={"vlan": "bridge", "dhcp_servers": "bridge"},
    )


if __name__ == "__main__":
    main()
