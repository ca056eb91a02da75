# SPDX-License-Identifier: Apache-2.0
"""What happened in the fleet, as records whose numbers grow. Pure.

What is written in ``details`` may be told to the tenant whose event it is; a host's name stands in ``host`` alone,
which only those are told who watch the pool.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from orchestrator.core.errors import InvalidInput, one_line
from orchestrator.core.tenancy.key_ring import origin_of

Noun = Literal[
    "operation", "vm", "host", "gpu", "finding", "maintenance", "tenant", "quota", "policy", "network", "volume",
    "image", "offering", "token", "security_group", "floating_address",
]  # fmt: skip
NOUNS: Final[tuple[Noun, ...]] = get_args(Noun)
GapReason = Literal["forgotten", "slow"]
"""Why a reader must read anew what it knows. ``forgotten``: what came after the id that it gave is no longer kept, as
too much has happened or the database was restored. ``slow``: it took too slowly what it was sent; it may go on where it
was."""
MAX_TEXT: Final = 200
_ID: Final = re.compile(r"[0-9a-f]{16}", re.ASCII)
_HALF: Final = 32
_MASK: Final = 2**_HALF - 1
_ROUNDS: Final = 4
MAX_NUMBER: Final = 2**62


@dataclass(frozen=True, kw_only=True)
class FleetChange:
    """One change of one thing."""

    noun: Noun
    """What it is about."""
    name: str
    """What that is called: a VM in its tenant, a GPU ``host/address``, an operation by its id."""
    change: str
    """What happened: created, state, removed, step, opened, cleared and the like."""
    tenant: str | None = None
    """Whose it is; None: the pool's."""
    host: str | None = None
    """Name of the host."""
    subject: str | None = None
    """Id of the VM or volume; of an operation what it is about, as ``tenant/name`` or the name of a host."""
    state: str | None = None
    """Where it stands now, where it has states."""
    details: Mapping[str, str] = field(default_factory=dict)
    """More, by name: kind, step, error, severity."""


@dataclass(frozen=True, kw_only=True)
class FleetEvent:
    """A change that was committed. ``number``: grows in the order in which readers are told."""

    number: int
    at: float
    """When, by the controller's clock: seconds since the epoch, UTC."""
    change: FleetChange


@dataclass(frozen=True, kw_only=True)
class EventFilter:
    """Which events somebody is told of."""

    tenants: frozenset[str] | None = None
    """Whose; None: everybody's and the pool's."""
    nouns: frozenset[Noun] = frozenset()
    """About what; empty: about everything."""
    name: str | None = None
    """About what is called so, or has this id; None: about all."""

    def picks(self, change: FleetChange) -> bool:
        """Whether it is one of these."""
        if self.tenants is not None and change.tenant not in self.tenants:
            return False
        if self.nouns and change.noun not in self.nouns:
            return False
        return self.name is None or self.name in {change.name, change.subject}


def shortened(text: str) -> str:
    """In one line and short: names of things on hosts are those hosts' words."""
    return one_line(text, MAX_TEXT)


class EventIds:
    """Numbers of events as readers know them. Numbers count what everybody does: whoever could read them would know how
    much others do. So an id is the number under a permutation that the site's key gives."""

    def __init__(self, ring: bytes) -> None:
        """``ring``: of core/tenancy/key_ring.py."""
        self._key = hmac.new(origin_of(ring), b"events", hashlib.sha256).digest()

    def of(self, number: int) -> str:
        """16 hexadecimal digits."""
        left, right = number >> _HALF, number & _MASK
        for turn in range(_ROUNDS):
            left, right = right, left ^ self._mixed(turn, right)
        return f"{left << _HALF | right:016x}"

    def number(self, event_id: str) -> int:
        """The inverse of :meth:`of`.

        :raises InvalidInput: ``event.id_invalid``: no event of this site has ever had it
        """
        number = MAX_NUMBER
        if _ID.fullmatch(event_id) is not None:
            left, right = int(event_id, 16) >> _HALF, int(event_id, 16) & _MASK
            for turn in reversed(range(_ROUNDS)):
                left, right = right ^ self._mixed(turn, left), left
            number = left << _HALF | right
        if number >= MAX_NUMBER:
            raise InvalidInput(
                "event.id_invalid",
                f"{event_id[:40]!a} is no id of an event",
                hint="give one as an event had it, or none for what happens from now on",
            )
        return number

    def _mixed(self, turn: int, half: int) -> int:
        text = turn.to_bytes(1, "big") + half.to_bytes(4, "big")
        return int.from_bytes(hashlib.blake2s(text, digest_size=4, key=self._key).digest(), "big")
