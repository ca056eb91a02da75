# SPDX-License-Identifier: Apache-2.0
"""Plans of moves as plain text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.core.advice.render_explain import action_text, reason_text, wrapped
from orchestrator.core.placement.move_plans import MovePlan, UnmovableVm
from orchestrator.core.placement.planned_action import Action


def render_drain(plan: MovePlan, host: str, *, names: Mapping[str, str], width: int = 100) -> str:
    """What leaves a host and where to, and what stays."""
    total = len(plan.moves) + len(plan.stays)
    if not total:
        return f"no VM has a GPU of host {host}\n"
    head = f"{len(plan.moves)} of {_vms(total)} on host {host} could move{_moves_follow(plan.moves)}"
    lines = wrapped(head, "", width)
    lines += _moves(plan.moves, names, width)
    if plan.stays:
        lines += ["", f"{_vms(len(plan.stays))} would have to be stopped or stay:"]
    for stay in plan.stays:
        lines += wrapped(_who(stay, names), "  - ", width)
        for reason in stay.reasons:
            lines += wrapped(reason_text(reason), "      ", width)
    return _text(lines)


def render_compaction(plan: MovePlan, *, names: Mapping[str, str], width: int = 100) -> str:
    """Which GPUs could be freed and by which moves."""
    if not plan.freed:
        return _text(wrapped("no GPU can be freed by moving its VMs onto GPUs that are in use", "", width))
    gpus = "1 GPU" if len(plan.freed) == 1 else f"{len(plan.freed)} GPUs"
    head = f"{gpus} could be freed by moving {_vms(len(plan.moves))}{_moves_follow(plan.moves)}"
    lines = wrapped(head, "", width)
    lines += _moves(plan.moves, names, width)
    lines += ["", *wrapped(f"free afterwards: {', '.join(plan.freed)}", "", width)]
    return _text(lines)


def _text(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"


def _vms(count: int) -> str:
    return "1 VM" if count == 1 else f"{count} VMs"


def _moves_follow(moves: Sequence[Action]) -> str:
    if not moves:
        return ""
    return f" ({_cost(sum(move.cost_mib for move in moves), sum(move.disk_gib for move in moves))} to copy), in order:"


def _cost(mib: int, disk_gib: int) -> str:
    return f"{mib / 1024:.1f} GiB of memory, {disk_gib} GiB of disk"


def _moves(moves: Sequence[Action], names: Mapping[str, str], width: int) -> list[str]:
    lines = []
    for number, move in enumerate(moves, start=1):
        text = f"{action_text(move, names)}: {_cost(move.cost_mib, move.disk_gib)}"
        lines += wrapped(text, f"  {number}. ", width)
    return lines


def _who(stay: UnmovableVm, names: Mapping[str, str]) -> str:
    name = names.get(stay.vm_id, stay.vm_id)
    who = f"{stay.tenant}/{name}" if stay.tenant else name
    return f"{who} ({stay.profile}) on {', '.join(stay.gpu_ids)}"


__all__ = ["render_compaction", "render_drain"]
