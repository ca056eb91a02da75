# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl serve`` and ``vgpuctl server …``"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from orchestrator.cli.ages import show_span, show_time
from orchestrator.cli.confirm import Yes, confirm
from orchestrator.cli.files import write_new
from orchestrator.cli.output import render_details, show, shown
from orchestrator.cli.parameters import Tenant
from orchestrator.cli.restored import chosen, items_of, remove, take_over
from orchestrator.cli.session import Format, format_of, session_of
from orchestrator.cli.table import Column, Fit, field, show_list
from orchestrator.cli.tree import new_group
from orchestrator.client.autostart import connect_running, server_info, stop
from orchestrator.client.connection import Json
from orchestrator.client.file_lock import lock_for_next_program
from orchestrator.client.location import SERVE_LOCK_NAME
from orchestrator.client.program import need_extra, own_program
from orchestrator.core.errors import InvalidInput, VgpuctlError

app = new_group("The local server that commands start when they need it.")


def serve(
    ctx: typer.Context,
    listen: Annotated[
        str | None, typer.Option("--listen", metavar="HOST:PORT", help="Answer there too, over TLS alone.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", help="PEM file of the server's certificate.")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="PEM file of its key.")] = None,
    socket_directory: Annotated[
        Path | None, typer.Option("--socket-directory", help="Where users of a group find a socket of their own.")
    ] = None,
    socket_group: Annotated[str | None, typer.Option("--socket-group", help="Name or number of that group.")] = None,
    fleet: Annotated[
        Path | None, typer.Option("--simulate", metavar="FLEET", help="Serve the hosts of this file, simulated.")
    ] = None,
) -> None:
    """Run the server here, in the foreground, until Ctrl-C."""
    lock = _hold(session_of(ctx).local_state)
    given = {
        "--listen": listen, "--tls-cert": tls_cert, "--tls-key": tls_key, "--simulate": fleet,
        "--socket-directory": socket_directory, "--socket-group": socket_group, "--lock": lock,
    }  # fmt: skip
    words = (f"{name}={value}" for name, value in given.items() if value is not None)
    _become(ctx, "orchestrator.server.serve", *words)


def _hold(state: Path) -> int | None:
    """At once: a command that is typed while the server starts waits for it, and starts none of its own. None: the
    server says why it cannot be held."""
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        return lock_for_next_program(state / SERVE_LOCK_NAME)
    except OSError:
        return None


def _become(ctx: typer.Context, module: str, *words: str) -> None:
    program, environment = _program(ctx, module, *words)
    os.execve(program[0], program, environment)


