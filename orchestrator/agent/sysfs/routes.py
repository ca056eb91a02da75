# SPDX-License-Identifier: Apache-2.0
"""Where the host sends IPv4 packets, and which addresses are its own: a network for VMs may take none of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import IPv4Network

from orchestrator.agent.paths import Paths

_LEAF = re.compile(r"\|-- (?P<address>[0-9.]+)", re.ASCII)
_ROUTE = re.compile(r"/(?P<width>[0-9]{1,2}) \S+ (?:UNICAST|LOCAL)", re.ASCII)
_WIDEST = 8
"""In bits. Wider routes are halves or all of the internet: where everything goes that has no route of its own."""


def host_routes(paths: Paths) -> Iterator[IPv4Network]:
    """Of all routing tables, as the kernel writes them: an address, and below it each route and address there."""
    try:
        lines = (paths.proc / "net/fib_trie").read_text(errors="replace").splitlines()
    except OSError:
        return
    address = ""
    for line in lines:
        leaf, route = _LEAF.search(line), _ROUTE.search(line)
        if leaf is not None:
            address = leaf["address"]
        elif route is not None and int(route["width"]) >= _WIDEST:
            yield IPv4Network(f"{address}/{route['width']}", strict=False)


def in_the_way(paths: Paths, subnet: str) -> IPv4Network | None:
    """A route or an address that overlaps it; None: there is none."""
    wanted = IPv4Network(subnet)
    return next((route for route in host_routes(paths) if route.overlaps(wanted)), None)
