# SPDX-License-Identifier: Apache-2.0
"""Which rows security groups are in OVN's northbound, and which ports are in them: ovn-nb(5), Port_Group and ACL. Pure.

A group that no card is in, and that no rule of such a one names, has no rows."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from orchestrator.core.northbound.rows import Existing, MemberOf, OvnRow, RowChange, Value, exchanged, row_uuid
from orchestrator.core.overlay import FlowLog
from orchestrator.core.security_groups import SecurityGroup, SecurityRule, default_group
from orchestrator.core.vms.network import Network

PORT_GROUP: Final = "Port_Group"
METER, BAND = "Meter", "Meter_Band"
TABLES: Final[Mapping[str, tuple[str, ...]]] = {
    PORT_GROUP: ("name", "ports", "acls"),
    METER: ("name", "unit", "fair", "bands"),
    BAND: ("action", "rate", "burst_size"),
}
"""Where rows of groups are, beside the ACLs that networks have as well, and what of them is compared."""
_ADDRESS: Final = "address"
_RULE: Final = "ACL"
_DROP, _ALLOW, _REFUSE, _ALWAYS = 1000, 1001, 1002, 1003
"""Priorities: what no rule allows, what one allows, what one refuses, and what a guest needs for its address."""
_ASKS_FOR_ADDRESS: Final = "(udp.src == 68 && udp.dst == 67) || (udp.src == 546 && udp.dst == 547)"
_PROTOCOLS: Final = {"any": "ip", "icmp": "(icmp4 || icmp6)"}
_Acl = tuple[str, str, int, str, str]
_LOGGED: Final[Mapping[FlowLog, AbstractSet[str]]] = {
    "off": frozenset(), "refused": {"drop"}, "allowed": {"allow-related"}, "all": {"drop", "allow-related"},
}  # fmt: skip
"""Actions of rules whose packets are on record."""
_RATE, _BURST = 10, 50
"""Packets of a tenant that a host logs, by the second and at once: a line of OVN's log has some 350 bytes."""
GroupName = tuple[str, str]
"""Tenant and name."""


def group_key(site: str, tenant: str, name: str) -> str:
    """Of its row; sites may share an OVN."""
    return f"{site} {tenant}/{name}"


def port_group(site: str, tenant: str, name: str) -> str:
    """What OVN calls it; ``$`` of this with ``_ip4`` or ``_ip6`` are its addresses, which ovn-northd keeps.

    Names are of letters, digits and ``-``, so no two groups of a site are called the same."""
    return _ovn_name(site, f"{tenant}.{name}")


def _ovn_name(site: str, name: str) -> str:
    digits = hashlib.sha256(site.encode()).hexdigest()[:8]
    return f"vgpuctl_{digits}.{name}".replace("-", "_")


def members_of(site: str, tenant: str, names: Iterable[str]) -> tuple[MemberOf, ...]:
    """Of the row of a port whose card is in these groups."""
    return tuple(MemberOf(table=PORT_GROUP, key=group_key(site, tenant, name), column="ports") for name in names)


def in_use(groups: Iterable[SecurityGroup], used: Iterable[GroupName]) -> tuple[SecurityGroup, ...]:
    """``used``: those that cards are in; with them come those that their rules name. A tenant's default one may be
    missing among ``groups``."""
    known = {(group.tenant, group.name): group for group in groups}
    held = {key: known.get(key) or default_group(key[0]) for key in used}
    named = {(group.tenant, rule.group) for group in held.values() for rule in group.rules if rule.group is not None}
    held |= {key: known.get(key) or default_group(key[0]) for key in named}
    return tuple(held[key] for key in sorted(held))


def logged_actions(networks: Iterable[Network]) -> Mapping[str, AbstractSet[str]]:
    """By tenant, which of its groups' rules tell of their packets: all of a tenant's that one of its networks wants,
    as a group may be on cards of several. Of which network a packet was, its addresses say (core/readings/flows.py)."""
    logged: dict[str, AbstractSet[str]] = {}
    for network in networks:
        if network.overlay is not None and network.tenant is not None:
            logged[network.tenant] = logged.get(network.tenant, frozenset()) | _LOGGED[network.overlay.flow_log]
    return {tenant: actions for tenant, actions in logged.items() if actions}


def rows_of_groups(
    site: str, groups: Iterable[SecurityGroup], logged: Mapping[str, AbstractSet[str]]
) -> tuple[OvnRow, ...]:
    """Nothing passes but what a rule allows and none refuses; answers to that OVN lets through by itself
    (``allow-related``). ``logged``: from :func:`logged_actions`."""
    groups = tuple(groups)
    metered = sorted(logged.keys() & {group.tenant for group in groups})
    meters = (row for tenant in metered for row in _meter(site, tenant))
    return (*meters, *(row for group in groups for row in _rows(site, group, logged.get(group.tenant, frozenset()))))


def _meter(site: str, tenant: str) -> tuple[OvnRow, ...]:
    """What bounds the packets of a tenant that a host logs. A meter has a band from the first."""
    key = f"{site} {tenant}"
    band = OvnRow(table=BAND, key=key, columns={"action": "drop", "rate": _RATE, "burst_size": _BURST})
    columns: Mapping[str, Value] = {
        "name": _ovn_name(site, tenant), "unit": "pktps", "fair": False, "bands": band.uuid
    }  # fmt: skip
    return band, OvnRow(table=METER, key=key, columns=columns)