def _run(ctx: typer.Context, module: str, *words: str) -> Json:
    """What it printed as data; of a refusal, which it has printed, its exit code is ours."""
    program, environment = _program(ctx, module, *words)
    done = subprocess.run(program, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise typer.Exit(done.returncode)
    answer: Json = json.loads(done.stdout)
    return answer


def _program(ctx: typer.Context, module: str, *words: str) -> tuple[list[str], dict[str, str]]:
    need_extra("server")
    return own_program(module, *words), {**os.environ, "VGPUCTL_STATE": str(session_of(ctx).local_state)}


@app.command("status")
def status(ctx: typer.Context) -> None:
    """Show the running server; starts none."""
    state = session_of(ctx).local_state
    connection = connect_running(state)
    if connection is None:
        show({"running": False, "state": str(state)}, format_of(ctx), lambda: [f"no server runs in {state}"])
        return
    info = {"running": True, "state": str(state), **server_info(connection)}
    show(
        info,
        format_of(ctx),
        lambda: render_details(
            [
                ("state directory", str(state)),
                ("pid", shown(info["pid"])),
                ("version", shown(info["version"])),
                ("since", show_time(info["started_at"])),
                ("running operations", shown(info["running_operations"])),
                ("ends when idle for", _idle(info["stops_after_idle_seconds"])),
                *_certificate(info),
                *(("warning", warning) for warning in info.get("warnings", ())),
            ]
        ),
    )


def _certificate(info: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A server of another version may say nothing of it."""
    lines = [("certificate ends", show_time(info["certificate_ends_at"]))] if info.get("certificate_ends_at") else []
    refused = info.get("certificate_refused")
    return [*lines, ("its file holds none", shown(refused))] if refused else lines


def _idle(seconds: object) -> str:
    return show_span(seconds) if isinstance(seconds, float | int) else "-"


@app.command("make-cert")
def make_cert(
    ctx: typer.Context,
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="What clients connect to: names, addresses.")],
    directory: Annotated[Path, typer.Option("--directory", help="Where server.pem and server.key go.")] = Path(),
    ca_cert: Annotated[Path | None, typer.Option("--ca-cert", help="PEM file of the authority that signs.")] = None,
    ca_key: Annotated[Path | None, typer.Option("--ca-key", help="PEM file of its key.")] = None,
    days: Annotated[int, typer.Option("--days", min=1, max=3650, help="How long it is good.")] = 365,
) -> None:
    """Make a certificate and its key for the server.

    It signs itself, or the site's own authority does. Files that are there are not replaced."""
    need_extra("server")
    from orchestrator.server.new_certificate import MAX_NAMES, new_certificate, read_authority

    if (ca_cert is None) != (ca_key is None):
        raise InvalidInput("cli.usage", "an authority has a certificate and a key", hint="give --ca-cert and --ca-key")
    if len(names) > MAX_NAMES:
        raise InvalidInput("cli.usage", f"more than {MAX_NAMES} names", hint="leave some out")
    at = datetime.now(UTC).replace(microsecond=0)
    authority = None if ca_cert is None or ca_key is None else read_authority(ca_cert, ca_key, at)
    made = new_certificate(names, timedelta(days=days), at, authority)
    certificate, key = directory.absolute() / "server.pem", directory.absolute() / "server.key"
    write_new({key: (made.key, 0o600), certificate: (made.chain, 0o644)}, what="certificate")
    trusted = certificate if ca_cert is None else ca_cert.absolute()
    files = {"certificate": str(certificate), "key": str(key), "trusted": str(trusted), "names": names,
            "ends_at": made.ends_at.isoformat(), "sha256": made.sha256}  # fmt: skip
    show(files, format_of(ctx), lambda: _made(files))


def _made(made: Mapping[str, Any]) -> list[str]:
    names, trusted = made["names"], made["trusted"]
    name = next((name for name in names if "*" not in name), names[0])
    host = f"[{name}]" if ":" in name else name
    return [
        *render_details([("for", ", ".join(names)), ("ends", show_time(made["ends_at"])), ("sha256", made["sha256"])]),
        "",
        "# config.yaml of the server; the key must be readable by the account it runs as",
        "listen: 0.0.0.0:8443",
        f"tls_cert: {made['certificate']}",
        f"tls_key: {made['key']}",
        "",
        f"# each client trusts it by a copy of {trusted}, which is no secret",
        f"vgpuctl context add pool --url https://{host}:8443 --ca-file {Path(trusted).name} --token-file pool.token",
    ]


@app.command("stop")
def stop_server(ctx: typer.Context) -> None:
    """Stop the server. Running operations are taken up by the next one."""
    state = session_of(ctx).local_state
    connection = connect_running(state)
    if connection is not None:
        stop(connection, state, only_idle=False)
    was = connection is not None
    show({"stopped": was}, format_of(ctx), lambda: ["the server has stopped" if was else f"no server runs in {state}"])


@app.command("backup")
def backup(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="A new file; it will hold keys.")],
    recipient: Annotated[
        list[str] | None,
        typer.Option("--recipient", metavar="AGE1…", help="For this key of age alone. Repeatable."),
    ] = None,
) -> None:
    """Copy database and keys into one file. The server may run. Images are not in it."""
    _become(ctx, "orchestrator.server.backup", "backup", str(file), *(f"--recipient={key}" for key in recipient or ()))


