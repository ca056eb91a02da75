# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl vm provision``"""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.guest_results import guest_lines
from orchestrator.cli.output import show
from orchestrator.cli.parameters import Name, Tenant, Wait
from orchestrator.cli.progress import follow
from orchestrator.cli.session import CliSession, Format, Output, session_of
from orchestrator.cli.vm_outcome import started_lines
from orchestrator.client.connection import Json
from orchestrator.core.errors import InvalidInput
from orchestrator.core.guest_roles import ROLES, check_roles


def _roles(names: list[str]) -> list[str]:
    return list(check_roles(names))


def checked(names: list[str] | None, *, waits: bool) -> tuple[str, ...]:
    """Roles that are to be run once a VM is made; none, when none were given.

    :raises InvalidInput: ``guest.role_unknown``, ``cli.usage``
    """
    if not names:
        return ()
    if not waits:
        hint = "leave --no-wait and --no-start out, or run 'vgpuctl vm provision' when the VM runs"
        raise InvalidInput("cli.usage", "--provision waits until the VM runs", hint=hint)
    return check_roles(names)


def begun_after(session: CliSession, started: Json, tenant: str, roles: tuple[str, ...]) -> Json:
    """Wait for the VM that ``started`` makes, then begin to run roles in its guest."""
    if started["operation"] is not None:
        follow(session, started["operation"], joined=started["existing"])
    begun = session.client.provision_vm(started["name"], tenant, {"roles": list(roles)})
    return {**begun, "preempted": started["preempted"]}


def provision(
    ctx: typer.Context,
    name: Name,
    roles: Annotated[
        list[str],
        typer.Argument(
            metavar="ROLE...",
            help=f"Roles: {', '.join(ROLES)}.",
            callback=_roles,
            autocompletion=lambda: list(ROLES),
        ),
    ],
    tenant: Tenant = "default",
    new_host_key: Annotated[
        bool, typer.Option("--new-host-key", help="Its SSH host key was changed on purpose: take the new one.")
    ] = False,
    wait: Wait = True,
    output: Output = Format.TABLE,
) -> None:
    """Run roles in a VM's guest; a second time changes nothing. What came of it stays with the VM."""
    session = session_of(ctx)
    started = session.client.provision_vm(name, tenant, {"roles": roles, "new_host_key": new_host_key})
    if not wait or started["operation"] is None:
        show(started, output, lambda: started_lines(started))
        return
    follow(session, started["operation"])
    found = session.client.provisioned(name, tenant)
    show(found, output, lambda: guest_lines(found))
