# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl status``"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import typer

from orchestrator.cli.output import render_details, show, shown, width
from orchestrator.cli.parameters import ListTenant
from orchestrator.cli.session import format_of, session_of
from orchestrator.cli.table import Column, Fit, field, render_table

USED: Final = Column("USED", lambda row: f"{row['used']:g}")
MODELS: Final = (
    field("MODEL", "model", Fit.WHOLE),
    field("GPUS", "gpus"),
    field("EMPTY", "free"),
    USED,
    field("UNUSABLE", "unusable"),
)
TENANTS: Final = (
    field("TENANT", "tenant", Fit.WHOLE),
    field("VMS", "vms"),
    field("RUNNING", "running"),
    field("GPUS", "gpus"),
    USED,
)


def status(ctx: typer.Context, tenant: ListTenant = None) -> None:
    """The whole site on one screen: GPUs empty and used, VMs, hosts, operations, findings, upgrades.

    A tenant sees its part. USED counts in whole GPUs: two halves of cards are 1.
    """
    answer = session_of(ctx).client.status(tenant)
    show(answer, format_of(ctx), lambda: list(_lines(answer)))


def _lines(status: Mapping[str, Any]) -> Iterator[str]:
    yield from render_details(list(_counts(status)))
    for rows, columns in ((status["gpus"], MODELS), (status["tenants"], TENANTS)):
        if rows:
            yield ""
            yield from render_table(rows, columns, width())


def _counts(status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    hosts, findings = status["hosts"], status["findings"]
    if hosts is not None:
        states, cordoned = hosts["states"], _some(hosts["cordoned"], "cordoned")
        yield "hosts", _joined([*_some(sum(states.values())), *_by_number(states), *cordoned], "none")
    gpus, free = sum(gpu["gpus"] for gpu in status["gpus"]), sum(gpu["free"] or 0 for gpu in status["gpus"])
    yield "GPUs", f"{gpus}, {free} empty" if hosts is not None else f"{gpus} with VMs on them"
    vms, running = (sum(tenant[key] for tenant in status["tenants"]) for key in ("vms", "running"))
    yield "VMs", f"{vms}, {running} running"
    operations = status["operations"]
    stuck = _some(operations["stuck"], "stuck: 'vgpuctl operation list --state stuck'")
    yield "operations", _joined([*_some(operations["under_way"], "under way"), *stuck], "none under way")
    if findings is not None:
        known = _joined(list(_by_number(findings)), "")
        yield "findings", f"{known}: 'vgpuctl doctor'" if known else "nothing differs"
    for maintenance in status["maintenances"] or ():
        done = f"{maintenance['done']} of {maintenance['hosts']} hosts done"
        late = ", longer than planned" if maintenance["overran"] else ""
        yield "maintenance", f"{shown(maintenance['title'])} {shown(maintenance['state'])}: {done}{late}"


def _by_number(counts: Mapping[str, int]) -> Iterator[str]:
    return (f"{number} {shown(word)}" for word, number in sorted(counts.items(), key=lambda one: (-one[1], one[0])))


def _some(number: int, word: str = "") -> list[str]:
    return [f"{number} {word}".rstrip()] if number else []


def _joined(parts: list[str], none: str) -> str:
    return ", ".join(parts) or none
