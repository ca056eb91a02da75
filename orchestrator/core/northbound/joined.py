# SPDX-License-Identifier: Apache-2.0
"""Which rows of OVN's northbound lead from a network to those that it is joined with: ovn-nb(5). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from orchestrator.core.northbound.networks import ROUTE, ROUTER, ROUTER_PORT, router_mac
from orchestrator.core.northbound.rows import MemberOf, OvnRow, Value, row_uuid
from orchestrator.core.overlay import of_family
from orchestrator.core.peering import Find, joined_with
from orchestrator.core.vms.network import Network


def rows_joined(network: Network, find: Find) -> Iterator[OvnRow]:
    """The router's own end of the link to each, and routes over it; the other end is among the rows of that one. They
    come after the rows of the network."""
    if network.overlay is None:
        return
    own = network.overlay.id
    of_router = partial(MemberOf, table=ROUTER, key=own)
    for other in joined_with(network, find):
        key = f"{own}/{other.overlay.id}"
        name = str(row_uuid(ROUTER_PORT, key))
        port: Mapping[str, Value] = {
            "name": name, "mac": router_mac(own),
            "networks": tuple(f"{other.addresses(version)[0]}/{bits}" for version, bits in ((4, 30), (6, 126))),
            "peer": str(row_uuid(ROUTER_PORT, f"{other.overlay.id}/{own}")),
        }  # fmt: skip
        yield OvnRow(table=ROUTER_PORT, key=key, columns=port, of=(of_router(column="ports"),))
        for version in (4, 6):
            nexthop = other.addresses(version)[1]
            for subnet in of_family(version, other.overlay.subnets):
                route: Mapping[str, Value] = {"ip_prefix": subnet, "nexthop": nexthop, "output_port": name}
                yield OvnRow(table=ROUTE, key=f"{key} {subnet}", columns=route, of=(of_router(column="static_routes"),))
