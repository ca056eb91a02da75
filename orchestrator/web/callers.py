# SPDX-License-Identifier: Apache-2.0
"""Who reads a page, and what of it is shown: by the API's own table of permissions, which decides again when asked."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from orchestrator.api.permissions import RULES
from orchestrator.core.errors import VgpuctlError
from orchestrator.core.tenancy.access import Caller, Grant
from orchestrator.core.tenancy.tenant import DEFAULT_TENANT
from orchestrator.web.api_calls import ApiCalls

NAVIGATION: Final = (
    ("Map", "/web/map", "GET /v1/gpu-map"),
    ("Hosts", "/web/hosts", "GET /v1/hosts"),
    ("VMs", "/web/vms", "GET /v1/vms"),
    ("Operations", "/web/operations", "GET /v1/operations"),
    ("Findings", "/web/findings", "GET /v1/findings"),
    ("Capacity", "/web/capacity", "GET /v1/capacity"),
    ("Profiles", "/web/profiles", "GET /v1/profiles"),
    ("Images", "/web/images", "GET /v1/images"),
    ("Networks", "/web/networks", "GET /v1/networks"),
    ("Security groups", "/web/security-groups", "GET /v1/security-groups"),
    ("Volumes", "/web/volumes", "GET /v1/volumes"),
    ("Backups", "/web/backups", "GET /v1/backups"),
    ("Tenants", "/web/tenants", "GET /v1/tenants"),
    ("Drivers", "/web/drivers", "GET /v1/driver-check"),
    ("Bundles", "/web/bundles", "GET /v1/driver-bundles"),
    ("Audit", "/web/audit", "GET /v1/audit"),
)
"""Text, address, and the route that it takes to see the page."""


@dataclass(frozen=True)
class Reader:
    """``caller``: as the API says who asks; None: nobody has logged in."""

    caller: Caller | None

    @property
    def actor(self) -> str:
        return "" if self.caller is None else self.caller.actor

    @property
    def rights(self) -> frozenset[Grant]:
        """Readers with the same are answered the same."""
        return frozenset() if self.caller is None else frozenset(self.caller.grants)

    @property
    def watches_pool(self) -> bool:
        """Whether hosts and others' VMs are told to it."""
        return self.caller is not None and bool(self.caller.everywhere)

    @property
    def tenants(self) -> tuple[str, ...] | None:
        """Those it has a role in; None: in all."""
        return () if self.caller is None else self.caller.tenants

    @property
    def usual_tenant(self) -> str:
        """What forms begin with."""
        return (
            DEFAULT_TENANT if self.tenants is None or DEFAULT_TENANT in self.tenants else min(self.tenants, default="")
        )

    @property
    def navigation(self) -> tuple[tuple[str, str], ...]:
        """Pages that it may see: text and address."""
        return tuple((text, address) for text, address, route in NAVIGATION if self.may(route))

    def may(self, route: str, tenant: str | None = None) -> bool:
        """Whether the API would let it: ``POST /v1/vms/{name}/stop`` of a VM of ``tenant``; None: of any."""
        if self.caller is None:
            return False
        rule = RULES[route]
        roles = self.caller.everywhere
        if rule.scope != "pool":
            of_any = frozenset(grant.role for grant in self.caller.grants)
            roles = of_any if tenant is None else self.caller.roles_in(tenant)
        return bool(rule.roles & roles)


NOBODY: Final = Reader(None)


async def reader_of(api: ApiCalls, *, lately: bool = False) -> Reader:
    """Whoever shows the proof. One that does not hold is put to the API's own route, which counts and records that.
    ``lately``: as was answered up to 2 s ago will do.

    :raises Refused:"""
    with suppress(VgpuctlError):
        caller = await api.caller(lately=lately)
        if caller.grants:
            return Reader(caller)
    answer = await api.get("/v1/whoami")
    grants = tuple(Grant(tenant=grant["tenant"], role=grant["role"]) for grant in answer["grants"])
    return Reader(Caller(actor=answer["actor"], grants=grants))
