# SPDX-License-Identifier: Apache-2.0
"""Plans of moves as lines of plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.cli.advice.explain import action_text, reason_text, who_text, wrapped

Moves = Sequence[Mapping[str, Any]]


def render_drain(plan: Mapping[str, Any], host: str, width: int) -> list[str]:
    """What leaves a host and where to, and what stays."""
    moves, stays = plan["moves"], plan["stays"]
    total = len(moves) + len(stays)
    if not total:
        return [f"no VM has a GPU of host {host}"]
    lines = wrapped(
        f"{len(moves)} of {_vms(total)} on host {host} would fit elsewhere{_moves_follow(moves)}", "", width
    )
    lines += _moves(moves, width)
    if stays:
        lines += ["", f"{_vms(len(stays))} would have to be stopped or stay:"]
    for stay in stays:
        where = f"{who_text(stay)} ({stay['profile']}) on {', '.join(stay['gpu_ids'])}"
        lines += wrapped(where, "  - ", width)
        for reason in stay["reasons"]:
            lines += wrapped(reason_text(reason), "      ", width)
    return lines


def render_compaction(plan: Mapping[str, Any], width: int) -> list[str]:
    """Which GPUs could be freed, and where their VMs would fit."""
    moves, freed = plan["moves"], plan["freed"]
    if not freed:
        return wrapped("no GPU can be freed: no other that is in use has room for its VMs", "", width)
    gpus = "1 GPU" if len(freed) == 1 else f"{len(freed)} GPUs"
    lines = wrapped(f"{gpus} could be freed: {_vms(len(moves))} would fit on others{_moves_follow(moves)}", "", width)
    lines += _moves(moves, width)
    return [*lines, "", *wrapped(f"free afterwards: {', '.join(freed)}", "", width)]


def _vms(count: int) -> str:
    return "1 VM" if count == 1 else f"{count} VMs"


def _moves_follow(moves: Moves) -> str:
    if not moves:
        return ""
    cost = _cost(sum(move["cost_mib"] for move in moves), sum(move["disk_gib"] for move in moves))
    return f" ({cost}). Nothing moves a VM yet: create each again there, in order:"


def _cost(mib: int, disk_gib: int) -> str:
    return f"{mib / 1024:.1f} GiB of memory, {disk_gib} GiB of disk"


def _moves(moves: Moves, width: int) -> list[str]:
    lines = []
    for number, move in enumerate(moves, start=1):
        text = f"{action_text(move)}: {_cost(move['cost_mib'], move['disk_gib'])}"
        lines += wrapped(text, f"  {number}. ", width)
    return lines
