# SPDX-License-Identifier: Apache-2.0
"""Making a VM another size."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.complete import profiles
from orchestrator.cli.output import render_details, show, shown
from orchestrator.cli.parameters import Name, Tenant, Wait
from orchestrator.cli.session import format_of, session_of
from orchestrator.cli.vm_outcome import finish
from orchestrator.core.units import MIB, show_size
from orchestrator.core.vms.vm import MAX_VCPUS, disk_bytes, memory_mib


def resize(
    ctx: typer.Context,
    name: Name,
    offering: Annotated[
        str,
        typer.Option(
            "--offering", "--profile", "-p", help="What it becomes, as create-vm has it.", autocompletion=profiles
        ),
    ],
    vcpus: Annotated[
        int | None, typer.Option("--vcpus", min=1, max=MAX_VCPUS, help="Otherwise as the offering says.")
    ] = None,
    memory: Annotated[str | None, typer.Option("--memory", help="Otherwise as the offering says, like 8GiB.")] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Shut one that runs down for it, and start it again.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, change nothing.")] = False,
    tenant: Tenant = "default",
    wait: Wait = True,
) -> None:
    """Make a VM another size, on its host or on another one."""
    session = session_of(ctx)
    wanted: dict[str, object] = {"profile": offering}
    wanted |= {"vcpus": vcpus} if vcpus is not None else {}
    wanted |= {"memory_mib": memory_mib(memory)} if memory is not None else {}
    wanted |= {"restart": True} if restart else {}
    if not dry_run:
        finish(session, session.client.resize_vm(name, tenant, wanted), tenant, wait=wait)
        return
    plan = session.client.plan_vm_resize(name, tenant, wanted)
    rows = [
        ("where", "on its host" if plan["in_place"] else "on another host"),
        ("host", shown(plan["target"] or "-")),
        ("GPUs", ", ".join(map(shown, plan["gpus"])) or "-"),
        ("why there", shown(plan["why"] or "-")),
        ("vCPUs", str(plan["vcpus"])),
        ("memory", show_size(plan["memory_mib"] * MIB)),
        ("restarts", "yes, with --restart" if plan["restarts"] else "no: it is stopped"),
    ]
    show(plan, format_of(ctx), lambda: render_details(rows), name=name)


def resize_disk(
    ctx: typer.Context,
    name: Name,
    size_after: Annotated[str, typer.Option("--size", help="How large it becomes, for example 40GiB.")],
    tenant: Tenant = "default",
    wait: Wait = True,
) -> None:
    """Make a VM's disk larger, also while it runs.

    It never shrinks. In its guest the file system follows at the next boot, or by growpart.
    """
    session, size_bytes = session_of(ctx), disk_bytes(size_after)
    started = session.client.resize_disk(name, size_bytes, tenant)
    if started["operation"] is None:
        vm = session.client.vm(name, tenant)
        show(vm, session.format, lambda: [f"the disk of {shown(name)} has {show_size(size_bytes)} already"], name=name)
        return
    finish(session, started, tenant, wait=wait)
