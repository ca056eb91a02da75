# SPDX-License-Identifier: Apache-2.0
"""Which rows security groups are in OVN's northbound, and which ports are in them: ovn-nb(5), Port_Group and ACL. Pure.

A group has a Port_Group for each network on which cards are in it, or are in one that names it: OVN knows members by
addresses, and two networks may have the same ones."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from orchestrator.core.northbound.rows import Existing, MemberOf, OvnRow, RowChange, Value, exchanged, row_uuid
from orchestrator.core.overlay import FlowLog, of_family
from orchestrator.core.peering import Find, joined_with
from orchestrator.core.security_groups import SecurityGroup, SecurityRule, default_group
from orchestrator.core.vms.network import Network, tenant_of

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
_PROTOCOLS: Final = {"any": "ip", "icmp": "(icmp4 || icmp6)"}
_Acl = tuple[str, str, int, str, str]
_LOGGED: Final[Mapping[FlowLog, AbstractSet[str]]] = {
    "off": frozenset(), "refused": {"drop"}, "allowed": {"allow-related"}, "all": {"drop", "allow-related"},
}  # fmt: skip
"""Actions of rules whose packets are on record."""
_RATE, _BURST = 10, 50
"""Packets of a tenant that a host logs, by the second and at once: a line of OVN's log has some 350 bytes."""
GroupUsed = tuple[str, str, str]
"""Tenant and name of a group, and name on hosts of a network where cards are in it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupOnNetwork:
    """What a group is to the cards of one network."""

    group: SecurityGroup
    network: str
    """Its UUID."""
    joined: tuple[str, ...] = ()
    """UUIDs of networks of the group's tenant that it is joined with: whose members rules by group mean as well."""
    logged: AbstractSet[str] = frozenset()
    """Actions of rules that tell of their packets."""
    routers: tuple[str, ...] = ()
    """IPv4 addresses by which OVN answers as a DHCP server."""

    @property
    def own(self) -> tuple[str, str, str]:
        """Tenant, name and network, as rows of it are called by."""
        return self.group.tenant, self.group.name, self.network

    def members(self, name: str) -> tuple[tuple[str, str, str], ...]:
        """Whom a rule means by this group: nobody on a network that this one does not lead to."""
        return tuple((self.group.tenant, name, network) for network in (self.network, *self.joined))

    @property
    def named(self) -> Iterator[tuple[str, str, str]]:
        """By its rules."""
        return (each for rule in self.group.rules if rule.group is not None for each in self.members(rule.group))


def group_key(site: str, tenant: str, name: str, network: str) -> str:
    """Of its row; sites may share an OVN. ``network``: its UUID."""
    return f"{site} {tenant}/{name} {network}"


def port_group(site: str, tenant: str, name: str, network: str) -> str:
    """What OVN calls it; ``$`` of this with ``_ip4`` or ``_ip6`` are its addresses, which ovn-northd keeps.

    Names are of letters, digits and ``-``, so no two groups of a site are called the same."""
    return _ovn_name(site, f"{tenant}.{name}.{network}")


def _ovn_name(site: str, name: str) -> str:
    digits = hashlib.sha256(site.encode()).hexdigest()[:8]
    return f"vgpuctl_{digits}.{name}".replace("-", "_")


def members_of(site: str, tenant: str, names: Iterable[str], network: str) -> tuple[MemberOf, ...]:
    """Of the row of a port whose card on the network of that UUID is in these groups."""
    return tuple(
        MemberOf(table=PORT_GROUP, key=group_key(site, tenant, name, network), column="ports") for name in names
    )


def in_use(groups: Iterable[SecurityGroup], used: Iterable[GroupUsed], find: Find) -> tuple[GroupOnNetwork, ...]:
    """``used``: by cards; on networks that are not of kind ovn there is nothing. A tenant's default group may be
    missing among ``groups``."""
    known = {(group.tenant, group.name): group for group in groups}
    networks = {name: find(name) for name in {name for _, _, name in used}}
    joined = {name: joined_with(network, find) for name, network in networks.items() if network is not None}
    return tuple(
        GroupOnNetwork(
            group=known.get((tenant, name)) or default_group(tenant), network=network.overlay.id,
            joined=tuple(other.overlay.id for other in joined[on] if tenant_of(other.name) == tenant),
            logged=_logged(network),
            routers=tuple(map(network.overlay.gateway_of, of_family(4, network.overlay.subnets))),
        )
        for tenant, name, on in sorted(used) if (network := networks[on]) is not None and network.overlay is not None
    )  # fmt: skip


def _logged(network: Network) -> AbstractSet[str]:
    return frozenset() if network.overlay is None or network.tenant is None else _LOGGED[network.overlay.flow_log]


def rows_of_groups(site: str, groups: Iterable[GroupOnNetwork]) -> tuple[OvnRow, ...]:
    """Nothing passes but what a rule allows and none refuses; answers to that OVN lets through by itself
    (``allow-related``). Of groups that only rules name there are the members alone."""
    groups = tuple(groups)
    metered = sorted({on.group.tenant for on in groups if on.logged})
    members = dict.fromkeys(each for on in groups for each in (on.own, *on.named))
    return (
        *(row for tenant in metered for row in _meter(site, tenant)),
        *(OvnRow(table=PORT_GROUP, key=group_key(site, *each), columns={"name": port_group(site, *each)})
          for each in members),
        *(row for on in groups for row in _acls(site, on)),
    )  # fmt: skip


