# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl network driver …``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from orchestrator.cli.ages import show_time
from orchestrator.cli.files import read_text
from orchestrator.cli.output import render_details, show, shown
from orchestrator.cli.parameters import Sort
from orchestrator.cli.session import format_of, session_of
from orchestrator.cli.table import Fit, Listing, field, show_rows
from orchestrator.cli.tree import new_group
from orchestrator.client.connection import Json
from orchestrator.core.ovn import CertificateFor

app = new_group("What makes networks: NAT of each host, and OVN over all of them.")

DIFFERENT: Final = 3
"""Exit code of ``check`` when something is not as it should be."""
MAX_REQUEST_BYTES: Final = 8192
TROUBLES: Final = (
    field("WHAT", "subject", Fit.WHOLE),
    field("CODE", "code", Fit.WHOLE),
    field("WHY", "message", Fit.WRAP),
    field("REMEDY", "remedy", Fit.WRAP),
)


@app.command("show")
def show_driver(ctx: typer.Context) -> None:
    """Show which engine makes networks, and how it is (operators)."""
    driver = session_of(ctx).client.network_driver()
    show(driver, format_of(ctx), lambda: _details(driver))


def _details(driver: Json) -> list[str]:
    if driver["engine"] == "nat":
        return render_details([("engine", "NAT of each host alone; OVN is not set up")])
    pairs = [
        ("engine", f"OVN {shown(driver['version'] or 'of an unknown version')}, beside NAT of each host"),
        ("switches and routers", f"{driver['ours']} ours, {driver['foreign']} foreign"),
        ("frames go over", shown(driver["encapsulation_network"] or "any network of hosts")),
        *((shown(member["database"]), _member(member)) for member in driver["members"]),
        *((f"host {shown(chassis['name'])}", _chassis(chassis)) for chassis in driver["chassis"]),
        *(("trouble", f"{shown(each['subject'])}: {shown(each['message'])}") for each in driver["troubles"]),
    ]
    return render_details(pairs)


def _member(member: Json) -> str:
    if member["error"] is not None:
        return f"{shown(member['address'])}: {shown(member['error'])}"
    role = "alone" if not member["clustered"] else "leads" if member["leader"] else "follows"
    ends, index = member["certificate_ends_at"], member["log_index"]
    parts = [role, f"answered in {member['answered_ms']:g} ms"]
    parts += [] if index is None else [f"log entry {index}"]
    parts += [] if ends is None else [f"certificate until {show_time(ends)}"]
    return f"{shown(member['address'])}: {', '.join(parts)}"


def _chassis(chassis: Json) -> str:
    behind = f", {chassis['behind']} changes behind" if chassis["behind"] else ""
    leads = f", leads to {', '.join(map(shown, chassis['mappings']))}" if chassis["mappings"] else ""
    gateway = ", a gateway" if chassis["gateway"] else ""
    return f"{shown(', '.join(chassis['encapsulations']))}{leads}{gateway}{behind}"


@app.command("check")
def check(ctx: typer.Context, sort: Sort = None) -> None:
    """Show what is not as it should be there. Exit code 3 when there is anything."""
    driver = session_of(ctx).client.network_driver()
    troubles = driver["troubles"]
    none = "OVN is not set up: nothing to check" if driver["engine"] == "nat" else "all is as it should be"
    show_rows(driver, troubles, Listing(columns=TROUBLES, none=none, output=format_of(ctx), sort=sort))
    raise typer.Exit(DIFFERENT if troubles else 0)


@app.command("sign")
def sign(
    ctx: typer.Context,
    request: Annotated[Path, typer.Argument(help="Request of the key (PKCS #10, PEM).")],
    name: Annotated[str, typer.Option("--name", help="The host as it is called here, or the central server.")],
    whose: Annotated[CertificateFor, typer.Option("--for", help="Which of them it is.")] = "host",
) -> None:
    """Sign a certificate for OVN on a host or a central server (admins)."""
    text = read_text(request, what="request", max_bytes=MAX_REQUEST_BYTES)
    wanted: dict[str, Any] = {"whose": whose, "name": name, "request": text}
    signed = session_of(ctx).client.sign_ovn_certificate(wanted)
    show(signed, format_of(ctx), lambda: [str(signed["certificate"]).rstrip("\n")])
