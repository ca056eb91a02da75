# SPDX-License-Identifier: Apache-2.0
"""Why a VM goes where, or why it fits nowhere and what would help, as lines of plain text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any, Final

from orchestrator.cli.advice.gpu_map import label_of, slots_text
from orchestrator.cli.output import shown
from orchestrator.cli.table import Column, Fit, field
from orchestrator.core.advice.gpu_map import short_gpu_id
from orchestrator.core.geometry.cut import cut_words

_MAX_NAMED: Final = 6
_MAX_PLACES: Final = 8
"""Places listed one by one; more are counted. Slots of a time-sliced GPU are all alike and always counted."""


def render_explanation(explanation: Mapping[str, Any], width: int) -> list[str]:
    """The whole answer; that of a tenant has no host, no remedies and no GPUs in it."""
    if explanation["fits"]:
        return _fits(explanation, width)
    request = explanation["asked"]
    lines = [f"{_asked(request)} does not fit ({explanation['code']}):"]
    for reason in explanation["reasons"]:
        lines += wrapped(reason["message"] if explanation["restricted"] else reason_text(reason), "  - ", width)
    preempts = ", ".join(explanation["preempts"])
    preempting = ["", *wrapped(f"with --preempt it would have stopped: {preempts}", "", width)] if preempts else []
    if explanation["restricted"]:
        return lines + preempting
    if explanation["gpus"]:
        lines += ["", "what is on these GPUs (of those alike, one is shown):"]
        for row in explanation["gpus"]:
            lines += wrapped(_on_gpu(row), "  - ", width)
    if explanation["remedies"]:
        lines += ["", "it would fit after this (the cheapest found):"]
        for remedy in explanation["remedies"]:
            lines += _remedy(remedy, width)
    elif (explanation["code"] or "").startswith("quota."):
        lines += ["", f"a larger quota, or fewer devices of tenant {request['tenant']}, would let it in"]
    else:
        lines += ["", "no VMs were found whose deletion would make it fit"]
    if explanation.get("moves"):
        lines += ["", *wrapped(f"with --with-moves these would move: {', '.join(explanation['moves'])}", "", width)]
    return lines + preempting


def _fits(explanation: Mapping[str, Any], width: int) -> list[str]:
    if explanation["restricted"]:
        return [f"{_asked(explanation['asked'])} fits"]
    host = explanation["host"]
    lines = [f"{_asked(explanation['asked'])} fits:", f"  host {host}"]
    lines += [f"  {line}" for line in _parts(explanation["parts"], host)]
    return lines + wrapped(f"why: {explanation['why']}", "  ", width)


def _asked(request: Mapping[str, Any]) -> str:
    devices = f"{request['count']} x {request['profile']}" if request["count"] > 1 else request["profile"]
    mib, vcpus = request["memory_mib"], request["vcpus"]
    memory = f"{mib} MiB" if mib % 512 else f"{mib / 1024:g} GiB"
    return f"{devices} with {vcpus} vCPU{'' if vcpus == 1 else 's'} and {memory} for tenant {request['tenant']}"


def _parts(parts: Sequence[Mapping[str, Any]], host: str) -> list[str]:
    """One line per part of a GPU; whole GPUs together."""
    if parts[0]["cut"] == "whole":
        gpus = ", ".join(short_gpu_id(host, part["gpu"]) for part in parts)
        return [f"whole GPU {gpus}" if len(parts) == 1 else f"whole GPUs {gpus}"]
    return [
        f"GPU {short_gpu_id(host, part['gpu'])}: {cut_words(part['cut'])}, "
        f"{slots_text(part['slots'][0], len(part['slots']))}"
        for part in parts
    ]


def _on_gpu(row: Mapping[str, Any]) -> str:
    cells = [cell for cell in row["cells"] if cell["vm"] is not None]
    if (row["cut"] or "").startswith("time_sliced:") or len(cells) > _MAX_PLACES:
        counts = Counter(cell["profile"] or label_of(cell) for cell in cells)
        held = ", ".join(f"{count} x {what}" for what, count in counts.items())
    else:
        held = ", ".join(
            f"{cell['profile'] or label_of(cell)} on {slots_text(cell['start'], cell['size'])}" for cell in cells
        )
    free = f"{row['free']} of {row['slots']} slots free"
    return f"{row['host']}/{row['gpu']} ({cut_words(row['cut'])}, {free}): {held}"


def reason_text(reason: Mapping[str, Any]) -> str:
    """The message with its code and those it is about."""
    subjects = reason["subjects"]
    shown = ", ".join(_subject(subject) for subject in subjects[:_MAX_NAMED])
    more = reason["count"] - min(len(subjects), _MAX_NAMED)
    if shown and more > 0:
        shown += f" and {more} more"
    return f"{reason['message']} ({reason['code']}): {shown}" if shown else f"{reason['message']} ({reason['code']})"


def _subject(subject: str) -> str:
    host, slash, gpu = subject.partition("/")
    return f"{host}{slash}{short_gpu_id(host, gpu)}"


def _remedy(remedy: Mapping[str, Any], width: int) -> list[str]:
    lines = [f"  {_title(remedy)}"]
    for action in remedy["actions"]:
        lines += wrapped(_action_text(action), "    - ", width)
    parts = "; ".join(_parts(remedy["parts"], remedy["host"]))
    return lines + wrapped(f"then: host {remedy['host']}, {parts}", "    ", width)


def _title(remedy: Mapping[str, Any]) -> str:
    count = len(remedy["actions"])
    vms = "1 VM" if count == 1 else f"{count} VMs"
    return f"delete {vms} ({remedy['cost_mib'] / 1024:.1f} GiB of GPU memory lost):"


def _action_text(action: Mapping[str, Any]) -> str:
    host = action["host"]
    at = f"{host}/{'+'.join(short_gpu_id(host, gpu) for gpu in action['gpu_ids'])}"
    return f"{_who_text(action)} ({action['profile']}) on {at}"


def _who_text(vm: Mapping[str, Any]) -> str:
    """``tenant/name``; the id where the name is not known."""
    name = vm["vm"] or vm["vm_id"] or ""
    return f"{vm['tenant']}/{name}" if vm["tenant"] else name


def wrapped(text: str, first: str, width: int) -> list[str]:
    """Lines of at most ``width``, the first with ``first`` before it, the others two columns further in."""
    rest = " " * (len(first) + 2)
    return wrap(text, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)


_COLUMNS: Final = (field("PROFILE", "profile", Fit.WHOLE), field("FITS NOW", "fits_now"))
_WHY_NONE: Final = Column("WHY NONE", lambda row: shown((row.get("reason") or {}).get("message")), Fit.WRAP)


def closed_line(gpus: Mapping[str, object]) -> str:
    closed = [f"{gpus[state]} {state}" for state in ("unfit", "quarantined") if gpus[state]]
    why = f"; closed: {', '.join(closed)} ('vgpuctl health show')" if closed else ""
    return f"GPUs that new VMs may be put on: {gpus['allocatable']}{why}"


def capacity_columns(rows: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    """Why none fits, where that is so of any."""
    return (*_COLUMNS, _WHY_NONE) if any(row.get("reason") for row in rows) else _COLUMNS
