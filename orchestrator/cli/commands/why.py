# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl capacity`` and ``vgpuctl explain``"""

from __future__ import annotations

from typing import Annotated, Final

import typer

from orchestrator.cli.complete import hosts, networks, profiles
from orchestrator.cli.output import show_plain, text_width
from orchestrator.cli.parameters import Gpu, Tenant, VmPriority, Volumes, tenant_if_named
from orchestrator.cli.session import Format, Output, session_of
from orchestrator.core.errors import InvalidInput
from orchestrator.core.names import check_name
from orchestrator.core.pci import parse_pci_address
from orchestrator.core.vm import DEFAULT_DISK, DEFAULT_MEMORY, DEFAULT_VCPUS, MAX_VCPUS, disk_bytes, memory_mib

Vcpus = Annotated[int, typer.Option("--vcpus", min=1, max=MAX_VCPUS, help="Virtual CPUs of the VM.")]
Memory = Annotated[str, typer.Option("--memory", help="Memory of the VM.")]
Disk = Annotated[str, typer.Option("--disk", help="Disk of the VM.")]


def _network_name(text: str | None) -> str | None:
    return None if text is None else check_name(text, what="network")


OnNetwork = Annotated[
    str | None,
    typer.Option("--network", help="Network of the VM.", autocompletion=networks, callback=_network_name),
]

NOTHING_FITS: Final = 8
"""Exit code, as of a create that finds no place."""


def capacity(
    ctx: typer.Context,
    profile: Annotated[
        str | None, typer.Option("--profile", "-p", help="Only this one.", autocompletion=profiles)
    ] = None,
    vcpus: Vcpus = DEFAULT_VCPUS,
    memory: Memory = DEFAULT_MEMORY,
    disk: Disk = DEFAULT_DISK,
    tenant: Annotated[
        str | None, typer.Option("--tenant", help="How many this tenant could create.", callback=tenant_if_named)
    ] = None,
    network: OnNetwork = None,
    output: Output = Format.TABLE,
) -> None:
    """How many more VMs fit now, and with moves; how many a tenant could create now.

    Each row is counted alone, and an empty GPU with MIG for either mode.
    """
    found = session_of(ctx).client.capacity(
        {
            "profile": profile,
            "tenant": tenant,
            "vcpus": vcpus,
            "memory_mib": memory_mib(memory),
            "disk_bytes": disk_bytes(disk),
            "network": network,
        }
    )
    from orchestrator.cli.advice.capacity import render_capacity

    show_plain(found["rows"], output, lambda: render_capacity(found["rows"]))


def explain(
    ctx: typer.Context,
    profile: Annotated[
        str, typer.Option("--profile", "-p", help="Offering, vGPU type, MIG profile or gpu:N.", autocompletion=profiles)
    ],
    count: Annotated[int, typer.Option("--count", min=1, max=64, help="Devices in the VM.")] = 1,
    tenant: Tenant = "default",
    vcpus: Vcpus = DEFAULT_VCPUS,
    memory: Memory = DEFAULT_MEMORY,
    disk: Disk = DEFAULT_DISK,
    on_host: Annotated[str | None, typer.Option("--host", help="Only this host will do.", autocompletion=hosts)] = None,
    gpu: Gpu = None,
    volume: Volumes = None,
    priority: Annotated[
        VmPriority | None, typer.Option("--priority", help="Say whom it would preempt with this priority.")
    ] = None,
    network: OnNetwork = None,
    output: Output = Format.TABLE,
) -> None:
    """Where a VM would go and why, or why not and what would make it fit; exit code 8 when nothing fits."""
    if not profile.strip():
        raise InvalidInput(
            "cli.empty", "--profile must not be empty", hint="'vgpuctl profile list' shows what it takes"
        )
    found = session_of(ctx).client.explain(
        {
            "profile": profile,
            "count": count,
            "tenant": tenant,
            "vcpus": vcpus,
            "memory_mib": memory_mib(memory),
            "disk_bytes": disk_bytes(disk),
            "host": None if on_host is None else check_name(on_host, what="host"),
            "gpu": None if gpu is None else parse_pci_address(gpu),
            "volumes": ",".join(check_name(one, what="volume") for one in volume or ()) or None,
            "priority": None if priority is None else priority.value,
            "network": network,
        }
    )
    from orchestrator.cli.advice.explain import render_explanation

    show_plain(found, output, lambda: render_explanation(found, text_width()))
    if not found["fits"]:
        raise typer.Exit(NOTHING_FITS)
