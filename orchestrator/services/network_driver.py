# SPDX-License-Identifier: Apache-2.0
"""What makes networks: libvirt's NAT on each host, and OVN over all of them where the site has one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Final, Literal

from orchestrator.core.errors import InvalidInput, Retryable
from orchestrator.core.hosts.bridges import outside_ovn
from orchestrator.core.hosts.host import LOST
from orchestrator.core.northbound.foreign import MAX_SHOWN, TABLES, foreign_rows, trouble_of
from orchestrator.core.northbound.rows import Existing
from orchestrator.core.ovn import (
    LABEL,
    NO_HOSTS,
    CertificateFor,
    HostsOfOvn,
    OvnReading,
    OvnTrouble,
    is_chassis,
    troubles,
)
from orchestrator.ports.clock import Clock
from orchestrator.ports.overlay import (
    Northbound,
    NorthboundSession,
    Overlay,
    OverlayAuthority,
    SignedCertificate,
    Tracer,
)
from orchestrator.services.acting import actor
from orchestrator.services.northbound import COMPARED, HELD_BACK, compare, shown
from orchestrator.store.database import Store

NetworkEngine = Literal["nat", "ovn"]
"""``nat``: libvirt's, of each host alone. ``ovn``: that, and OVN beside it."""


_READ: Final = {table: (*{*COMPARED.get(table, ()), *TABLES.get(table, ())},) for table in {**COMPARED, **TABLES}}
"""What is compared, and what others may have put into it: read once for both."""


@dataclass(frozen=True, kw_only=True)
class NetworkDriver:
    """What there is at one moment."""

    engine: NetworkEngine
    """Which makes networks here."""
    encapsulation_network: IPv4Network | None
    """Where hosts have to have the address that others send frames to; None: anywhere."""
    reading: OvnReading | None
    """None: the site has no OVN."""
    troubles: tuple[OvnTrouble, ...]
    """Nothing: all is as it should be."""


@dataclass(frozen=True, kw_only=True)
class Engines:
    """What a site has for networks, and who signs for it. ``overlay`` None: NAT of each host alone."""

    authority: OverlayAuthority
    overlay: Overlay | None = None
    northbound: Northbound | None = None
    """Of the same OVN."""
    tracer: Tracer | None = None
    """Of the same."""
    encapsulation_network: IPv4Network | None = None
    hosts: HostsOfOvn = NO_HOSTS


@dataclass(frozen=True, kw_only=True)
class NetworkDriverService:
    """Nothing in OVN is changed by it: an OVN of the operator's own may be there."""

    store: Store
    clock: Clock
    engines: Engines

    def get(self) -> NetworkDriver:
        """As it is now; a server of OVN that does not answer is told of in it, after seconds."""
        network, overlay = self.engines.encapsulation_network, self.engines.overlay
        if overlay is None:
            return NetworkDriver(engine="nat", encapsulation_network=network, reading=None, troubles=())
        reading = overlay.read()
        with self.store.read() as tx:
            held_back = tx.meta.get(HELD_BACK)
            used = [host for host in tx.hosts.list() if host.state not in LOST | {"enrolling", "removing"}]
            snapshots = {host.name: tx.hosts.snapshot(host.name) for host in used}
            needed = {vm.host for vm in tx.vms.list() if vm.ports}
        # Where labels say which hosts are in OVN, those without stay out of it on purpose, unless VMs there have cards
        # in it: it may be set up by hand.
        labelled = {host.name for host in used if LABEL in dict(host.labels)}
        wanted = labelled | needed if labelled else {*snapshots}
        known = {chassis.name for chassis in reading.chassis}
        snapshots = {name: seen for name, seen in snapshots.items() if name in wanted | known}
        hosts = {name: None if seen is None else outside_ovn(seen.bridges, name) for name, seen in snapshots.items()}
        found = (*troubles(reading, hosts, network, self.clock.now()), *self._differing(reading), *_held(held_back))
        return NetworkDriver(engine="ovn", encapsulation_network=network, reading=reading, troubles=found)

    def _differing(self, reading: OvnReading) -> Iterator[OvnTrouble]:
        """A northbound that does not answer is told of already."""
        if self.engines.northbound is None:
            return
        try:
            with self.engines.northbound.open() as session:
                existing = session.read_all(self.store.site, _READ)
                changes = compare(self.store, session, existing)
                if changes:
                    yield OvnTrouble(
                        code="ovn.differs", subject=f"{len(changes)} rows", message=shown(changes),
                        remedy="wait a minute: they are written again by themselves",
                    )  # fmt: skip
                yield from _foreign(session, existing)
        except Retryable as error:
            if any(each.leader and each.error is None for each in reading.members if each.database == "northbound"):
                yield OvnTrouble(
                    code="ovn.not_compared", subject="northbound", message=f"not read as a whole: {error.message}",
                    remedy="nothing there is put right; 'vgpuctl quota list' tells whose quota of rules may be smaller",
                )  # fmt: skip

    def sign(self, whose: CertificateFor, name: str, request: str) -> SignedCertificate:
        """A certificate for a host (called as it is to OVN), or for a central server.

        :raises InvalidInput: ``network.name_invalid``, ``certificate.request_invalid``
        """
        if not is_chassis(name):
            raise InvalidInput(
                "network.name_invalid",
                f"{name[:70]!a} cannot be a name to OVN",
                hint="call it as its machine: " + ("gpu-1" if whose == "host" else "central-1"),
            )
        signed = self.engines.authority.sign(whose, name, request)
        with self.store.begin() as tx:
            action = f"sign_ovn_certificate {whose}"
            tx.audit.append(at=self.clock.now(), actor=actor(), action=action, subject=name, outcome="done")
        return signed


def _held(words: str | None) -> Iterator[OvnTrouble]:
    if words:
        yield OvnTrouble(
            code="ovn.addresses_held", subject="addresses", message=words,
            remedy="look at that row with ovn-nbctl, and take away what somebody else has put in its place",
        )  # fmt: skip


def _foreign(session: NorthboundSession, existing: Existing) -> Iterator[OvnTrouble]:
    """What others have put into rows of ours, and nobody here takes away."""
    rows = tuple(foreign_rows(existing))
    known = session.read(rows[:MAX_SHOWN])
    yield from (trouble_of(row, known.get((row.table, str(row.uuid)), {})) for row in rows[:MAX_SHOWN])
    if len(rows) > MAX_SHOWN:
        yield OvnTrouble(
            code="ovn.foreign_row", subject=f"{len(rows) - MAX_SHOWN} more rows", message="others put them into ours",
            remedy="take the first away, and check again",
        )  # fmt: skip
