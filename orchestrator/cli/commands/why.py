# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl capacity`` and ``vgpuctl explain``"""

from __future__ import annotations

from typing import Annotated, Final

import typer

from orchestrator.cli.complete import profiles
from orchestrator.cli.output import show_plain, text_width
from orchestrator.cli.parameters import (
    Gpu,
    OnlyHost,
    Sort,
    Svg,
    Tenant,
    VmOptions,
    tenant_if_named,
    with_vm_options,
)
from orchestrator.cli.session import format_of, session_of
from orchestrator.cli.table import Listing, show_rows, sorted_rows
from orchestrator.core.errors import InvalidInput
from orchestrator.core.gpu.pci import parse_pci_address
from orchestrator.core.names import check_name
from orchestrator.core.vms.priority import Priority

NOTHING_FITS: Final = 8
"""Exit code, as of a create that finds no place."""


@with_vm_options
def capacity(
    ctx: typer.Context,
    profile: Annotated[
        str | None, typer.Option("--profile", "-p", help="Only this one.", autocompletion=profiles)
    ] = None,
    *,
    vm: VmOptions,
    tenant: Annotated[
        str | None, typer.Option("--tenant", help="How many this tenant could create.", callback=tenant_if_named)
    ] = None,
    svg: Svg = None,
    sort: Sort = None,
) -> None:
    """How many more VMs fit now, and with moves; how many a tenant could create now.

    Each row is counted alone, and an empty GPU with MIG for either mode.
    """
    answer = session_of(ctx).client.capacity(
        {
            "profile": profile,
            "tenant": tenant,
            **vm.query(),
        }
    )
    from orchestrator.cli.advice.explain import capacity_columns, closed_line

    rows = answer["rows"]
    if svg is not None:
        from orchestrator.cli.advice.pictures import capacity_svg, write_svg

        write_svg(svg, capacity_svg(rows))
    below = [] if answer["gpus"] is None else [closed_line(answer["gpus"])]
    none = "no GPUs that VMs could be given"
    listing = Listing(columns=capacity_columns(rows), none=none, output=format_of(ctx), sort=sort, said=below)
    show_rows(sorted_rows(rows, listing.columns, sort), rows, listing)


@with_vm_options
def explain(
    ctx: typer.Context,
    profile: Annotated[
        str, typer.Option("--profile", "-p", help="Offering, vGPU type, MIG profile or gpu:N.", autocompletion=profiles)
    ],
    devices: Annotated[int, typer.Option("--devices", min=1, max=64, help="Devices in the VM.")] = 1,
    tenant: Tenant = "default",
    *,
    vm: VmOptions,
    on_host: OnlyHost = None,
    gpu: Gpu = None,
    priority: Annotated[
        Priority | None, typer.Option("--priority", help="Say whom it would preempt with this priority.")
    ] = None,
) -> None:
    """Where a VM would go and why, or why not and what would make it fit; exit code 8 when nothing fits."""
    if not profile.strip():
        raise InvalidInput(
            "cli.empty", "--profile must not be empty", hint="'vgpuctl profile list' shows what it takes"
        )
    answer = session_of(ctx).client.explain(
        {
            "profile": profile,
            "count": devices,
            "tenant": tenant,
            "host": None if on_host is None else check_name(on_host, what="host"),
            "gpu": None if gpu is None else parse_pci_address(gpu),
            "priority": priority,
            **vm.query(),
        }
    )
    from orchestrator.cli.advice.explain import render_explanation

    show_plain(answer, format_of(ctx), lambda: render_explanation(answer, text_width()))
    if not answer["fits"]:
        raise typer.Exit(NOTHING_FITS)
