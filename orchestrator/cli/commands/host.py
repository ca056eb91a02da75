# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl host …``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from orchestrator.cli import enrolment
from orchestrator.cli.commands import host_several, maintenance
from orchestrator.cli.commands.host_import import import_hosts
from orchestrator.cli.commands.host_several import provision
from orchestrator.cli.commands.host_views import Name, ended, host_name, list_hosts, show_host
from orchestrator.cli.complete import hosts
from orchestrator.cli.confirm import Yes, confirm
from orchestrator.cli.output import show, shown
from orchestrator.cli.parameters import Wait
from orchestrator.cli.progress import follow
from orchestrator.cli.session import CliSession, format_of, session_of
from orchestrator.cli.table import Fit, Listing, field, show_rows
from orchestrator.cli.tree import new_group
from orchestrator.client.connection import Json
from orchestrator.core.errors import InvalidInput
from orchestrator.core.hosts.host import check_address, check_gpus, check_user
from orchestrator.core.names import check_name

NOT_READY: Final = 3
"""Exit code when something is missing."""
COLUMNS: Final = (
    field("WHAT", "name", Fit.WHOLE),
    field("STATE", "state", Fit.WHOLE),
    field("FOUND", "found", Fit.WRAP),
    field("REMEDY", "remedy", Fit.WRAP),
)

Port = Annotated[int, typer.Option("--port", min=1, max=65535, help="Port of its ssh server.")]
Fingerprint = Annotated[
    str | None, typer.Option("--host-key-fingerprint", help="SHA256:… of the host's key, known from elsewhere.")
]
AcceptKey = Annotated[bool, typer.Option("--yes", "-y", help="Accept the host key that answers now.")]


def check(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Name of a host that is added.", autocompletion=hosts)] = None,
    address: Annotated[str | None, typer.Option("--address", help="Or the address of one that is not.")] = None,
    port: Port = 22,
    user: Annotated[str, typer.Option("--user", help="SSH user for Ansible.")] = "root",
    provisioning_key: Annotated[
        Path | None, typer.Option("--provisioning-key", help="Private key; your own ssh key when left out.")
    ] = None,
    fingerprint: Fingerprint = None,
    yes: AcceptKey = False,
) -> None:
    """List what a host lacks and what would mend it. Exit code 3 when something is missing. Changes nothing."""
    session = session_of(ctx)
    if (name is None) == (address is None):
        raise InvalidInput("cli.usage", "give a host's name or --address", hint="run 'vgpuctl host check --help'")
    answer: Json
    if address is None:
        answer = session.client.check_host(check_name(name or "", what="host"))
    else:
        answer = _check_new(session, address, port, user, provisioning_key, fingerprint, yes=yes)
    missing = sum(requirement["state"] == "missing" for requirement in answer["requirements"])
    summary = f"{missing} missing" if missing else "nothing is missing"
    listing = Listing(columns=COLUMNS, none="nothing is asked of it", output=session.format, said=[summary])
    show_rows(answer, answer["requirements"], listing)
    raise typer.Exit(NOT_READY if missing else 0)


def _check_new(
    session: CliSession, address: str, port: int, user: str, key: Path | None, fingerprint: str | None, *, yes: bool
) -> Json:
    wanted: dict[str, object] = {
        "address": check_address(address),
        "port": port,
        "user": check_user(user),
        "provisioning_key": enrolment.private_key(key),
    }
    wanted["fingerprint"] = fingerprint or enrolment.confirmed_fingerprint(session, address, port, yes=yes)
    return session.client.check_new_host(wanted)


app = new_group("Add GPU hosts, look at them, give them back.")


NewName = Annotated[str, typer.Argument(help="Name of the new host.", callback=host_name)]
Address = Annotated[str, typer.Option("--address", help="IP address or DNS name.")]


@app.command("scan")
def scan(
    ctx: typer.Context, address: Annotated[str, typer.Argument(help="IP address or DNS name.")], port: Port = 22
) -> None:  # fmt: skip
    """Show the SSH host key that answers at an address."""
    key = session_of(ctx).client.scan_host(check_address(address), port)
    show(key, format_of(ctx), lambda: [f"{shown(key['type'])} {shown(key['fingerprint'])}"])


@app.command("add")
def add(
    ctx: typer.Context,
    name: NewName,
    address: Address,
    port: Port = 22,
    user: Annotated[str, typer.Option("--user", help="SSH user for Ansible; needs sudo when not root.")] = "root",
    provisioning_key: Annotated[
        Path | None, typer.Option("--provisioning-key", help="Private key for Ansible; your own ssh key when left out.")
    ] = None,
    fingerprint: Fingerprint = None,
    gpus: Annotated[
        str, typer.Option("--gpus", help="Which GPUs we get: all, unused, or addresses with commas.")
    ] = "unused",
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Take a host that obeys another control plane.")
    ] = False,
    yes: AcceptKey = False,
    wait: Wait = True,
) -> None:
    """Enrol a host. Its key is pinned, the agent installed, its GPUs are taken."""
    session = session_of(ctx)
    wanted: dict[str, object] = {
        "name": name,
        "address": check_address(address),
        "port": port,
        "user": check_user(user),
        "gpus": check_gpus(gpus),
        "provisioning_key": enrolment.private_key(provisioning_key),
        "take_over": take_over,
    }
    wanted["fingerprint"] = fingerprint or enrolment.confirmed_fingerprint(session, address, port, yes=yes)
    _finish(session, session.client.add_host(wanted), wait=wait)


app.command("import")(import_hosts)
app.command("check")(check)


def _finish(session: CliSession, started: Json, *, wait: bool) -> None:
    data, lines = ended(session, started, wait=wait)
    show(data, session.format, lambda: lines)


app.command("list")(list_hosts)
app.command("show")(show_host)
app.command("set")(host_several.set_host)


@app.command("remove")
def remove(ctx: typer.Context, name: Name, yes: Yes = False, wait: Wait = True) -> None:
    """Give a host back as it was; refused while VMs are there."""
    confirm("give back host", [name], yes=yes)
    session = session_of(ctx)
    started = session.client.remove_host(name)
    if started["operation"] is None:
        show(started, session.format, lambda: [f"the record of {name} is gone"])
        return
    if not wait:
        show(started, session.format, lambda: [f"{name}: operation {shown(started['operation'])} started"])
        return
    operation = follow(session, started["operation"])
    show(operation, session.format, lambda: [f"{name} is given back"], name=name)


@app.command("forget")
def forget(
    ctx: typer.Context,
    name: Name,
    confirm: Annotated[
        str | None, typer.Option("--confirm", metavar="NAME", help="The host's name once more; asked for without it.")
    ] = None,
) -> None:
    """Give up a host that will never come back: its VMs are lost."""
    session = session_of(ctx)
    what = "is given up for good and its VMs are lost"
    hint = f"'vgpuctl host forget {name} --confirm {name}' does it"
    host = session.client.forget_host(name, confirm or enrolment.confirmed_name(name, what, hint))
    lost = len(host["vms"])
    show(host, session.format, lambda: [f"{shown(host['name'])} is given up; {lost} VMs are lost and can be deleted"])


app.command("upgrade-agent")(host_several.upgrade_agent)
app.command("provision")(provision)
app.command("cordon")(host_several.cordon)
app.command("drain")(maintenance.drain)
app.command("reboot")(maintenance.reboot)
app.command("evacuate")(maintenance.evacuate)
app.command("uncordon")(host_several.uncordon)
