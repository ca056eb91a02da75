# SPDX-License-Identifier: Apache-2.0
"""OVN as it was read, and what is not as it should be there. Pure.

Its northbound database says which networks there are, its southbound one which flows follow of that and which hosts
(*chassis*) carry them out: ovn-architecture(7), ovn-nb(5), ovn-sb(5)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from typing import Final, Literal

from orchestrator.core.errors import Conflict
from orchestrator.core.hosts.bridges import is_ipv4
from orchestrator.core.labels import Labels

OvnDatabase = Literal["northbound", "southbound"]
"""The one says which networks there are, the other what follows of that on hosts."""
CertificateFor = Literal["central", "host"]
"""``central``: who holds the databases; it may write networks. ``host``: it may write about itself alone."""
OUR_ID: Final = "vgpuctl-id"
"""Of ``external_ids`` of each object that is ours; one without it is foreign."""
MAX_MEMBERS: Final = 7
"""Servers of one database: a cluster has three or five."""
_BEHIND: Final = 1000
"""Entries of a cluster's log that one of its servers may lack."""
_ENDS_SOON_S: Final = 60 * 86400.0
_ENDPOINT: Final = re.compile(
    r"(?:ssl|tcp):(?:[0-9A-Za-z.-]{1,253}|\[[0-9a-fA-F:.]{2,45}\]):[0-9]{1,5}|unix:/[!-~]{1,100}"
)
_HOSTS_ASK: Final = re.compile(r"ssl:(?P<address>.+):6642")
"""Where a server of the southbound answers hosts, as the playbooks set it up."""
_MAPPING: Final = re.compile(r"(?P<network>[\w.-]{1,63}):(?P<bridge>\w[\w.-]{0,14})", re.ASCII)
LABEL: Final = "ovn"
"""A host's label that asks for it in OVN: one of :data:`PARTS`."""
PARTS: Final = ("member", "outside", "gateway")
"""``outside``: a member with the site's bridges that lead outside; ``gateway``: that, for VMs on other hosts too."""
_CHASSIS: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class OvnMember:
    """One server of a database, as it answered just now."""

    database: OvnDatabase
    """Which it holds."""
    address: str
    """Where it was asked, as OVN writes it: ``ssl:192.0.2.41:6641``."""
    error: str | None
    """Why it did not answer; None: it did."""
    answered_ms: float | None
    """How long its answer took, connecting included."""
    clustered: bool = False
    """It is one of several that keep one database (RAFT)."""
    connected: bool = False
    """It is in touch with the majority."""
    leader: bool = False
    """It decides for the others; the only one is its own leader."""
    log_index: int | None = None
    """Last entry of the cluster's log that it has; null: it is no cluster."""
    certificate_ends_at: float | None = None
    """In seconds since the epoch, UTC; null: it has none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OvnChassis:
    """A host as OVN knows it."""

    name: str
    """What it calls itself, its ``system-id``: ours are called as the host is."""
    hostname: str
    """Of its machine."""
    encapsulations: tuple[str, ...]
    """How frames reach it, like ``geneve 192.0.2.11``."""
    behind: int
    """Changes that it has not carried out yet, of those that anybody has waited for."""
    mappings: tuple[str, ...] = ()
    """Physical networks of the site that it has a bridge for, which provider networks are on."""
    gateway: bool = False
    """It is meant to carry what VMs on other hosts send out by NAT."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OvnBinding:
    """Where a port is, as hosts have told OVN."""

    chassis: str | None
    """Name of the one that has it; None: none does."""
    up: bool
    """Its flows are set up there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OvnReading:
    """All of it at one moment. What is read of a database is of the first of its servers that answered."""

    members: tuple[OvnMember, ...]
    version: str | None = None
    """Of ovn-northd, as it writes it; None: it has never run, or nothing answered."""
    northd_behind: int = 0
    """Changes that ovn-northd has not carried over yet, of those that anybody has waited for."""
    chassis: tuple[OvnChassis, ...] = ()
    """By name."""
    ours: int = 0
    """Switches and routers with an id of ours."""
    foreign: int = 0
    """The others: shown, counted, never changed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OvnTrouble:
    """Something that is not as it should be."""

    code: str
    """Stable dotted code."""
    subject: str
    """Which server, chassis or host."""
    message: str
    """What is wrong, for people."""
    remedy: str
    """What to do about it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostInOvn:
    """What a host is told to be in the site's OVN."""

    central: tuple[str, ...]
    """Addresses of the southbound's servers, which answer at port 6642."""
    network: str
    """Where it has one address, to which others send frames of VMs: ``192.0.2.0/24``."""
    mappings: Mapping[str, str] = field(default_factory=dict)
    """Its bridge of Open vSwitch by the physical network that it leads to; none: what it has stays."""
    gateway: bool = False
    """It carries what VMs on other hosts send out by NAT."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostsOfOvn:
    """What hosts are told of the site's OVN. ``central``: none: this server brings no host in."""

    central: tuple[str, ...] = ()
    network: IPv4Network | None = None
    mappings: Mapping[str, str] = field(default_factory=dict)

    def host(self, name: str, labels: Labels) -> HostInOvn | None:
        """What the host of that name is to be; None: nobody asks for it in OVN.

        :raises Conflict: ``host.ovn_label``, ``ovn.hosts_elsewhere``
        """
        part = dict(labels).get(LABEL)
        if part is None:
            return None
        if part not in PARTS:
            raise Conflict(
                "host.ovn_label", f"host {name} has the label {LABEL}={part}, which says nothing of OVN",
                hint=f"'vgpuctl host set {name} --label {LABEL}={PARTS[0]}', or {' or '.join(PARTS[1:])}",
            )  # fmt: skip
        if not self.central or self.network is None:
            raise Conflict(
                "ovn.hosts_elsewhere", f"host {name} is to be in OVN, and this server brings no host into one",
                hint="docs/howto/networks-over-all-hosts.md has the settings for that; or "
                f"'vgpuctl host set {name} --unlabel {LABEL}'",
            )  # fmt: skip
        return HostInOvn(
            central=self.central, network=str(self.network), mappings={} if part == PARTS[0] else dict(self.mappings),
            gateway=part == PARTS[2],
        )  # fmt: skip


