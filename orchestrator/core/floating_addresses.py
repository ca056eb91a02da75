# SPDX-License-Identifier: Apache-2.0
"""Floating addresses: of a provider network, a tenant's until it gives them back, and led to its VMs. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from orchestrator.core.errors import NotFound
from orchestrator.core.names import near

MAX_OF_TENANT: Final = 64
"""Floating addresses of one tenant: what a site has of them is everybody's."""


@dataclass(frozen=True, kw_only=True)
class FloatingAddress:
    """What is sent there from outside reaches a VM's card, and what that sends out comes from there."""

    address: str
    """IPv4; no other has it in the site."""
    network: str
    """Name of the provider network that it is of."""
    tenant: str
    """Whose it is."""
    vm: str | None = None
    """Id of the VM that it leads to; None: to none."""
    card_network: str | None = None
    """Name on hosts of the network of that VM's card."""


def unknown_address(address: str, known: Iterable[str]) -> NotFound:
    """``known``: of the tenant."""
    hint = near(address, known, "vgpuctl network address list")
    return NotFound("address.unknown", f"the tenant has no floating address {ascii(address)[:60]}", hint=hint)
