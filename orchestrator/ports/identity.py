# SPDX-License-Identifier: Apache-2.0
"""Who logged in at an identity provider."""

from __future__ import annotations

from typing import Protocol


class Identities(Protocol):
    def subjects(self, text: str) -> tuple[str, ...]:
        """What the provider's token says its bearer is, as members are named: ``oidc:sub:<subject>`` first, then
        ``oidc:<verified e-mail address>`` and ``oidc:@<group>`` for each group.

        :raises Denied: ``token.refused``
        :raises Retryable: ``login.unreachable``: the provider does not answer
        """
