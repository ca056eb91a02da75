# SPDX-License-Identifier: Apache-2.0
"""Who may reach a tenant's VMs, and whom they may reach: groups of rules that are on network cards. Pure.

A card may do what a rule of any of its groups allows and none of them refuses, and nothing else; answers to that pass
(stateful).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, get_args

from orchestrator.core.errors import Conflict, InvalidInput, NotFound
from orchestrator.core.labels import NOTHING_SAID, About
from orchestrator.core.names import check_name, near
from orchestrator.core.overlay import subnet_hint

Direction = Literal["in", "out"]
"""``in``: to the VM."""
Protocol = Literal["any", "tcp", "udp", "icmp"]
"""``icmp``: of IPv4 and of IPv6."""
DEFAULT_GROUP: Final = "default"
"""Each tenant has one of that name, on cards that have no other."""
MAX_GROUPS: Final = 100
"""Of one tenant."""
MAX_RULES: Final = 100
"""Of one group."""
MAX_USES: Final = 1000
"""VMs, cards and networks that a group is on."""
MAX_PORT: Final = 65535
_PROTOCOLS: Final[dict[str, Protocol]] = {protocol: protocol for protocol in get_args(Protocol)}
_RULE: Final = re.compile(
    rf"(?P<refuse>refuse )?(?P<way>in|out) (?P<protocol>{'|'.join(_PROTOCOLS)})( (?P<ports>[0-9]+(-[0-9]+)?))?"
    r"( (?P<side>from|to) (group (?P<group>\S+)|(?P<range>\S+)))?"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SecurityRule:
    """What it allows, or refuses. With neither ``remote`` nor ``group``: from or to anywhere."""

    direction: Direction
    """``in``: to the VM; ``out``: from it."""
    protocol: Protocol = "any"
    """``any``: all of IPv4 and IPv6."""
    first_port: int | None = None
    """Of the receiver, of TCP and UDP alone; null: every one."""
    last_port: int | None = None
    """The last of a range; null with ``first_port`` alone."""
    remote: str | None = None
    """IPv4 or IPv6 range of the other side, in CIDR form."""
    group: str | None = None
    """The other side is a card of this group of the tenant's."""
    refuse: bool = False
    """Nothing of it passes, whatever rules of the card's groups allow."""

    def __str__(self) -> str:
        """As people read it: ``in tcp 22-80 from 10.0.0.0/8``, ``refuse out any``."""
        words: list[str] = [*(["refuse"] if self.refuse else []), self.direction, self.protocol]
        if self.first_port is not None:
            words.append(str(self.first_port) if self.last_port == self.first_port else self.ports)
        if self.remote is not None or self.group is not None:
            words += ["from" if self.direction == "in" else "to", self.remote or f"group {self.group}"]
        return " ".join(words)

    @property
    def ports(self) -> str:
        return f"{self.first_port}-{self.last_port}"


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupUse:
    """What a group is on: a VM, a network, or with both the VM's card on that network."""

    vm: str | None = None
    """Its id; None: every VM of the tenant's there."""
    network: str | None = None
    """Its name on hosts; None: every card of the VM."""


@dataclass(frozen=True, kw_only=True)
class NamedUse:
    """What a group is on, as its tenant calls it."""

    vm: str | None = None
    """Name of a VM; null: every VM of the tenant's on the network."""
    network: str | None = None
    """Name of a network; null: every card of the VM."""

    def __str__(self) -> str:
        words = [] if self.vm is None else [f"VM {self.vm}"]
        return " on ".join(words + ([] if self.network is None else [f"network {self.network}"]))


@dataclass(frozen=True, kw_only=True)
class SecurityGroup:
    """Of one tenant."""

    tenant: str
    name: str
    rules: tuple[SecurityRule, ...] = ()
    """In the order of their texts."""
    uses: tuple[GroupUse, ...] = ()
    about: About = field(default=NOTHING_SAID, compare=False)

    @property
    def full_name(self) -> str:
        return f"{self.tenant}/{self.name}"


ANYWHERE: Final = SecurityRule(direction="out")
"""Which a new group has."""


def default_group(tenant: str) -> SecurityGroup:
    """As it is before anybody has changed it: its cards reach everything, and each other."""
    own = SecurityRule(direction="in", group=DEFAULT_GROUP)
    return SecurityGroup(tenant=tenant, name=DEFAULT_GROUP, rules=ordered((ANYWHERE, own)))


def ordered(rules: Iterable[SecurityRule]) -> tuple[SecurityRule, ...]:
    """Each once, by their texts."""
    return tuple(sorted(set(rules), key=str))


def check_rule(rule: SecurityRule) -> SecurityRule:
    """The same in canonical form. :raises InvalidInput: ``group.rule_invalid``"""
    if rule.direction not in get_args(Direction) or rule.protocol not in get_args(Protocol):
        raise _invalid(
            f"{rule.direction} {rule.protocol}"[:60], "directions are in and out; protocols any, tcp, udp, icmp"
        )
    if rule.remote is not None and rule.group is not None:
        raise _invalid("a range and a group", "give one of them; another rule has the other")
    first, last = rule.first_port, rule.last_port if rule.last_port is not None else rule.first_port
    if first is None and last is not None:
        raise _invalid("a last port alone", "give the first one too")
    if first is not None and last is not None:
        if rule.protocol not in {"tcp", "udp"}:
            raise _invalid(f"ports of {rule.protocol}", "write tcp or udp instead, or leave the ports out")
        if not 1 <= first <= last <= MAX_PORT:
            raise _invalid(f"ports {first}-{last}"[:60], f"1 to {MAX_PORT}, the lower one first: 8000-8080")
    remote = None if rule.remote is None else _range(rule.remote)
    if rule.group is not None:
        check_name(rule.group, what="group")
    return replace(rule, last_port=last, remote=remote)


