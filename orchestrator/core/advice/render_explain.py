# SPDX-License-Identifier: Apache-2.0
"""Explanations and capacity as plain text for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from textwrap import wrap

from orchestrator.core.advice.capacity import CapacityRow, Room
from orchestrator.core.advice.explain import Explanation, TenantExplanation
from orchestrator.core.advice.gpu_map import GpuRow, short_gpu_id, slots_text
from orchestrator.core.advice.remedies import Remedy
from orchestrator.core.errors import Reason
from orchestrator.core.geometry.cut import cut_words
from orchestrator.core.placement.planned_action import Action
from orchestrator.core.placement.views import Placement, Request

_MAX_NAMED = 6
_MAX_PLACES = 8
"""Places listed one by one; more are counted. Slots of a time-sliced GPU are all alike and always counted."""
_TITLES = {"mode_switch": "switch a mode", "moves": "move", "deletions": "delete"}


def render_explanation(
    explanation: Explanation,
    *,
    names: Mapping[str, str] | None = None,
    width: int = 100,
    preempts: Sequence[str] = (),
) -> str:
    """The whole answer. ``names``: VM id → name to show; ``preempts``: who would be stopped for it."""
    request, placement = explanation.request, explanation.placement
    if placement is not None:
        lines = [f"{_asked(request)} fits:", *_placement(placement, explanation.host or placement.host_id)]
        lines += wrapped(f"why: {placement.why}", "  ", width)
        return "\n".join(lines) + "\n"
    lines = [f"{_asked(request)} does not fit ({explanation.code}):"]
    for reason in explanation.reasons:
        lines += wrapped(reason_text(reason), "  - ", width)
    if explanation.gpus:
        lines += ["", "what is on these GPUs (of those alike, one is shown):"]
        for row in explanation.gpus:
            lines += wrapped(_on_gpu(row), "  - ", width)
    if explanation.remedies:
        lines += ["", "it would fit after one of these (the cheapest found of each kind):"]
        for remedy in explanation.remedies:
            lines += _remedy(remedy, names or {}, width)
    elif (explanation.code or "").startswith("quota."):
        lines += ["", f"a larger quota, or fewer devices of tenant {request.tenant}, would let it in"]
    else:
        lines += ["", "no move, deletion or mode switch was found that would make it fit"]
    if preempts:
        lines += ["", *wrapped(f"with --preempt it would have stopped: {', '.join(preempts)}", "", width)]
    return "\n".join(lines) + "\n"


def render_for_tenant(told: TenantExplanation, width: int = 100) -> str:
    """The whole answer for a tenant."""
    if told.fits:
        return f"{_asked(told.request)} fits\n"
    lines = [f"{_asked(told.request)} does not fit ({told.code}):"]
    for reason in told.reasons:
        lines += wrapped(reason.message, "  - ", width)
    return "\n".join(lines) + "\n"


def render_room(rows: Sequence[Room]) -> str:
    """A table for a tenant: a line per profile."""
    return _table(("PROFILE", "FITS NOW"), [(row.profile, str(row.fits_now)) for row in rows])


def render_capacity(rows: Sequence[CapacityRow]) -> str:
    """A table: a line per profile. ``at least`` marks numbers that are not proved to be the most."""
    head = ("PROFILE", "FITS NOW", "WITH MOVES")
    return _table(head, [(row.profile, str(row.fits_now), _bounded(row)) for row in rows])


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    table = [head, *rows]
    widths = [max(len(line[i]) for line in table) for i in range(len(head))]
    return "".join("  ".join(cell.ljust(widths[i]) for i, cell in enumerate(line)).rstrip() + "\n" for line in table)


def _bounded(row: CapacityRow) -> str:
    return str(row.fits_with_moves) if row.exact else f"at least {row.fits_with_moves}"


def _asked(request: Request) -> str:
    devices = f"{request.count} x {request.profile}" if request.count > 1 else request.profile
    memory = f"{request.memory_mib / 1024:g} GiB"
    return f"{devices} with {request.vcpus} vCPUs and {memory} for tenant {request.tenant}"


def _placement(placement: Placement, host: str) -> list[str]:
    return [f"  host {host}", *(f"  {line}" for line in _parts(placement, host))]


def _parts(placement: Placement, host: str) -> list[str]:
    """One line per part of a GPU; whole GPUs together."""
    if placement.cut == "whole":
        gpus = ", ".join(short_gpu_id(host, gpu) for gpu in placement.gpu_ids)
        return [f"whole GPU {gpus}" if len(placement.parts) == 1 else f"whole GPUs {gpus}"]
    return [
        f"GPU {short_gpu_id(host, part.gpu_id)}: {cut_words(part.cut)}, {slots_text(part.slots[0], len(part.slots))}"
        for part in placement.parts
    ]


def _on_gpu(row: GpuRow) -> str:
    cells = [cell for cell in row.cells if cell.vm is not None]
    if (row.cut or "").startswith("time_sliced:") or len(cells) > _MAX_PLACES:
        counts = Counter(cell.profile or cell.label for cell in cells)
        held = ", ".join(f"{count} x {what}" for what, count in counts.items())
    else:
        held = ", ".join(f"{cell.profile or cell.label} on {slots_text(cell.start, cell.size)}" for cell in cells)
    return f"{row.host}/{row.gpu} ({cut_words(row.cut)}, {row.free} of {row.slots} slots free): {held}"


def reason_text(reason: Reason) -> str:
    """The message with its code and those it is about."""
    shown = ", ".join(_subject(subject) for subject in reason.subjects[:_MAX_NAMED])
    more = reason.count - min(len(reason.subjects), _MAX_NAMED)
    if shown and more > 0:
        shown += f" and {more} more"
    return f"{reason.message} ({reason.code}): {shown}" if shown else f"{reason.message} ({reason.code})"


def _subject(subject: str) -> str:
    host, slash, gpu = subject.partition("/")
    return f"{host}{slash}{short_gpu_id(host, gpu)}"


def _remedy(remedy: Remedy, names: Mapping[str, str], width: int) -> list[str]:
    lines = [f"  {_title(remedy)}"]
    for action in remedy.actions:
        lines += wrapped(action_text(action, names), "    - ", width)
    parts = "; ".join(_parts(remedy.placement, remedy.host))
    return lines + wrapped(f"then: host {remedy.host}, {parts}", "    ", width)


def _title(remedy: Remedy) -> str:
    title, count = _TITLES[remedy.kind], len(remedy.actions)
    if remedy.kind == "mode_switch":
        return f"{title} (disturbs no VM):"
    vms = "1 VM" if count == 1 else f"{count} VMs"
    gib = f"{remedy.cost_mib / 1024:.1f} GiB"
    return f"{title} {vms} ({gib} to copy):" if remedy.kind == "moves" else f"{title} {vms} ({gib} of GPU memory lost):"


def action_text(action: Action, names: Mapping[str, str]) -> str:
    """Who, and from where to where."""
    at = f"{action.host}/{'+'.join(short_gpu_id(action.host, gpu) for gpu in action.gpu_ids)}"
    if action.mode is not None:
        return f"{at}: {action.mode}"
    name = names.get(action.vm_id or "", action.vm_id or "")
    who = f"{action.tenant}/{name}" if action.tenant else name
    if action.to_host is None or action.to_gpu is None:
        return f"{who} ({action.profile}) on {at}"
    to = f"{action.to_host}/{short_gpu_id(action.to_host, action.to_gpu)}"
    return f"{who} ({action.profile}) from {at} to {to} start {action.to_start}"


def wrapped(text: str, first: str, width: int) -> list[str]:
    """Lines of at most ``width``, the first with ``first`` before it, the others two columns further in."""
    rest = " " * (len(first) + 2)
    return wrap(text, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)


__all__ = [
    "action_text",
    "reason_text",
    "render_capacity",
    "render_explanation",
    "render_for_tenant",
    "render_room",
    "wrapped",
]  # fmt: skip