NO_HOSTS: Final = HostsOfOvn()


def addresses_for_hosts(southbound: tuple[str, ...]) -> tuple[str, ...]:
    """Of its servers, without brackets; none where one is elsewhere than where hosts ask."""
    matches = [_HOSTS_ASK.fullmatch(endpoint) for endpoint in southbound]
    return tuple(match["address"].strip("[]") for match in matches if match) if all(matches) else ()


def parse_mappings(text: str) -> dict[str, str]:
    """Of ``physnet1:br-ex,physnet2:br-two``, as OVN writes them. :raises ValueError: it is none"""
    matches = [_MAPPING.fullmatch(part.strip()) for part in text.split(",")]
    if not all(matches):
        raise ValueError("not NETWORK:BRIDGE, several with commas")
    return {match["network"]: match["bridge"] for match in matches if match}


def parse_endpoints(text: str) -> tuple[str, ...]:
    """Of a list as OVN writes it, ``ssl:192.0.2.41:6641,ssl:192.0.2.42:6641``. :raises ValueError: it is none"""
    endpoints = tuple(part.strip() for part in text.split(","))
    if len(endpoints) > MAX_MEMBERS or not all(map(_ENDPOINT.fullmatch, endpoints)):
        raise ValueError("not ssl:ADDRESS:PORT, tcp:ADDRESS:PORT or unix:/PATH, several with commas")
    return endpoints


def is_chassis(name: str) -> bool:
    """Whether a host may be called so to OVN, and a certificate be for it."""
    return _CHASSIS.fullmatch(name) is not None


def troubles(
    reading: OvnReading, hosts: Mapping[str, str | None], network: IPv4Network | None, now: float
) -> tuple[OvnTrouble, ...]:
    """``hosts``: those of ours that are in use, by name why they are not in OVN by their own word; ``network``: where
    their encapsulation addresses have to be, None: anywhere; ``now``: seconds since the epoch."""
    troubled = [trouble for member in reading.members for trouble in _of_member(member, now)]
    for database in dict.fromkeys(member.database for member in reading.members):
        troubled += _of_cluster(database, [member for member in reading.members if member.database == database])
    if any(member.error is None for member in reading.members if member.database == "southbound"):
        troubled += [*_of_northd(reading), *_of_chassis(reading, network), *_of_hosts(reading, hosts)]
    return tuple(troubled)


