# SPDX-License-Identifier: Apache-2.0
"""Who logged in at an identity provider."""

from __future__ import annotations

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


class Identities(Protocol):
    def awaited(self, text: str) -> Future[None] | None:
        """Of whom a token says that it is may depend on what the provider has yet to answer: done when it has, or
        cannot be asked. None: :meth:`login` can say all. Never waits itself."""

    def login(self, text: str) -> Login:
        """What the provider's token says its bearer is.

        Never waits. :raises Denied: ``token.refused``
        :raises Retryable: ``login.unreachable``: the provider has not answered yet
        """
