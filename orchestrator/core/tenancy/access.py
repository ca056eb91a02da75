# SPDX-License-Identifier: Apache-2.0
"""Who asks, and as what. A caller has roles in tenants, or everywhere; what a route needs, api/permissions.py says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from orchestrator.core.errors import Denied, NotFound

Role = Literal["admin", "operator", "tenant-admin", "tenant-user", "read-only"]

EVERYWHERE = "*"
"""Stands in a tenant's place; no tenant can be called so."""

ROLES_EVERYWHERE: tuple[Role, ...] = ("admin", "operator", "read-only")
ROLES_IN_A_TENANT: tuple[Role, ...] = ("tenant-admin", "tenant-user", "read-only")
ADMINISTERING: frozenset[Role] = frozenset({"admin", "operator", "tenant-admin"})
"""Who may let others in or take from them what they have: a site may ask for more before it believes them."""


Tenants = tuple[str, ...] | None
"""Whose things; None: everybody's."""


@dataclass(frozen=True, kw_only=True)
class Grant:
    """One role, in one tenant or :data:`EVERYWHERE`."""

    tenant: str
    """*: everywhere."""
    role: Role
    """What its holder may do."""


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who made a request. ``actor`` is what the audit says: ``uid:1000``, ``token:3f2a…``."""

    actor: str
    grants: tuple[Grant, ...]

    @property
    def everywhere(self) -> frozenset[Role]:
        return frozenset(grant.role for grant in self.grants if grant.tenant == EVERYWHERE)

    @property
    def tenants(self) -> tuple[str, ...] | None:
        """Whose things it may know of, by name; None: everybody's."""
        return None if self.everywhere else tuple(sorted({grant.tenant for grant in self.grants}))

    def roles_in(self, tenant: str) -> frozenset[Role]:
        """Its roles for what belongs to this tenant."""
        return self.everywhere | {grant.role for grant in self.grants if grant.tenant == tenant}

    def visible(self, tenant: str | None) -> tuple[str, ...] | None:
        """Whose things a list shows when ``tenant`` was asked for (None: whatever there is). None: everybody's.

        :raises NotFound: ``tenant.unknown``
        """
        if tenant is None:
            return self.tenants
        if not self.roles_in(tenant):
            raise unknown_tenant(tenant)
        return (tenant,)


def unknown_tenant(name: str) -> NotFound:
    """The one error for a tenant that is not there and for one the caller may not know of."""
    return NotFound("tenant.unknown", f"no tenant is called {name[:63]!a}", hint="'vgpuctl tenant list' shows yours")


def denied(needed: frozenset[Role]) -> Denied:
    """The caller may know of the thing, but not do this to it."""
    return Denied(
        "access.denied",
        "your role does not allow this",
        hint=f"it takes one of: {', '.join(sorted(needed))}",
    )
