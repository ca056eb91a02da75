# SPDX-License-Identifier: Apache-2.0
"""Files of the state directory and what is built from them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from orchestrator.core.actions.host_actions import ImageFormat
from orchestrator.core.drivers.bundle import DriverBundle, NewBundle
from orchestrator.core.vms.image import Image, NewImage
from orchestrator.store.transaction import Transaction

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class TakenFile(Generic[T_co]):
    """A file that was copied and checked, and that is nowhere yet where it would be found. ``keep`` puts it there: in
    the transaction that names it, because a removal of the same content asks in a transaction whether it is named."""

    described: T_co
    keep: Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class Seed:
    """What a guest is told at its first boot."""

    vm: str
    hostname: str
    ssh_keys: tuple[str, ...] = ()
    """OpenSSH public key lines."""
    user_data: str | None = field(default=None, repr=False)
    """The text itself."""
    cards: tuple[str, ...]
    """Hardware addresses of its network cards, in order."""
    cards_of_ipv6: frozenset[str] = frozenset()
    """Those of them that have an address of IPv6, too."""
    function: str | None = None
    """That of the virtual function of a card that it has, which may have another: not every card takes one."""


class SeedBuilder(Protocol):
    def build(self, wanted: Seed) -> bytes:
        """As an ISO 9660 image of cloud-init's NoCloud data source."""


class ImageFiles(Protocol):
    """Base images on this machine, stored once by their SHA-256."""

    def take(self, wanted: NewImage, now: float) -> AbstractContextManager[TakenFile[Image]]:
        """Copy or download it, and check it. What was not kept by the end of the block is gone.

        :raises InvalidInput: ``image.source_refused``, ``image.unsafe``, ``image.digest_differs``
        """

    def path(self, sha256: str, image_format: ImageFormat) -> Path:
        """:raises Retryable: ``image.elsewhere``: another controller has it, and does not answer"""

    def local(self, sha256: str, image_format: ImageFormat) -> Path | None:
        """The file, if this controller has it."""

    def remove(self, sha256: str, image_format: ImageFormat) -> None:
        """In a transaction in which no row names it."""


class BundleFiles(Protocol):
    """Driver bundles on this machine, kept once by their SHA-256."""

    def take(self, wanted: NewBundle, now: float) -> AbstractContextManager[TakenFile[DriverBundle]]:
        """Copy it, check digest and signature, then read what it is. What was not kept by the end of the block is gone.

        :raises InvalidInput: ``bundle.…``
        """

    def remove(self, sha256: str) -> None:
        """In a transaction in which no row names it."""

    def checked(self, sha256: str) -> Path:
        """The file, read once more: it has the digest it was taken under.

        :raises Fatal: ``bundle.damaged``
        """


class NotedHead(Protocol):
    """The head of the audit's chain, kept where who can write to the database cannot."""

    def read(self) -> str | None:
        """None: none was written down yet."""

    def write(self, head: str) -> None: ...


class HostKeys(Protocol):
    """Provisioning keys: kept encrypted with the host, so that every controller has them."""

    def put(self, tx: Transaction, host: str, text: str) -> None:
        """:raises InvalidInput: ``host.key_invalid`` when it is no private key"""

    def remove(self, tx: Transaction, host: str) -> None: ...
