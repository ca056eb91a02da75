# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl console``, ``vgpuctl vnc``, ``vgpuctl ssh`` and the proxy behind it."""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from orchestrator.cli import guest_access
from orchestrator.cli.parameters import Name, Tenant
from orchestrator.cli.session import session_of
from orchestrator.core.errors import Conflict, Fatal, InvalidInput

GUEST_TIMEOUT_S: Final = 30.0
"""How long ssh waits for a guest that has an address but no ssh server yet."""


def console(
    ctx: typer.Context,
    name: Name,
    tenant: Tenant = "default",
    log: Annotated[bool, typer.Option("--log", help="Print what it wrote last, also of a VM that is stopped.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="With --log: every byte as the guest wrote it.")] = False,
) -> None:
    """Open the serial console. Ctrl-] leaves it. With --log: print what it wrote."""
    if raw and not log:
        raise InvalidInput("cli.usage", "--raw is for --log", hint="an open console passes every byte on anyway")
    if log:
        _print_log(session_of(ctx).client.console_log(name, tenant), name, raw=raw)
        return
    from orchestrator.cli.guest_stream import LEAVE, join_standard_streams, open_stream, raw_terminal
    from orchestrator.cli.output import somebody_types

    session = session_of(ctx)
    session.client.vm(name, tenant)
    with open_stream(session, name, "console", tenant=tenant) as stream:
        typed = somebody_types()
        print(f"console of {name}; {'Ctrl-]' if typed else 'the end of the input'} leaves", file=sys.stderr)
        ended = False
        try:
            with raw_terminal():
                ended = join_standard_streams(stream, leave=LEAVE if typed else None)
        finally:
            print(f"\nthe console of {name} has ended: is it running?" if ended else "", file=sys.stderr)


def _print_log(content: bytes, name: str, *, raw: bool) -> None:
    if not content:
        print(f"nothing that {name} printed was kept; from its next start on it is", file=sys.stderr)
    elif raw:
        sys.stdout.buffer.write(content)
    else:
        from orchestrator.cli.output import guest_lines

        print("\n".join(guest_lines(content)))


def vnc(
    ctx: typer.Context,
    name: Name,
    tenant: Tenant = "default",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port of this machine's loopback; 0: a free one.")
    ] = 0,
) -> None:
    """Open the screen for a VNC viewer, at a local port. Ctrl-C ends it."""
    from orchestrator.cli.guest_stream import LOOPBACK, accept_own, join_viewer, listen, open_stream

    session = session_of(ctx)
    session.client.vm(name, tenant)
    try:
        with listen(port) as listener:
            while True:
                with open_stream(session, name, "display", tenant=tenant) as stream:
                    print(f"vncviewer {LOOPBACK}::{listener.getsockname()[1]}", flush=True)
                    if join_viewer(accept_own(listener), stream):
                        print(f"the display of {name} has ended: is it running?", file=sys.stderr)
                        return
    except KeyboardInterrupt:
        print(f"\nthe display of {name} is closed", file=sys.stderr)


def proxy(
    ctx: typer.Context,
    name: Name,
    tenant: Tenant = "default",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="TCP port of the guest.")] = 22,
) -> None:
    """Carry stdin and stdout to a TCP port of a VM. For ssh's ProxyCommand."""
    from orchestrator.cli.guest_stream import join_standard_streams, open_stream

    session = session_of(ctx)
    session.client.vm(name, tenant)
    with open_stream(session, name, "tcp", str(port), tenant=tenant, timeout_s=GUEST_TIMEOUT_S) as stream:
        join_standard_streams(stream, leave=None)


def ssh(
    ctx: typer.Context,
    name: Name,
    command: Annotated[list[str] | None, typer.Argument(help="Command to run in the guest, after --.")] = None,
    tenant: Tenant = "default",
    user: Annotated[str, typer.Option("--user", "-l", help="Whom to log in as.")] = "root",
) -> None:
    """Log in to a VM through its host."""
    session = session_of(ctx)
    vm = session.client.vm(name, tenant)
    if vm["state"] != "running":
        raise Conflict("vm.not_running", f"{name} is {vm['state']}", hint=f"run 'vgpuctl start-vm {name}'")
    arguments = guest_access.ssh_arguments(session.state, vm["id"], name, tenant, user)
    try:
        guest_access.become([*arguments, *(command or ())], session.variables())
    except FileNotFoundError as error:
        raise Fatal("ssh.missing", "there is no ssh on this machine", hint="install the OpenSSH client") from error
