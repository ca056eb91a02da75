# SPDX-License-Identifier: Apache-2.0
"""Starting, stopping, deleting, renaming and labelling VMs, most of it several at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from orchestrator.cli import guest_access
from orchestrator.cli.commands.vm_views import details
from orchestrator.cli.confirm import Yes, confirm
from orchestrator.cli.output import show
from orchestrator.cli.parameters import Label, Name, Names, Selector, Tenant, Unlabel, Wait, vm_name
from orchestrator.cli.picking import picked
from orchestrator.cli.progress import follow
from orchestrator.cli.session import CliSession, format_of, session_of
from orchestrator.cli.vm_outcome import Outcome, change_each, each, finish, started_lines
from orchestrator.client.connection import Json
from orchestrator.core.errors import InvalidInput
from orchestrator.core.labels import parse_changes

Force = Annotated[bool, typer.Option("--force", help="Power off at once, without asking the guest.")]


def picked_vms(
    session: CliSession, names: Sequence[str] | None, selector: str | None, tenant: str, *, question: str, yes: bool
) -> list[str]:
    """As :func:`picked`, of the tenant's VMs."""
    return picked(
        names, selector, lambda chosen: session.client.vms(tenant, selector=chosen), question=question, yes=yes
    )


def delete(
    ctx: typer.Context,
    names: Names = None,
    selector: Selector = None,
    tenant: Tenant = "default",
    gpu_was_bad: Annotated[
        str | None, typer.Option("--gpu-was-bad", metavar="TEXT", help="Tell who runs the pool what its GPU did wrong.")
    ] = None,
    yes: Yes = False,
    wait: Wait = True,
) -> None:
    """Delete VMs and give back everything they had."""
    session = session_of(ctx)

    def begin(name: str) -> Json:
        vm = session.client.vm(name, tenant)
        started = session.client.delete_vm(name, tenant, gpu_was_bad)
        guest_access.forget(session.state, vm["id"])
        return started

    def end(name: str, started: Json) -> Outcome:
        if started["operation"] is None or not wait:
            return started, started_lines(started)
        return follow(session, started["operation"]), [f"{name} is deleted"]

    picked = picked_vms(session, names, selector, tenant, question="delete VMs", yes=yes)
    if picked == names:
        if len(names) == 1:
            session.client.vm(names[0], tenant)
        confirm("delete VM" if len(names) == 1 else "delete VMs", names, yes=yes)
    each(session, picked, begin, end, wait=wait)


def start_vm(
    ctx: typer.Context,
    names: Names = None,
    selector: Selector = None,
    tenant: Tenant = "default",
    yes: Yes = False,
    wait: Wait = True,
) -> None:
    """Start stopped VMs; their vGPUs are made again."""
    session = session_of(ctx)
    picked = picked_vms(session, names, selector, tenant, question="start VMs", yes=yes)
    change_each(session, picked, lambda name: session.client.start_vm(name, tenant), tenant, wait=wait)


def stop_vm(
    ctx: typer.Context,
    names: Names = None,
    selector: Selector = None,
    tenant: Tenant = "default",
    force: Force = False,
    yes: Yes = False,
    wait: Wait = True,
) -> None:
    """Stop VMs; their places on GPUs stay reserved."""
    session = session_of(ctx)
    picked = picked_vms(session, names, selector, tenant, question="stop VMs", yes=yes)
    change_each(session, picked, lambda name: session.client.stop_vm(name, tenant, force=force), tenant, wait=wait)


def restart_vm(
    ctx: typer.Context,
    names: Names = None,
    selector: Selector = None,
    tenant: Tenant = "default",
    force: Force = False,
    yes: Yes = False,
    wait: Wait = True,
) -> None:
    """Shut VMs down and start them again, where they are."""
    session = session_of(ctx)
    picked = picked_vms(session, names, selector, tenant, question="restart VMs", yes=yes)
    change_each(session, picked, lambda name: session.client.restart_vm(name, tenant, force=force), tenant, wait=wait)


def suspend_vm(
    ctx: typer.Context,
    names: Names = None,
    selector: Selector = None,
    tenant: Tenant = "default",
    yes: Yes = False,
    wait: Wait = True,
) -> None:
    """Put VMs' memory on disk; their places stay reserved."""
    session = session_of(ctx)
    picked = picked_vms(session, names, selector, tenant, question="suspend VMs", yes=yes)
    change_each(session, picked, lambda name: session.client.suspend_vm(name, tenant), tenant, wait=wait)


def resume_vm(
    ctx: typer.Context,
    names: Names = None,
    selector: Selector = None,
    tenant: Tenant = "default",
    yes: Yes = False,
    wait: Wait = True,
) -> None:
    """Let suspended VMs go on where they were."""
    session = session_of(ctx)
    picked = picked_vms(session, names, selector, tenant, question="resume VMs", yes=yes)
    change_each(session, picked, lambda name: session.client.resume_vm(name, tenant), tenant, wait=wait)


def discard_suspended_vm(
    ctx: typer.Context, name: Name, tenant: Tenant = "default", yes: Yes = False, wait: Wait = True
) -> None:
    """Discard what a suspended VM had in memory."""
    session = session_of(ctx)
    vm = session.client.vm(name, tenant)
    if vm["suspended_bytes"] is not None:
        confirm("discard the memory of VM", [name], yes=yes)
    finish(session, session.client.discard_suspended_vm(name, tenant), tenant, wait=wait)


def rename_vm(
    ctx: typer.Context,
    name: Name,
    new: Annotated[str, typer.Argument(help="The name that it gets.", callback=vm_name)],
    tenant: Tenant = "default",
    wait: Wait = True,
) -> None:
    """Give a stopped VM another name. Its guest keeps the host name that it has."""
    session = session_of(ctx)
    finish(session, session.client.rename_vm(name, tenant, new), tenant, wait=wait)


def set_vm(
    ctx: typer.Context,
    name: Name,
    label: Label = None,
    unlabel: Unlabel = None,
    protect: Annotated[
        bool | None, typer.Option("--protect/--no-protect", help="Whether it is refused to delete it.")
    ] = None,
    tenant: Tenant = "default",
) -> None:
    """Set a VM's labels, and whether it may be deleted."""
    labels = parse_changes(label or (), unlabel or ())
    values: dict[str, object] = {"labels": labels} if labels else {}
    values |= {} if protect is None else {"protected": protect}
    if not values:
        raise InvalidInput("cli.nothing_to_set", "nothing is to be set", hint="give --label, --unlabel or --protect")
    vm = session_of(ctx).client.change_vm(name, tenant, values)
    show(vm, format_of(ctx), lambda: details(vm))
