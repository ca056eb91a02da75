# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl power …``"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from orchestrator.cli.complete import hosts
from orchestrator.cli.output import show, shown, width
from orchestrator.cli.parameters import Host
from orchestrator.cli.session import session_of
from orchestrator.cli.table import Column, Fit, field, render_table
from orchestrator.cli.tree import new_group
from orchestrator.core.errors import InvalidInput
from orchestrator.core.gpu.pci import parse_pci_address

app = new_group("What GPUs may take, and who lends to whom.")

_WATTS: Final = re.compile(r"([0-9]{1,7})(?:\.([0-9]{1,3}))? ?(W|kW|MW)?", re.IGNORECASE)
_UNITS: Final = {"w": 1, "kw": 1_000, "mw": 1_000_000}


def _watts(number: int | None) -> str:
    return shown(None) if number is None else f"{number} W"


BUDGET_COLUMNS: Final = (
    field("SCOPE", "scope", Fit.WHOLE),
    Column("NAME", lambda row: shown(row["name"] or None), Fit.WHOLE),
    Column("BUDGET", lambda row: _watts(row["watts"])),
    Column("MAY TAKE", lambda row: _watts(row["granted_watts"])),
    Column("TAKE", lambda row: _watts(row["drawn_watts"])),
    field("GPUS", "gpus"),
    field("FIXED", "fixed"),
    field("SILENT", "silent"),
)
CAP_COLUMNS: Final = (
    field("HOST", "host", Fit.WHOLE),
    field("GPU", "gpu", Fit.WHOLE),
    Column("CAP", lambda row: _watts(row["cap_watts"])),
    Column("LIMIT", lambda row: _watts(row["limit_watts"])),
    Column("TAKES", lambda row: _watts(row["drawn_watts"])),
)


def parse_watts(text: str, none: str) -> int | None:
    """``500``, ``500W``, ``40kW``, ``1.2MW``; None: the word ``none``.

    :raises InvalidInput: ``power.watts_invalid``"""
    if text.lower() == none:
        return None
    match = _WATTS.fullmatch(text.strip())
    watts = 0.0 if match is None else float(f"{match[1]}.{match[2] or 0}") * _UNITS[(match[3] or "W").lower()]
    if watts < 1 or watts != int(watts):
        raise InvalidInput(
            "power.watts_invalid",
            f"{ascii(text)[:40]} is no number of watts",
            hint=f"write 500, 40kW or 1.2MW, or the word {none}",
        )
    return int(watts)


@app.command("show")
def show_power(
    ctx: typer.Context,
    host: Annotated[
        str | None, typer.Option("--host", help="All GPUs of it, with a cap or not.", autocompletion=hosts)
    ] = None,
) -> None:
    """Show budgets of power, and GPUs with a cap.

    What GPUs may take is the sum of their limits. FIXED are those that keep theirs: a VM has all of them, or their host
    does not answer, which SILENT counts.
    """
    session = session_of(ctx)
    answer = session.client.power(host)
    show(answer, session.format, lambda: _lines(answer))


@app.command("budget")
def budget(
    ctx: typer.Context,
    watts: Annotated[str, typer.Argument(metavar="WATTS|none", help="Like 42000 or 40kW; none: there is no budget.")],
    site: Annotated[bool, typer.Option("--site", help="Of all GPUs.")] = False,
    rack: Annotated[str | None, typer.Option("--rack", metavar="RACK", help="Of hosts with this label 'rack'.")] = None,
    host: Annotated[str | None, typer.Option("--host", help="Of this host.", autocompletion=hosts)] = None,
) -> None:
    """Say what GPUs of a site, a rack or a host may take together.

    GPUs that idle lend to those that work. A host's budget lies within its rack's, and a rack's within the site's.
    """
    named = [("site", "")] * site + [(scope, name) for scope, name in (("rack", rack), ("host", host)) if name]
    if len(named) != 1:
        raise InvalidInput(
            "power.scope_unclear",
            "a budget is of the site, of one rack or of one host",
            hint=f"'vgpuctl power budget {watts} --site', or '--rack RACK' or '--host HOST' in its place",
        )
    session = session_of(ctx)
    answer = session.client.set_power_budget(*named[0], parse_watts(watts, "none"))
    show(answer, session.format, lambda: _lines(answer))


@app.command("cap")
def cap(
    ctx: typer.Context,
    host: Host,
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="PCI address.")],
    watts: Annotated[str, typer.Argument(metavar="WATTS|default", help="The most that it may take, like 500.")],
) -> None:
    """Say what one GPU may take, also while VMs run on it.

    It keeps to that within seconds and after each boot of its host, until 'default' gives it its own limit again.
    """
    session = session_of(ctx)
    wanted = parse_watts(watts, "default")
    answer = session.client.cap_gpu(host, parse_pci_address(address), wanted)
    says = "its own limit" if wanted is None else _watts(wanted)
    show(answer, session.format, lambda: [f"GPU {shown(address)} of {host} keeps to {says} within seconds"])


def _lines(answer: Mapping[str, Any]) -> list[str]:
    lines = render_table(answer["budgets"], BUDGET_COLUMNS, width())
    if answer["gpus"]:
        lines += ["", *render_table(answer["gpus"], CAP_COLUMNS, width())]
    return lines
