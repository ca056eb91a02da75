# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl network address …``"""

from __future__ import annotations

from typing import Annotated, Final

import typer

from orchestrator.cli.complete import floating_addresses, networks, vms
from orchestrator.cli.confirm import Yes, confirm
from orchestrator.cli.output import show, shown
from orchestrator.cli.parameters import AllTenants, ListTenant, Sort, Tenant, listed_tenant, vm_name
from orchestrator.cli.scope import scoped_name
from orchestrator.cli.session import format_of, session_of
from orchestrator.cli.table import Column, Fit, field, show_list
from orchestrator.cli.tree import new_group
from orchestrator.client.connection import Json

app = new_group("Floating addresses: what leads from outside to a tenant's VMs.")


def _vm(floating: Json) -> str:
    return "none" if floating["vm"] is None else shown(f"{floating['vm']} on network {floating['vm_network']}")


COLUMNS: Final = (
    field("ADDRESS", "address", Fit.WHOLE),
    field("TENANT", "tenant", spare=True),
    field("OF", "network", Fit.WHOLE),
    Column("VM", _vm, Fit.WRAP),
)

Address = Annotated[str, typer.Argument(help="The floating address.", autocompletion=floating_addresses)]
OfVm = Annotated[
    str, typer.Argument(metavar="VM", help="Name of the VM, or TENANT/NAME.", autocompletion=vms, callback=vm_name)
]


def _network_if_any(ctx: typer.Context, text: str | None) -> str | None:
    return None if text is None else scoped_name(ctx, text, "network")


def _show(ctx: typer.Context, floating: Json) -> None:
    line = f"{shown(floating['address'])} of {shown(floating['network'])}: VM {_vm(floating)}"
    show(floating, format_of(ctx), lambda: [line])


@app.command("create")
def create(
    ctx: typer.Context,
    network: Annotated[
        str | None,
        typer.Option("--network", help="Its provider network; the only one otherwise.", autocompletion=networks),
    ] = None,
    address: Annotated[str | None, typer.Option("--address", help="Which one; a free one otherwise.")] = None,
    tenant: Tenant = "default",
) -> None:
    """Create a floating address of a provider network. It leads nowhere until it is attached."""
    wanted = {"tenant": tenant, "network": network, "address": address}
    _show(ctx, session_of(ctx).client.create_floating_address(wanted))


@app.command("list")
def list_addresses(
    ctx: typer.Context, tenant: ListTenant = None, all_tenants: AllTenants = False, sort: Sort = None
) -> None:
    """List floating addresses and the VMs that they lead to."""
    only = listed_tenant(ctx, tenant, all_tenants=all_tenants)
    known = session_of(ctx).client.floating_addresses(only)
    show_list(known, COLUMNS, format_of(ctx), "no floating addresses", sort)


@app.command("attach")
def attach(
    ctx: typer.Context,
    address: Address,
    vm: OfVm,
    network: Annotated[
        str | None,
        typer.Option(
            "--network",
            help="Of the VM's card; the first that it can lead to otherwise.",
            autocompletion=networks,
            callback=_network_if_any,
        ),
    ] = None,
    tenant: Tenant = "default",
) -> None:
    """Lead a floating address to a VM, from wherever it led until now."""
    wanted = {"vm": vm, "network": network}
    _show(ctx, session_of(ctx).client.attach_floating_address(address, wanted, tenant))


@app.command("detach")
def detach(ctx: typer.Context, address: Address, tenant: Tenant = "default") -> None:
    """Lead a floating address nowhere. It stays the tenant's."""
    _show(ctx, session_of(ctx).client.detach_floating_address(address, tenant))


@app.command("delete")
def delete(ctx: typer.Context, address: Address, tenant: Tenant = "default", yes: Yes = False) -> None:
    """Delete a floating address that leads nowhere. Another tenant may get it then."""
    confirm("delete floating address", [address], yes=yes)
    session_of(ctx).client.delete_floating_address(address, tenant)
    show({"address": address, "deleted": True}, format_of(ctx), lambda: [f"{shown(address)} is deleted"])
