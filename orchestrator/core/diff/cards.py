# SPDX-License-Identifier: Apache-2.0
"""Cards that are not where they were accepted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.core.diff.finding import Finding, Repair
from orchestrator.core.gpu_cards import GpuCard, cards_of, moves, strangers
from orchestrator.core.host import Host
from orchestrator.core.snapshot import HostSnapshot

_MOVED = "nothing starts there by its address: 'vgpuctl gpu accept {host}' has VMs and claims follow their card"
_REPLACED = "nothing starts there: is the new card right, 'vgpuctl gpu accept {host} {address}' says so"


def card_findings(host: Host, accepted: Sequence[GpuCard], snapshot: HostSnapshot) -> Iterator[Finding]:
    """One for each GPU."""
    seen, known = cards_of(snapshot.gpus), {card.address: card for card in accepted}
    now = {card.address: card.words for card in seen}
    for old, new in moves(accepted, seen).items():
        there = f"it is at {new}, and {now.get(old, 'no card')} is here"
        yield _finding(host, "gpu.moved", known[old], there, _MOVED, Repair(kind="accept_gpus", automatic=False))
    for address, (_, stranger) in strangers(accepted, seen).items():
        yield _finding(host, "gpu.replaced", known[address], stranger.words, _REPLACED, None)


def _finding(host: Host, code: str, card: GpuCard, observed: str, why: str, repair: Repair | None) -> Finding:
    return Finding(
        code=code, severity="error", host=host.name, subject=f"GPU {card.address}", vm=None, whose="ours",
        wanted=card.words, observed=observed, repair=repair, reason=why.format(host=host.name, address=card.address),
    )  # fmt: skip
