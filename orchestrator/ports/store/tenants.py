# SPDX-License-Identifier: Apache-2.0
"""Tenants and their members."""

from __future__ import annotations

from typing import Protocol

from orchestrator.core.tenancy.tenant import Member, Tenant


class Tenants(Protocol):
    def add(self, tenant: Tenant) -> None: ...
    def update(self, tenant: Tenant) -> None:
        """By its name."""

    def find(self, name: str) -> Tenant | None: ...
    def list(self) -> tuple[Tenant, ...]:
        """By name."""

    def remove(self, name: str) -> None:
        """With its members, tokens, quota and policy. Gone already is fine."""

    def put_member(self, member: Member) -> None:
        """Replaces the role that the subject had there."""

    def remove_member(self, tenant: str, subject: str) -> None: ...
    def members(self, *, tenant: str | None = None, subject: str | None = None) -> tuple[Member, ...]:
        """By tenant and subject; ``*`` as tenant: those whose roles hold everywhere."""
