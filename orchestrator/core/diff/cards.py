# SPDX-License-Identifier: Apache-2.0
"""Cards that are not where they were accepted, or are not there at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.core.actions.after_boot import not_on_bus
from orchestrator.core.actions.gpu_cards import GpuCard, cards_of, moves, strangers
from orchestrator.core.diff.finding import Finding, Repair
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import HostSnapshot

_MOVED = "nothing starts there by its address: 'vgpuctl gpu accept {host}' has VMs and claims follow their card"
_REPLACED = "nothing starts there: is the new card right, 'vgpuctl gpu accept {host} {address}' says so"
_MISSING = "its VMs keep their places until it is there again: is it seated, what does 'dmesg' say of it?"


def card_findings(host: Host, accepted: Sequence[GpuCard], snapshot: HostSnapshot) -> Iterator[Finding]:
    """One for each GPU."""
    seen, known = cards_of(snapshot.gpus), {card.address: card for card in accepted}
    now = {card.address: card.words for card in seen}
    moved = moves(accepted, seen)
    for old, new in moved.items():
        differ = known[old].words, f"it is at {new}, and {now.get(old, 'no card')} is here"
        yield _finding(host, "gpu.moved", old, differ, _MOVED)
    for address, (card, stranger) in strangers(accepted, seen).items():
        yield _finding(host, "gpu.replaced", address, (card.words, stranger.words), _REPLACED)
    for address in snapshot.lacks(host.managed_gpus):
        if address not in moved:
            words = known[address].words if address in known else "a GPU of ours"
            yield _finding(host, "gpu.missing", address, (words, not_on_bus((address,))), _MISSING)


def _finding(host: Host, code: str, address: str, differ: tuple[str, str], why: str) -> Finding:
    """``differ``: what was accepted, and what was observed."""
    wanted, observed = differ
    return Finding(
        code=code, severity="error", host=host.name, subject=f"GPU {address}", vm=None, whose="ours",
        wanted=wanted, observed=observed, reason=why.format(host=host.name, address=address),
        repair=Repair(kind="accept_gpus", automatic=False) if code == "gpu.moved" else None,
    )  # fmt: skip