def parse_rule(text: str) -> SecurityRule:
    """As :meth:`SecurityRule.__str__` writes it. :raises InvalidInput: ``group.rule_invalid``"""
    words = _RULE.fullmatch(" ".join(text.split()))
    if words is None or words["side"] not in {None, "from" if words["way"] == "in" else "to"}:
        raise _invalid(
            f"{ascii(text)[:60]}",
            "write it as 'in tcp 22-80 from 10.0.0.0/8', 'in any from group web' or 'refuse out udp 53'",
        )
    direction, protocol, ports, group, remote = (words[name] for name in ("way", "protocol", "ports", "group", "range"))
    first, last = parse_ports(ports)
    return check_rule(
        SecurityRule(
            direction="in" if direction == "in" else "out", protocol=_PROTOCOLS[protocol], first_port=first,
            last_port=last, remote=remote, group=group, refuse=words["refuse"] is not None,
        )
    )  # fmt: skip


def parse_ports(text: str | None) -> tuple[int, int] | tuple[None, None]:
    """``443`` or ``8000-8080``; None: every one. :raises InvalidInput: ``group.rule_invalid``"""
    if text is None:
        return None, None
    first, dash, last = text.partition("-")
    numbers = [part for part in (first, last if dash else first) if part.isascii() and part.isdigit() and len(part) < 6]
    if len(numbers) != 2:
        raise _invalid(f"ports {ascii(text)[:40]}", "write them as 443 or 8000-8080")
    return int(numbers[0]), int(numbers[1])


def changed_rules(
    group: SecurityGroup, add: Sequence[SecurityRule], remove: Sequence[SecurityRule]
) -> tuple[SecurityRule, ...]:
    """With these, and without those; added again is fine.

    :raises InvalidInput: ``group.rule_invalid``; :raises NotFound: ``group.rule_unknown``
    :raises Conflict: ``group.too_many_rules``
    """
    added, gone = {check_rule(rule) for rule in add}, [check_rule(rule) for rule in remove]
    for rule in gone:
        if rule not in group.rules:
            known = "; ".join(map(str, group.rules[:10])) or "none"
            raise NotFound("group.rule_unknown", f"group {group.name} has no rule '{rule}'", hint=f"its rules: {known}")
    rules = ordered((set(group.rules) - set(gone)) | added)
    if len(rules) > MAX_RULES:
        raise Conflict(
            "group.too_many_rules",
            f"group {group.name} would have {len(rules)} rules, and no group has more than {MAX_RULES}",
            hint="a range of ports or addresses is one rule; a card may be in several groups",
        )
    return rules


class GroupsOfCards:
    """Of all that are given; of a tenant's all or none."""

    def __init__(self, groups: Iterable[SecurityGroup]) -> None:
        self._names: dict[tuple[str, GroupUse], list[str]] = {}
        for group in groups:
            for use in group.uses:
                self._names.setdefault((group.tenant, use), []).append(group.name)

    def of(self, tenant: str, vm: str, network: str) -> tuple[str, ...]:
        """Names of those of the VM's tenant that its card is in; the default one where that is no other. ``vm``: its
        id; ``network``: its name on hosts."""
        uses = (GroupUse(vm=vm, network=network), GroupUse(vm=vm), GroupUse(network=network))
        return tuple(sorted({name for use in uses for name in self._names.get((tenant, use), ())})) or (DEFAULT_GROUP,)


def naming(name: str, groups: Iterable[SecurityGroup]) -> tuple[str, ...]:
    """Names of the others whose rules name it."""
    return tuple(group.name for group in groups if group.name != name and any(r.group == name for r in group.rules))


def unknown_group(name: str, known: Iterable[str]) -> NotFound:
    """``known``: what groups of the tenant are called."""
    hint = near(name, known, "vgpuctl security-group list")
    return NotFound("group.unknown", f"no security group is called {name[:63]!a}", hint=hint)


def show_rules(add: Sequence[SecurityRule], remove: Sequence[SecurityRule]) -> str:
    """A change in one line, for the audit. :raises InvalidInput: ``group.rule_invalid``"""
    return ", ".join([*(f"+{check_rule(rule)}" for rule in add), *(f"-{check_rule(rule)}" for rule in remove)])


def _range(text: str) -> str:
    address, _, _ = text.partition("%")  # the scope of IPv6: any text may follow, and it would go into OVN's match
    try:
        network = ipaddress.ip_network(address)
    except ValueError:
        network = None
    if network is None or address != text:
        raise _invalid(f"range {ascii(text)[:60]}", subnet_hint(address, "10.0.0.0/8, 192.0.2.7/32 or 2001:db8::/32"))
    return str(network)


def _invalid(what: str, hint: str) -> InvalidInput:
    return InvalidInput("group.rule_invalid", f"{what} cannot be in a rule", hint=hint)
