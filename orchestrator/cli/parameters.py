# SPDX-License-Identifier: Apache-2.0
"""Arguments and options that several commands have."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from orchestrator.cli.complete import vms
from orchestrator.core.access import EVERYWHERE
from orchestrator.core.names import check_name
from orchestrator.core.units import MIB, parse_size
from orchestrator.core.vm import MAX_DISK_BYTES, MAX_MEMORY_MIB, MIN_DISK_BYTES, MIN_MEMORY_MIB


class BootPolicy(StrEnum):
    """As in core/host_actions."""

    LOCAL = "local"
    ASK_CONTROLLER = "ask-controller"


class TenantRole(StrEnum):
    """As in core/access."""

    ADMIN = "admin"
    OPERATOR = "operator"
    READ_ONLY = "read-only"
    TENANT_ADMIN = "tenant-admin"
    TENANT_USER = "tenant-user"


def _vm_name(text: str) -> str:
    return check_name(text, what="vm")


def _tenant_name(text: str) -> str:
    return check_name(text, what="tenant")


Name = Annotated[str, typer.Argument(help="Name of the VM.", autocompletion=vms, callback=_vm_name)]
NewName = Annotated[str, typer.Argument(help="Name of the new VM.", callback=_vm_name)]


def tenant_or_everywhere(text: str) -> str:
    """``*`` is where roles are held that hold everywhere."""
    return text if text == EVERYWHERE else check_name(text, what="tenant")


Tenant = Annotated[str, typer.Option("--tenant", help="Whose VM it is.", callback=_tenant_name)]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is done, or only start it.")]


def disk_bytes(text: str) -> int:
    """``20GiB`` in bytes, within what a disk may have."""
    return parse_size(text, field="disk", at_least=MIN_DISK_BYTES, at_most=MAX_DISK_BYTES)


def memory_mib(text: str) -> int:
    """``4GiB`` in MiB, within what a VM may have."""
    size = parse_size(text, field="memory", at_least=MIN_MEMORY_MIB * MIB, at_most=MAX_MEMORY_MIB * MIB)
    return size // MIB
