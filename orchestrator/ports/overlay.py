# SPDX-License-Identifier: Apache-2.0
"""The network over all hosts that a site may have, and whose certificates let in there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from orchestrator.core.ovn import CertificateFor, OvnReading


class Overlay(Protocol):
    """OVN's databases."""

    def read(self) -> OvnReading:
        """What is there now; changes nothing. A server that does not answer is told of in it."""


@dataclass(frozen=True, kw_only=True)
class SignedCertificate:
    """PEM texts."""

    certificate: str
    """Of the key that was asked for."""
    central: str
    """Authority of central servers and of their clients, who alone write networks."""
    hosts: str
    """Authority of hosts, whom the southbound alone believes."""
    ends_at: float
    """In seconds since the epoch, UTC."""


class OverlayAuthority(Protocol):
    def sign(self, whose: CertificateFor, name: str, request: str) -> SignedCertificate:
        """A certificate of that name for the key of a request (PKCS #10, PEM), of which nothing else is taken.

        :raises InvalidInput: ``certificate.request_invalid``
        """
