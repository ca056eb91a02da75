# SPDX-License-Identifier: Apache-2.0
"""Who logged in at an identity provider."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from orchestrator.core.errors import Denied


@dataclass(frozen=True, kw_only=True)
class Login:
    """Who logged in, and how well."""

    names: tuple[str, ...]
    """As members are named: ``oidc:sub:<subject>`` first, then ``oidc:<verified e-mail address>`` and ``oidc:@<group>``
    for each group."""
    too_weak: Denied | None = None
    """Why nobody administers with it (``login.too_weak``); None: it shows all that the site asks for."""


class BrowserLogins(Protocol):
    """Sends browsers to the identity provider and takes them back (authorization code flow)."""

    @property
    def issuer(self) -> str:
        """The provider's address."""

    @property
    def levels(self) -> tuple[str, ...]:
        """Of which a login of whoever administers has one (``acr``); empty: any will do."""

    def begin_login(self, back: str, acr: str | None) -> tuple[str, dict[str, str]]:
        """The provider's address for a browser that is to be sent ``back``, and what to keep until then where only
        that browser has it and nobody can read it. ``acr``: the level to ask for; None: the provider chooses. May wait
        for the provider.

        :raises Retryable: ``login.unreachable``; :raises InvalidInput: ``login.issuer_invalid``
        """

    def finish_login(self, kept: Mapping[str, str], answer: Mapping[str, str]) -> str:
        """The token for what the browser was sent back with; ``kept``: of :meth:`begin_login`. Waits for the provider.

        :raises Denied: ``login.refused``, ``token.refused``; :raises Retryable: ``login.unreachable``
        """

    def logout_address(self, back: str) -> str | None:
        """Where a browser ends its session at the provider, to be sent ``back``; None: it has no such place, or has not
        answered yet. Never waits."""


class Identities(Protocol):
    @property
    def browsers(self) -> BrowserLogins | None:
        """None: browsers are not sent there."""

    def awaited(self, text: str) -> Future[None] | None:
        """Of whom a token says that it is may depend on what the provider has yet to answer: done when it has, or
        cannot be asked. None: :meth:`login` can say all. Never waits itself."""

    def login(self, text: str) -> Login:
        """What the provider's token says its bearer is.

        Never waits. :raises Denied: ``token.refused``
        :raises Retryable: ``login.unreachable``: the provider has not answered yet
        """
