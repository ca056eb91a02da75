# SPDX-License-Identifier: Apache-2.0
"""Telling an address what happened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class WebhookSender(Protocol):
    def check(self, url: str) -> None:
        """Whether anything would be sent there, as far as the URL says it by itself: a number is judged, a name is not.

        :raises InvalidInput: ``webhook.address_refused``
        """

    def send(self, url: str, headers: Mapping[str, str], body: bytes) -> None:
        """One POST; returns when it was answered with 2xx.

        :raises Retryable: ``webhook.failed``: it was not, or was answered otherwise; redirects are not followed
        :raises InvalidInput: ``webhook.address_refused``: its host has an address that nothing is sent to
        """
