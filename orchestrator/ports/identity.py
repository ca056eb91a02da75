# SPDX-License-Identifier: Apache-2.0
"""Who logged in at an identity provider."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Protocol


class Identities(Protocol):
    def awaited(self, text: str) -> Future[None] | None:
        """Of whom a token says that it is may depend on what the provider has yet to answer: done when it has, or
        cannot be asked. None: :meth:`subjects` can say all. Never waits itself."""

    def subjects(self, text: str) -> tuple[str, ...]:
        """What the provider's token says its bearer is, as members are named: ``oidc:sub:<subject>`` first, then
        ``oidc:<verified e-mail address>`` and ``oidc:@<group>`` for each group.

        Never waits. :raises Denied: ``token.refused``
        :raises Retryable: ``login.unreachable``: the provider has not answered yet
        """
