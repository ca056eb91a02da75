#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A security group of a tenant."""

from __future__ import annotations

DOCUMENTATION = r"""
module: security_group
short_description: Make, change and delete security groups of vgpuctl
version_added: 0.2.0
author:
  - vgpuctl (@vgpuctl)
description:
  - Rules of a tenant for network cards of its VMs, and the VMs and networks that they are on.
  - Every tenant has a group called V(default), on cards that have no other; it can be changed, and not be absent.
extends_documentation_fragment:
  - vgpuctl.cloud.site
  - vgpuctl.cloud.site.described
options:
  name:
    description: Its name.
    type: str
    required: true
  tenant:
    description: Whose it is; the context's when left out.
    type: str
  rules:
    description:
      - All rules that it has; others go. As they are when left out; a new group lets everything out then.
    type: list
    elements: dict
    suboptions:
      direction:
        description: V(in) is to the VM.
        type: str
        choices: [in, out]
        required: true
      protocol:
        description: Which is let through, or refused.
        type: str
        choices: [any, tcp, udp, icmp]
        default: any
      first_port:
        description: Of the receiver, of TCP and UDP; every one when left out.
        type: int
      last_port:
        description: The last of a range.
        type: int
      remote:
        description: Range of the other side, like V(10.0.0.0/8).
        type: str
      group:
        description: Group of the other side.
        type: str
      refuse:
        description: Nothing of it passes, whatever rules of the card's groups allow.
        type: bool
        default: false
  uses:
    description: All that it is on; it is taken from others. As it is when left out.
    type: list
    elements: dict
    suboptions:
      vm:
        description: Name of a VM.
        type: str
      network:
        description: Name of a network; with O(uses[].vm) the VM's card there.
        type: str
  state:
    description: A group that is on something cannot be made V(absent).
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: Web servers answer everybody, and their own
  vgpuctl.cloud.security_group:
    name: web
    tenant: research
    rules:
      - {direction: in, protocol: tcp, first_port: 443}
      - {direction: in, group: web}
      - {direction: out}
      - {direction: out, protocol: tcp, first_port: 25, refuse: true}
    uses: [{network: blue}]
"""

RETURN = r"""
security_group:
  description: Name, tenant, rules, what it is on, description and labels; empty when it is gone.
  returned: success
  type: dict
  sample:
    name: web
    tenant: research
    rules:
      - direction: in
        protocol: tcp
        first_port: 443
        last_port: 443
        remote:
        group:
        refuse: false
    uses: [{vm: null, network: blue}]
    description: ""
    labels: {}
"""

import ipaddress

from ansible_collections.vgpuctl.cloud.plugins.module_utils.site import (
    DESCRIBED,
    ApiError,
    answer,
    describe,
    run,
    with_about,
)

GROUPS = "security-groups"


def _rule(rule):
    """As the server lists it. :raises ApiError: ``group.rule_invalid``"""
    last = rule["first_port"] if rule["last_port"] is None else rule["last_port"]
    try:
        remote = rule["remote"] and str(ipaddress.ip_network(rule["remote"]))
    except ValueError as error:
        raise ApiError("group.rule_invalid", str(error), "write it as 10.0.0.0/8 or 2001:db8::/32") from error
    return {**rule, "last_port": last, "remote": remote}


def _changes(before, wanted):
    """What makes the one list the other."""
    return {
        "add": [item for item in wanted if item not in before],
        "remove": [item for item in before if item not in wanted],
    }


def _wanted(params, before):
    """Rules and uses as they shall be."""
    new = {"rules": [{"direction": "out", "protocol": "any"}], "uses": []}
    wanted = {"rules": params["rules"] and [_rule(rule) for rule in params["rules"]], "uses": params["uses"]}
    had = {member: before.get(member, new[member]) for member in new}
    return {
        member: had[member] if items is None or not any(_changes(had[member], items).values()) else items
        for member, items in wanted.items()
    }


def _present(site, before):
    params = site.params
    wanted = _wanted(params, before)
    if site.check_mode:
        return {"name": params["name"], "tenant": site.tenant, **before, **wanted, **with_about(params, before)}
    after = before
    if not before:
        rules = {} if params["rules"] is None else {"rules": wanted["rules"]}
        after = site.post(GROUPS, body={"name": params["name"], "tenant": site.tenant, **rules})
    for member in ("rules", "uses"):
        changes = _changes(after[member], wanted[member])
        if params[member] is not None and any(changes.values()):
            after = site.post(GROUPS, params["name"], member, body=changes, tenant=site.tenant)
    return describe(site, (GROUPS, params["name"]), after, tenant=site.tenant)


def _work(site):
    name = site.params["name"]
    before = site.find("group.unknown", GROUPS, name, tenant=site.tenant) or {}
    after = {}
    if site.params["state"] == "present":
        after = _present(site, before)
    elif before and not site.check_mode:
        site.delete(GROUPS, name, unknown="group.unknown", tenant=site.tenant)
    return answer(before, after, security_group=after)


def main():
    rule = {
        "direction": {"type": "str", "choices": ["in", "out"], "required": True},
        "protocol": {"type": "str", "choices": ["any", "tcp", "udp", "icmp"], "default": "any"},
        "first_port": {"type": "int"},
        "last_port": {"type": "int"},
        "remote": {"type": "str"},
        "group": {"type": "str"},
        "refuse": {"type": "bool", "default": False},
    }
    run(
        {
            "name": {"type": "str", "required": True},
            "tenant": {"type": "str"},
            "rules": {"type": "list", "elements": "dict", "options": rule},
            "uses": {
                "type": "list",
                "elements": "dict",
                "options": {"vm": {"type": "str"}, "network": {"type": "str"}},
            },
            "state": {"type": "str", "default": "present", "choices": ["present", "absent"]},
            **DESCRIBED,
        },
        _work,
    )


if __name__ == "__main__":
    main()
