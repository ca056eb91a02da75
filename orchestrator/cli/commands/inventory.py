# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl inventory``"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from orchestrator.cli import guest_access
from orchestrator.cli.output import show
from orchestrator.cli.session import CliSession, Format, session_of
from orchestrator.client.connection import Json
from orchestrator.core.errors import Denied
from orchestrator.core.hosts.host import check_user


def inventory(
    ctx: typer.Context,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only this tenant's VMs.")] = None,
    user: Annotated[str, typer.Option("--user", "-l", help="SSH user of VMs for Ansible.")] = "root",
) -> None:
    """Print hosts and VMs as an inventory for Ansible."""
    from orchestrator.cli.inventory.writing import ansible_inventory

    session = session_of(ctx)
    check_user(user)
    inventory_json = ansible_inventory(
        site="here" if session.context is None else session.context.name,
        hosts=_hosts(session),
        vms=session.client.vms(tenant),
        gpu_map=session.client.gpu_map(tenant),
        reach=lambda vm: _reach(session, vm, user),
    )
    show(inventory_json, Format.JSON, list)


def _hosts(session: CliSession) -> Sequence[Json]:
    """None for those who may only know of their tenant."""
    try:
        return session.client.hosts()
    except Denied:
        return []


def _reach(session: CliSession, vm: Json, user: str) -> dict[str, Any]:
    """As ``vgpuctl ssh`` comes to it: through the server and the VM's host."""
    name, tenant = vm["name"], vm["tenant"]
    options = guest_access.ssh_options(session.state, vm["id"], name, tenant, session.variables())
    return {
        "ansible_host": guest_access.guest_name(name, tenant),
        "ansible_user": user,
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_ssh_common_args": shlex.join(options),
    }
