# SPDX-License-Identifier: Apache-2.0
"""A network as a file for ``apply`` says it."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.hosts.bridges import Uplink


@dataclass(frozen=True, kw_only=True)
class WantedNetwork:
    """As a file says it, and of one that exists as a file would."""

    name: str
    subnet: str | None = None
    """None: any will do, where no bridge is wanted."""
    tenant: str | None = None
    """Whose it is; None: the site's, for every tenant."""
    uplink: Uplink | None = None
    """The bridge of hosts that it is; None: a NAT network of ours."""
    dhcp_servers: tuple[str, ...] = ()
    """Of one with an uplink: whose answers count there; empty: any."""

    @property
    def key(self) -> str:
        """``tenant/name``, of the site ``name``."""
        return self.name if self.tenant is None else f"{self.tenant}/{self.name}"


def place_of(network: WantedNetwork) -> dict[str, str]:
    """Where it is, as text by the fields of a file."""
    if network.uplink is None:
        return {"subnet": network.subnet or "the next free one"}
    vlan = {} if network.uplink.vlan is None else {"vlan": str(network.uplink.vlan)}
    servers = {"dhcp_servers": ", ".join(network.dhcp_servers)} if network.dhcp_servers else {}
    return {"bridge": network.uplink.bridge} | vlan | servers