def _meter(site: str, tenant: str) -> tuple[OvnRow, ...]:
    """What bounds the packets of a tenant that a host logs. A meter has a band from the first."""
    key = f"{site} {tenant}"
    band = OvnRow(table=BAND, key=key, columns={"action": "drop", "rate": _RATE, "burst_size": _BURST})
    columns: Mapping[str, Value] = {
        "name": _ovn_name(site, tenant), "unit": "pktps", "fair": False, "bands": band.uuid
    }  # fmt: skip
    return band, OvnRow(table=METER, key=key, columns=columns)


def _acls(site: str, on: GroupOnNetwork) -> Iterator[OvnRow]:
    key = group_key(site, *on.own)
    of = (MemberOf(table=PORT_GROUP, key=key, column="acls"),)
    for what, direction, priority, match, action in (*_fixed(site, on), *_ruled(site, on)):
        columns: dict[str, Value] = {"direction": direction, "priority": priority, "match": match, "action": action}
        rule = f"{key} {what}"
        if action in on.logged and what != _ADDRESS:
            columns |= {"log": True, "name": str(row_uuid(_RULE, rule)), "severity": "info"}
            columns |= {"meter": _ovn_name(site, on.group.tenant)}
        else:
            columns |= {"log": False, "name": (), "severity": (), "meter": ()}
        yield OvnRow(table=_RULE, key=rule, columns=columns, of=of)


def logged_rules(site: str, groups: Iterable[GroupOnNetwork]) -> Mapping[str, tuple[str, SecurityRule | None]]:
    """By what OVN's log calls them, of one tenant: the group's name and its rule; None: no rule of it allows that."""
    rules: dict[str, tuple[str, SecurityRule | None]] = {}
    for on in groups:
        key = group_key(site, *on.own)
        for what, rule in (("drop in", None), ("drop out", None), *((str(rule), rule) for rule in on.group.rules)):
            rules[str(row_uuid(_RULE, f"{key} {what}"))] = on.group.name, rule
    return rules


def _fixed(site: str, on: GroupOnNetwork) -> Iterator[_Acl]:
    name = port_group(site, *on.own)
    yield "drop in", "to-lport", _DROP, f"outport == @{name} && ip", "drop"
    yield "drop out", "from-lport", _DROP, f"inport == @{name} && ip", "drop"
    yield _ADDRESS, "from-lport", _ALWAYS, f"inport == @{name} && ({_asks_for_address(on)})", "allow-related"


def _asks_for_address(on: GroupOnNetwork) -> str:
    """Of OVN alone, by those addresses that it answers (RFC 2131, 4.1; RFC 8415, 7.1): whatever else is sent to such a
    port, rules judge."""
    servers = ", ".join(("255.255.255.255", *on.routers))
    of_ipv4 = f"udp.src == 68 && udp.dst == 67 && ip4.dst == {{{servers}}}"
    return f"({of_ipv4}) || (udp.src == 546 && udp.dst == 547 && ip6.dst == ff02::1:2)"


def _ruled(site: str, on: GroupOnNetwork) -> Iterator[_Acl]:
    for rule in on.group.rules:
        direction = "to-lport" if rule.direction == "in" else "from-lport"
        action = "drop" if rule.refuse else "allow-related"
        yield str(rule), direction, _priority(rule), _match(site, on, rule), action


def _priority(rule: SecurityRule) -> int:
    """OVN knows no groups, so one that refuses wins over all that allow, of whichever groups the card is in."""
    return _REFUSE if rule.refuse else _ALLOW


def _match(site: str, on: GroupOnNetwork, rule: SecurityRule) -> str:
    """As ovn-sb(5) writes what a flow is for."""
    own, other = ("outport", "src") if rule.direction == "in" else ("inport", "dst")
    parts = [f"{own} == @{port_group(site, *on.own)}", _PROTOCOLS.get(rule.protocol, rule.protocol)]
    if rule.first_port is not None:
        parts.append(f"{rule.first_port} <= {rule.protocol}.dst <= {rule.last_port}")
    if rule.remote is not None:
        parts.append(f"ip{6 if ':' in rule.remote else 4}.{other} == {rule.remote}")
    if rule.group is not None:
        theirs = (port_group(site, *each) for each in on.members(rule.group))
        parts.append(f"({' || '.join(f'ip{n}.{other} == ${name}_ip{n}' for name in theirs for n in (4, 6))})")
    return " && ".join(parts)


Verdicts = Mapping[tuple[str, int], tuple[str, SecurityRule | None]]
"""What a flow of OVN's matches, and its priority → name of the group, and its rule; None: no rule of it allows it."""


def verdicts(site: str, groups: Iterable[GroupOnNetwork]) -> Verdicts:
    """Of the flows that follow from groups of one tenant."""
    flows: dict[tuple[str, int], tuple[str, SecurityRule | None]] = {}
    for on in groups:
        fixed, name = _fixed(site, on), on.group.name
        flows |= {(match, priority): (name, None) for _, _, priority, match, _ in fixed if priority == _DROP}
        flows |= {(_match(site, on, rule), _priority(rule)): (name, rule) for rule in on.group.rules}
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
