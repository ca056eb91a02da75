# SPDX-License-Identifier: Apache-2.0
"""Network cards of a host, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from orchestrator.cli.output import shown
from orchestrator.core.errors import InvalidInput
from orchestrator.core.hosts.nic import parse_nics

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
