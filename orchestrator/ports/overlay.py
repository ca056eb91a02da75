# SPDX-License-Identifier: Apache-2.0
"""The network over all hosts that a site may have, and whose certificates let in there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from orchestrator.core.northbound.rows import Existing, Operation, Placed
from orchestrator.core.ovn import CertificateFor, OvnBinding, OvnReading


class Overlay(Protocol):
    """OVN's databases."""

    def read(self) -> OvnReading:
        """What is there now; changes nothing. A server that does not answer is told of in it."""

    def bindings(self, ports: Iterable[str]) -> Mapping[str, OvnBinding]:
        """Where OVN has these ports, by their ids; nothing of those that ovn-northd has not carried over.

        :raises Retryable: ``ovn.unreachable``"""


class NorthboundSession(Protocol):
    """Each call raises Retryable: ``ovn.unreachable``, ``ovn.refused``, ``ovn.outdated``: it was changed meanwhile."""

    @property
    def owns_names(self) -> bool:
        """Whether its rows of names have ``ovn-owned``: OVN 24.03 and later."""

    def read(self, rows: Iterable[Placed]) -> Existing:
        """Those of these that are there, with all their columns."""

    def read_all(self, site: str, tables: Mapping[str, Sequence[str]]) -> Existing:
        """All of the site's in these tables, with these columns."""

    def change(self, operations: Sequence[Operation]) -> None:
        """All or none."""


class Northbound(Protocol):
    """OVN's northbound database, which is derived from ours."""

    def open(self) -> AbstractContextManager[NorthboundSession]:
        """One connection, for a short while. :raises Retryable: ``ovn.unreachable``"""


class Tracer(Protocol):
    def trace(self, switch: str, packet: str) -> str:
        """What OVN would do with a packet of a connection that nothing has seen yet, as ovn-trace(8) tells it.
        ``switch``: UUID of its row in the northbound; ``packet``: as ovn-trace takes one.

        :raises Conflict: ``ovn.no_trace``; :raises Retryable: ``ovn.unreachable``, ``ovn.busy``"""


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
