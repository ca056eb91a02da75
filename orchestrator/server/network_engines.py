# SPDX-License-Identifier: Apache-2.0
"""Which engines make networks, as the settings say."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

from orchestrator.adapters.ovn.databases import OvnDatabases
from orchestrator.adapters.ovn.northbound import OvnNorthbound
from orchestrator.adapters.ovn.tracing import OvnTracer
from orchestrator.adapters.state.directory import controller_name
from orchestrator.adapters.state.keys import write_private
from orchestrator.adapters.state.ovn_authority import OvnAuthority
from orchestrator.core.errors import InvalidInput
from orchestrator.core.ovn import HostsOfOvn, addresses_for_hosts, parse_endpoints, parse_mappings
from orchestrator.ports.clock import Clock
from orchestrator.server.settings import Settings
from orchestrator.services.network_driver import Engines
from orchestrator.services.northbound import NorthboundKeeper
from orchestrator.store.database import Store


def network_engines(settings: Settings, key: bytes, clock: Clock) -> Engines:
    """``key``: the database's ring of keys. :raises InvalidInput: ``settings.invalid``"""
    authority = OvnAuthority(key, clock)
    network = settings.ovn_encapsulation_network
    if settings.ovn_northbound is None and settings.ovn_southbound is None:
        return Engines(authority=authority, encapsulation_network=network)
    if settings.ovn_northbound is None or settings.ovn_southbound is None:
        raise _invalid("ovn_northbound and ovn_southbound are set together")
    own = settings.ovn_ca_file, settings.ovn_certificate_file
    if (own[0] is None) != (own[1] is None):
        raise _invalid("ovn_ca_file and ovn_certificate_file are set together")

    def trust() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False  # adapters/ovn/ovsdb.py says why
        if own[0] is not None and own[1] is not None:
            return _loaded(context, own[0], own[1])
        context.load_verify_locations(cadata=authority.trusted("central"))
        shown = settings.state / "secrets" / "ovn_client.pem"
        authority.own(shown, controller_name(settings.state))
        context.load_cert_chain(shown)
        return context

    def keys() -> tuple[str, ...]:
        """The same for a program."""
        if own[0] is not None and own[1] is not None:
            authorities, shown = own[0], own[1]
        else:
            authorities, shown = (settings.state / "secrets" / f"ovn_{name}.pem" for name in ("authority", "client"))
            write_private(authorities, authority.trusted("central").encode())
            authority.own(shown, controller_name(settings.state))
        return f"--ca-cert={authorities}", f"--certificate={shown}", f"--private-key={shown}"

    north, south = parse_endpoints(settings.ovn_northbound), parse_endpoints(settings.ovn_southbound)
    return Engines(
        authority=authority, encapsulation_network=network,
        overlay=OvnDatabases(northbound=north, southbound=south, trust=trust),
        northbound=OvnNorthbound(endpoints=north, trust=trust), tracer=OvnTracer(southbound=south, keys=keys),
        hosts=HostsOfOvn(
            central=() if own[0] else addresses_for_hosts(south), network=network,
            mappings=parse_mappings(settings.ovn_bridge_mappings) if settings.ovn_bridge_mappings else {},
        ),
    )  # fmt: skip


def northbound_rounds(
    engines: Engines, store: Store, clock: Clock, leads: Callable[[], bool]
) -> dict[str, Callable[[], object]]:
    """What is done about OVN from time to time; nothing where the site has none."""
    if engines.northbound is None:
        return {}
    keeper = NorthboundKeeper(
        store=store, northbound=engines.northbound, clock=clock, leads=leads, overlay=engines.overlay
    )  # fmt: skip
    return {"northbound of OVN": keeper.round}


def _loaded(context: ssl.SSLContext, authorities: Path, certificate: Path) -> ssl.SSLContext:
    """With files of the operator's. :raises InvalidInput: ``settings.invalid``"""
    try:
        context.load_verify_locations(authorities)
        context.load_cert_chain(certificate, password=lambda: "")
    except (OSError, ValueError) as error:
        raise _invalid(f"ovn_ca_file or ovn_certificate_file cannot be used: {error}") from error
    return context


def _invalid(why: str) -> InvalidInput:
    return InvalidInput("settings.invalid", why, hint="docs/howto/networks-over-all-hosts.md says what belongs there")
