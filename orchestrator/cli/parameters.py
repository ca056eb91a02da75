# SPDX-License-Identifier: Apache-2.0
"""Arguments and options that several commands have."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from orchestrator.cli.complete import vms
from orchestrator.core.access import EVERYWHERE
from orchestrator.core.names import check_name


class BootPolicy(StrEnum):
    """As in core/host_actions."""

    LOCAL = "local"
    ASK_CONTROLLER = "ask-controller"


class VmPriority(StrEnum):
    """As in core/priority."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"


class TenantRole(StrEnum):
    """As in core/access."""

    ADMIN = "admin"
    OPERATOR = "operator"
    READ_ONLY = "read-only"
    TENANT_ADMIN = "tenant-admin"
    TENANT_USER = "tenant-user"


def _vm_name(text: str) -> str:
    return check_name(text, what="vm")


def tenant_name(text: str) -> str:
    """Of one tenant, checked."""
    return check_name(text, what="tenant")


Name = Annotated[str, typer.Argument(help="Name of the VM.", autocompletion=vms, callback=_vm_name)]
NewName = Annotated[str, typer.Argument(help="Name of the new VM.", callback=_vm_name)]


def tenant_or_everywhere(text: str) -> str:
    """``*`` is where roles are held that hold everywhere."""
    return text if text == EVERYWHERE else check_name(text, what="tenant")


def tenant_if_named(text: str | None) -> str | None:
    """For lists, which are of all tenants when none is named."""
    return None if text is None else check_name(text, what="tenant")


Tenant = Annotated[str, typer.Option("--tenant", help="Whose VM it is.", callback=tenant_name)]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is done, or only start it.")]
