# SPDX-License-Identifier: Apache-2.0
"""The last look at every host in brief: whether the next one has anything to add."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from orchestrator.core.hosts.host import Host


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How a host was last seen."""

    host: Host
    """Enough to reach it: its list of managed GPUs is left out, and when it was last seen stands beside it."""
    last_seen_at: float | None
    digest: str | None
    """Of the snapshot that is stored, whole, and compared with what is wanted; None: there is none like that."""
    storage_free_bytes: int


@dataclass(frozen=True, kw_only=True)
class SeenAgain:
    """A look, begun ``at`` that moment, that found what is stored."""

    host: str
    at: float


class Looks(Protocol):
    def standing(self) -> Iterator[tuple[Standing, ...]]:
        """Of all hosts by name, a few hundred at a time: all of a large fleet take long to read."""

    def ready(self) -> tuple[Host, ...]:
        """Hosts that may be worked on, by name, without their managed GPUs."""

    def restless(self, *, since: int | None, now: float) -> frozenset[str]:
        """Hosts that something is to be said of even though they look as before: with an operation that has not ended
        or one with a later turn than ``since`` (None: than the stored look at its host), a standing finding, or a lease
        that ends soon."""

    def shows(self, host: str, vm_id: str) -> bool:
        """Whether placement's picture of the host has devices of the VM."""

    def is_judged(self, host: str) -> bool:
        """Whether what was last seen there has been compared with what is wanted."""

    def judge(self, host: str) -> None:
        """It is now, in this transaction."""

    def judge_host_anew(self, host: str) -> None:
        """What is wanted there has changed."""

    def seen_again(self, seen: Sequence[SeenAgain]) -> None:
        """Write down when; nothing of hosts that are not ready any more."""