def _of_member(member: OvnMember, now: float) -> Iterator[OvnTrouble]:
    if member.error is not None:
        yield OvnTrouble(
            code="ovn.unreachable", subject=member.address, message=f"the {member.database} does not answer: "
            f"{member.error}", remedy="look at ovn-central there, and at what is between; running VMs go on",
        )  # fmt: skip
    elif member.clustered and not member.connected:
        yield OvnTrouble(
            code="ovn.no_majority", subject=member.address, message=f"the {member.database} there has lost the others",
            remedy="look at ovn-central of the others, and at TCP ports 6643 and 6644 between them",
        )  # fmt: skip
    if member.certificate_ends_at is not None and member.certificate_ends_at - now < _ENDS_SOON_S:
        days = max(int((member.certificate_ends_at - now) // 86400), 0)
        yield OvnTrouble(
            code="ovn.certificate_ends", subject=member.address, message=f"its certificate ends in {days} days",
            remedy="run playbooks/prepare-ovn-central.yml again: it fetches a new one",
        )  # fmt: skip


def _of_cluster(database: OvnDatabase, members: list[OvnMember]) -> Iterator[OvnTrouble]:
    answering = [member for member in members if member.error is None]
    if answering and all(member.clustered for member in answering) and not any(m.leader for m in answering):
        yield OvnTrouble(
            code="ovn.no_leader", subject=database, message="none of its servers leads the others",
            remedy="wait a second and check again; a majority of them has to run",
        )  # fmt: skip
    newest = max((member.log_index or 0 for member in answering), default=0)
    for member in answering:
        if member.log_index is not None and newest - member.log_index > _BEHIND:
            yield OvnTrouble(
                code="ovn.member_behind", subject=member.address,
                message=f"the {database} there lacks {newest - member.log_index} entries of the log",
                remedy="look at its disk and its network",
            )  # fmt: skip


def _of_northd(reading: OvnReading) -> Iterator[OvnTrouble]:
    if reading.version is None or reading.northd_behind > 0:
        message = (
            "it has never run"
            if reading.version is None
            else f"it has not carried over {reading.northd_behind} changes"
        )
        yield OvnTrouble(
            code="ovn.northd_behind", subject="ovn-northd", message=message,
            remedy="look at ovn-northd on the central servers: one of them has to run it",
        )  # fmt: skip


def _of_chassis(reading: OvnReading, network: IPv4Network | None) -> Iterator[OvnTrouble]:
    shared = Counter(way for chassis in reading.chassis for way in set(chassis.encapsulations))
    for chassis in reading.chassis:
        if chassis.behind > 0:
            yield OvnTrouble(
                code="ovn.chassis_behind", subject=chassis.name,
                message=f"it has not carried out {chassis.behind} changes",
                remedy="look at ovn-controller there: systemctl status ovn-controller",
            )  # fmt: skip
        for way in chassis.encapsulations:
            if shared[way] > 1:
                yield OvnTrouble(
                    code="ovn.address_twice", subject=chassis.name, message=f"another has {way} too",
                    remedy="give each an address of its own; 'ovn-sbctl chassis-del' forgets one that is gone",
                )  # fmt: skip
            address = way.partition(" ")[2]
            if network is not None and not (is_ipv4(address) and IPv4Network(f"{address}/32").subnet_of(network)):
                yield OvnTrouble(
                    code="ovn.address_outside", subject=chassis.name, message=f"{way} is not in {network}",
                    remedy="set vgpuctl_host_ovn_network of the inventory and ovn_encapsulation_network alike",
                )  # fmt: skip


def _of_hosts(reading: OvnReading, hosts: Mapping[str, str | None]) -> Iterator[OvnTrouble]:
    """OVN keeps a chassis that is out of reach as it was."""
    known = {chassis.name for chassis in reading.chassis}
    for host, why in sorted(hosts.items()):
        if host not in known:
            yield OvnTrouble(
                code="ovn.host_missing", subject=host, message="OVN has no chassis of that name",
                remedy="run playbooks/prepare-host.yml with vgpuctl_ovn_central set: VMs there are on no such network",
            )  # fmt: skip
        elif why is not None:
            yield OvnTrouble(
                code="ovn.host_cut_off", subject=host, message=f"by its own word: {why}",
                remedy="look at ovn-controller there, and at what is between it and the central servers",
            )  # fmt: skip
