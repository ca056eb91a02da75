# SPDX-License-Identifier: Apache-2.0
"""What people say of a host's labels, CPUs and network cards, and how these are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import typer

from orchestrator.cli.output import shown
from orchestrator.core.errors import InvalidInput
from orchestrator.core.hosts.cpus import cpus_text, parse_cpus
from orchestrator.core.hosts.nic import parse_nics
from orchestrator.core.labels import KEPT_FOR, show_labels
from orchestrator.core.units import MIB, show_size

RdmaNics = Annotated[
    str | None,
    typer.Option(
        "--rdma-nics", metavar="ADDRESSES|none", help="Network cards whose virtual functions VMs may have (--nic rdma)."
    ),
]


def checked_nics(text: str | None) -> str | None:
    """As the API takes it. None: nothing was said. :raises InvalidInput: ``nic.invalid``"""
    if text is None:
        return None
    if text == "none":
        return ""
    if not text.strip():  # of a variable that is not set, say: all cards would be taken back
        hint = "PCI addresses, as 'vgpuctl host show NAME' has them; none: no card is given"
        raise InvalidInput("nic.invalid", "no network cards are named", hint=hint)
    return ",".join(parse_nics(text))


def nic_lines(host: Mapping[str, Any]) -> Iterator[str]:
    """A line for each card that can have virtual functions, and one for each function that can be no VM's."""
    for nic in host.get("nics") or ():
        node = "" if nic["numa_node"] is None else f"node {nic['numa_node']}, "
        use = f"VMs have {nic['taken']}" if nic["given"] else "not given to VMs"
        yield f"{shown(nic['address'])}  {shown(nic['interface'])}, {node}{nic['functions']} functions, {use}"
        yield from (f"{shown(nic['address'])}  {shown(holder)}" for holder in nic["held"] if nic["given"])


def label_lines(host: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """All of them; of a host that is kept for a tenant also whose VMs are there nevertheless."""
    yield "labels", shown(show_labels(host["labels"]))
    tenant = host["labels"].get(KEPT_FOR)
    if tenant is not None:
        others = [vm for vm in host["vms"] if not vm.startswith(f"{tenant}/")]
        yield "kept for", shown(tenant) + (f"; VMs of others stay: {shown(others)}" if others else "")


PinnableCpus = Annotated[
    str | None,
    typer.Option("--pinnable-cpus", metavar="CPUS|none", help="CPUs for VMs that have theirs alone, as 4-15,20-31."),
]


def checked_cpus(text: str | None) -> str | None:
    """As the API takes it. None: nothing was said. :raises InvalidInput: ``host.cpus_invalid``"""
    if text is None:
        return None
    if text == "none":
        return ""
    if not text.strip():  # of a variable that is not set, say: all CPUs would be taken back
        raise InvalidInput("host.cpus_invalid", "no CPUs are named", hint="as 4-15,20-31; none: the host keeps no CPUs")
    return cpus_text(parse_cpus(text))


def pinned_line(host: Mapping[str, Any]) -> str:
    """``4-15,20-31; VMs have 4-7,20-23``"""
    if not host["pinnable_cpus"]:
        return "none"
    return f"{shown(host['pinnable_cpus'])}; VMs have {shown(host['pinned_cpus'])}"


def shared_cpus(host: Mapping[str, Any]) -> int:
    """CPUs that VMs share; one at least, also where the host lost some that it keeps."""
    return max(1, int(host["vcpus"]) - len(parse_cpus(host["pinnable_cpus"])))


def numa_lines(host: Mapping[str, Any]) -> Iterator[str]:
    """A line for each NUMA node; one that says so where the host's agent does not tell."""
    if host["numa_nodes"] == []:
        yield "not told"
    for node in host["numa_nodes"] or ():
        pages = (
            f"{hugepage['free']} of {hugepage['total']} huge pages of {show_size(hugepage['size_kib'] * 1024)} free"
            + ("" if hugepage.get("mounted", True) else ", not mounted")
            for hugepage in node["hugepages"]
        )
        cpus = f"CPUs {shown(node['cpus'])} ({node['cores']} cores)" if node["cpus"] else "no CPUs"
        memory = "memory not told" if node["memory_mib"] is None else show_size(node["memory_mib"] * MIB)
        yield f"{node['id']}  {', '.join((cpus, memory, *pages))}"


def claimed_line(host: Mapping[str, Any], what: str, words: Callable[[int], str]) -> str:
    """``64; VMs have 12 of 256 (4 for each)``; of CPUs those count that VMs share."""
    claimed, most = host[what], host[f"most_{what}"]
    if claimed is None or most is None:
        return "-"
    own = host[f"{what.partition('_')[0].removesuffix('s')}_overcommit"] is not None
    by = shared_cpus(host) if what == "vcpus" else claimed
    each = [f"{most / by:.3g} for each" + (f" of {by} that they share" if by < claimed else "")]
    notes = ", ".join([*(each if what == "vcpus" or own else []), *(["set for this host"] if own else [])])
    return f"{words(claimed)}; VMs have {words(host[f'claimed_{what}'])} of {words(most)}" + (
        f" ({notes})" if notes else ""
    )