@app.command("restore")
def restore(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="What 'server backup' wrote.")],
    identity: Annotated[
        Path | None, typer.Option("--identity", help="File with the secret key of age it was encrypted for.")
    ] = None,
) -> None:
    """Make an empty state directory from a backup. Nothing is done on any host; what had not ended is stuck."""
    with_key = [] if identity is None else [f"--identity={identity}"]
    _become(ctx, "orchestrator.server.backup", "restore", str(file), *with_key)


@app.command("rotate-key")
def rotate_key(
    ctx: typer.Context,
    others_stopped: Annotated[
        bool, typer.Option("--others-stopped", help="No other server of a shared database runs.")
    ] = False,
) -> None:
    """Draw a new key for the secrets in the database.

    They are encrypted with it, and the old key is of no use any more. No server may run meanwhile."""
    _become(ctx, "orchestrator.server.rotate_key", *(["--others-stopped"] if others_stopped else []))


@app.command("invite")
def invite(
    ctx: typer.Context,
    lifetime: Annotated[str, typer.Option("--for", help="How long the token is good; it is good once.")] = "15m",
) -> None:
    """Make a token that lets one more controller join.

    It is for this server's database. Run it beside a server that listens on the network."""
    _become(ctx, "orchestrator.server.join", "invite", lifetime)


@app.command("join")
def join(ctx: typer.Context) -> None:
    """Make this state directory that of one more controller.

    The site's key is fetched from the one that invited it. The token is read from standard input."""
    _become(ctx, "orchestrator.server.join", "join")


_ITEMS: Final = (
    Column("ITEM", lambda one: one["id"], Fit.WHOLE),
    field("HOST", "host", Fit.WHOLE),
    field("WHAT", "what", Fit.WRAP),
    field("SETTLED BY", "ways"),
    field("DONE", "done"),
)


@app.command("settle-restored")
def settle_restored(
    ctx: typer.Context,
    take: Annotated[
        list[str] | None,
        typer.Option("--take-over", metavar="ITEM|all", help="Into the database as its host shows it. Repeatable."),
    ] = None,
    away: Annotated[
        list[str] | None, typer.Option("--remove", metavar="ITEM", help="Remove it from its host. Repeatable.")
    ] = None,
    tenant: Tenant = "default",
    yes: Yes = False,
) -> None:
    """Let hosts obey a restored database; settle what is newer.

    While no server runs: what had not ended is stuck, and servers take the database again. While one runs: list what
    hosts have that the database does not know, and what became of its operations; nothing changes without an option.
    """
    session = session_of(ctx)
    if not (take or away) and connect_running(session.local_state) is None:
        if session.format in {Format.TABLE, Format.WIDE}:
            _become(ctx, "orchestrator.server.backup", "settle-restored")
        settled = _run(ctx, "orchestrator.server.backup", "settle-restored", f"--output={session.format}")
        show({"name": settled["state"], **settled}, session.format, list)
        return
    client = session.client
    items = items_of(client)
    taken, removed = chosen(items, take or (), way="take over"), chosen(items, away or (), way="remove")
    if removed:
        confirm("remove for good", [item.what for item in removed], yes=yes)
    done = {item.id: _settled(partial(take_over, client, item, tenant)) for item in taken}
    done |= {item.id: _settled(partial(remove, client, item)) for item in removed}
    rows = [{**asdict(item), "ways": item.ways, "done": done.get(item.id, "")} for item in items]
    show_list(rows, _ITEMS, session.format, "nothing on the hosts is newer than the database", None)


def _settled(act: Callable[[], str]) -> str:
    """One that cannot be settled keeps no other."""
    try:
        return act()
    except VgpuctlError as error:
        return f"{error.message} [{error.code}]"