def _rows(site: str, group: SecurityGroup, logged: AbstractSet[str]) -> Iterator[OvnRow]:
    key, name = group_key(site, group.tenant, group.name), port_group(site, group.tenant, group.name)
    of = (MemberOf(table=PORT_GROUP, key=key, column="acls"),)
    yield OvnRow(table=PORT_GROUP, key=key, columns={"name": name})
    for what, direction, priority, match, action in (*_fixed(name), *_ruled(site, group)):
        columns: dict[str, Value] = {"direction": direction, "priority": priority, "match": match, "action": action}
        rule = f"{key} {what}"
        if action in logged and what != _ADDRESS:
            columns |= {"log": True, "name": str(row_uuid(_RULE, rule)), "severity": "info"}
            columns |= {"meter": _ovn_name(site, group.tenant)}
        else:
            columns |= {"log": False, "name": (), "severity": (), "meter": ()}
        yield OvnRow(table=_RULE, key=rule, columns=columns, of=of)


def logged_rules(site: str, groups: Iterable[SecurityGroup]) -> Mapping[str, tuple[str, SecurityRule | None]]:
    """By what OVN's log calls them, of one tenant: the group's name and its rule; None: no rule of it allows that."""
    rules: dict[str, tuple[str, SecurityRule | None]] = {}
    for group in groups:
        key = group_key(site, group.tenant, group.name)
        for what, rule in (("drop in", None), ("drop out", None), *((str(rule), rule) for rule in group.rules)):
            rules[str(row_uuid(_RULE, f"{key} {what}"))] = group.name, rule
    return rules


def _fixed(name: str) -> Iterator[_Acl]:
    yield "drop in", "to-lport", _DROP, f"outport == @{name} && ip", "drop"
    yield "drop out", "from-lport", _DROP, f"inport == @{name} && ip", "drop"
    yield _ADDRESS, "from-lport", _ALWAYS, f"inport == @{name} && ({_ASKS_FOR_ADDRESS})", "allow-related"


def _ruled(site: str, group: SecurityGroup) -> Iterator[_Acl]:
    for rule in group.rules:
        direction = "to-lport" if rule.direction == "in" else "from-lport"
        action = "drop" if rule.refuse else "allow-related"
        yield str(rule), direction, _priority(rule), _match(site, group, rule), action


def _priority(rule: SecurityRule) -> int:
    """OVN knows no groups, so one that refuses wins over all that allow, of whichever groups the card is in."""
    return _REFUSE if rule.refuse else _ALLOW


def _match(site: str, group: SecurityGroup, rule: SecurityRule) -> str:
    """As ovn-sb(5) writes what a flow is for."""
    own, other = ("outport", "src") if rule.direction == "in" else ("inport", "dst")
    parts = [f"{own} == @{port_group(site, group.tenant, group.name)}", _PROTOCOLS.get(rule.protocol, rule.protocol)]
    if rule.first_port is not None:
        parts.append(f"{rule.first_port} <= {rule.protocol}.dst <= {rule.last_port}")
    if rule.remote is not None:
        parts.append(f"ip{6 if ':' in rule.remote else 4}.{other} == {rule.remote}")
    if rule.group is not None:
        theirs = port_group(site, group.tenant, rule.group)
        parts.append(f"(ip4.{other} == ${theirs}_ip4 || ip6.{other} == ${theirs}_ip6)")
    return " && ".join(parts)


Verdicts = Mapping[tuple[str, int], tuple[str, SecurityRule | None]]
"""What a flow of OVN's matches, and its priority → name of the group, and its rule; None: no rule of it allows it."""


def verdicts(site: str, groups: Iterable[SecurityGroup]) -> Verdicts:
    """Of the flows that follow from groups of one tenant."""
    flows: dict[tuple[str, int], tuple[str, SecurityRule | None]] = {}
    for group in groups:
        name = port_group(site, group.tenant, group.name)
        flows |= {
            (match, priority): (group.name, None) for _, _, priority, match, _ in _fixed(name) if priority == _DROP
        }
        flows |= {(_match(site, group, rule), _priority(rule)): (group.name, rule) for rule in group.rules}
    return flows


def ports_by_group(rows: Iterable[OvnRow]) -> Mapping[str, AbstractSet[str]]:
    """By the group's key, UUIDs of those of these rows that are in it."""
    ports: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        for member in row.of:
            if member.table == PORT_GROUP and member.column == "ports":
                ports[member.key].add(str(row.uuid))
    return ports


def memberships(
    wanted: Iterable[OvnRow], ports: Mapping[str, AbstractSet[str]], existing: Existing, *, join: bool
) -> tuple[RowChange, ...]:
    """Of the groups among ``wanted``, whose ports are all of ``ports``: those of others leave. ``join``: and those that
    are missing come."""
    groups = [row for row in wanted if row.table == PORT_GROUP]
    return tuple(
        change for row in groups for change in exchanged(row, "ports", ports.get(row.key, set()), existing, join=join)
    )
