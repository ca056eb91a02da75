# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl network attach``, ``detach`` and ``convert``"""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.complete import networks, vms
from orchestrator.cli.confirm import Yes, confirm
from orchestrator.cli.output import show, shown
from orchestrator.cli.parameters import Tenant, Wait, vm_name
from orchestrator.cli.progress import follow
from orchestrator.cli.session import session_of
from orchestrator.cli.vm_outcome import finish
from orchestrator.core.names import check_name

Network = Annotated[
    str,
    typer.Argument(
        help="Name of the network.", autocompletion=networks, callback=lambda text: check_name(text, what="network")
    ),
]
OfVm = Annotated[
    str, typer.Argument(metavar="VM", help="Name of the VM, or TENANT/NAME.", autocompletion=vms, callback=vm_name)
]


def attach(
    ctx: typer.Context,
    name: Network,
    vm: OfVm,
    address: Annotated[str | None, typer.Option("--ip", help="Its address, on a network of kind ovn.")] = None,
    tenant: Tenant = "default",
    wait: Wait = True,
) -> None:
    """Give a VM, which may run, one more network card, on that network."""
    session = session_of(ctx)
    finish(session, session.client.attach_network(name, vm, tenant, address), tenant, wait=wait)


def detach(ctx: typer.Context, name: Network, vm: OfVm, tenant: Tenant = "default", wait: Wait = True) -> None:
    """Take a VM, which may run, its last network card, on that network."""
    session = session_of(ctx)
    finish(session, session.client.detach_network(name, vm, tenant), tenant, wait=wait)


def convert(
    ctx: typer.Context,
    name: Network,
    tenant: Tenant = "default",
    out: Annotated[
        str | None, typer.Option("--out", help="Provider network that leads out of it then.", autocompletion=networks)
    ] = None,
    yes: Yes = False,
    wait: Wait = True,
) -> None:
    """Make a NAT network of stopped VMs one over all hosts (kind ovn).

    Its range and its VMs' addresses stay. What leads out by its hosts does no more.
    """
    session = session_of(ctx)
    confirm("convert network", [name], yes=yes)
    begun = session.client.convert_network(name, tenant, out)
    done = follow(session, begun["operation"]) if wait and begun["operation"] else begun
    words = f"network {name} is of kind ovn" if wait or not begun["operation"] else f"operation {begun['operation']}"
    show(done, session.format, lambda: [shown(words)], name=name)
