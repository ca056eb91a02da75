# SPDX-License-Identifier: Apache-2.0
"""Runs of roles in guests: of VMs that are there, and of those that are only made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.core.errors import InvalidInput
from orchestrator.core.guest.guest import secret_of
from orchestrator.core.guest.settings import (
    SETTINGS,
    SettingValue,
    check_roles,
    check_secrets,
    check_settings,
    check_token_given,
)
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.operation import Operation
from orchestrator.core.vms.vm import Vm
from orchestrator.ports.clock import Clock, Ids
from orchestrator.services.begin import new_operation, record
from orchestrator.services.guests.drivers import GuestHost, guest_bundle, guest_tools
from orchestrator.services.messages import CreateVm
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class GuestRoles:
    """What is to be run in a guest and said there, checked."""

    roles: tuple[str, ...]
    settings: Mapping[str, SettingValue] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    def check_possible(self, tx: Transaction, on: GuestHost) -> dict[str, object]:
        """The bundle of the driver, the toolkit and cuDNN that a guest there gets, for the operation's inputs.

        :raises Conflict: ``vm.driver_forbidden``, ``guest.cuda_forbidden``; :raises NotFound: ``bundle.missing``
        """
        driver = guest_bundle(tx, on) if "guest_driver" in self.roles else None
        tools = guest_tools(tx, on, driver) if "guest_cuda" in self.roles else {}
        return {"driver": None if driver is None else driver.sha256, **tools}

    def inputs(self, tx: Transaction, vm: Vm) -> dict[str, object]:
        """Of the operation; secrets by name alone. Raises what :meth:`check_possible` does."""
        shown = {"roles": list(self.roles), "settings": dict(self.settings), "secrets": sorted(self.secrets)}
        return {**self.check_possible(tx, GuestHost.of(vm)), **shown}

    def keep_secrets(self, tx: Transaction, vm: Vm) -> None:
        """Until the run is over."""
        if self.secrets:
            tx.secrets.put(secret_of(vm.id), json.dumps(dict(self.secrets)))


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """Of a VM that is not there yet: it waits until that is made."""

    operation: Operation
    wanted: GuestRoles
    inputs: dict[str, object]

    def begin(self, tx: Transaction, vm: Vm, made_by: str) -> None:
        """``made_by``: id of the operation that makes the VM."""
        self.wanted.keep_secrets(tx, vm)
        roles = ", ".join(self.wanted.roles)
        record(tx, self.operation, host=vm.host, inputs=self.inputs, waits_for=(made_by,), said=roles)


def offered_roles(offering: Offering) -> GuestRoles:
    """What an offering asks for alone. Its files are checked."""
    return GuestRoles(roles=offering.provision, settings=offering.provision_settings)


def wanted_roles(request: CreateVm, offering: Offering) -> GuestRoles | None:
    """The offering's and those that were named with the VM; None: none.

    :raises InvalidInput: ``guest.…``
    """
    offered = GuestRoles(roles=()) if request.no_provision else offered_roles(offering)
    names = (*offered.roles, *request.provision)
    roles = check_roles(names) if names else ()
    settings = {name: value for name, value in offered.settings.items() if SETTINGS[name].role in roles}
    wanted = GuestRoles(
        roles=roles,
        settings=check_settings(roles, {**settings, **request.provision_settings}),
        secrets=check_secrets(roles, request.provision_secrets),
    )
    check_token_given(roles, wanted.secrets)
    if roles and not request.start:
        raise InvalidInput(
            "guest.not_started",
            f"roles are run in a guest that runs, and VM {request.name} is not to be started: {', '.join(roles)}",
            hint=f"leave out --no-start; or --no-provision, and later 'vgpuctl vm provision {request.name} {roles[0]}'",
        )
    return wanted if roles else None


def planned_run(tx: Transaction, vm: Vm, wanted: GuestRoles | None, *, clock: Clock, ids: Ids) -> PlannedRun | None:
    """None: nothing is to be run in its guest. Raises what :meth:`GuestRoles.check_possible` does."""
    if wanted is None:
        return None
    operation = new_operation("provision_vm", vm, clock=clock, ids=ids)
    return PlannedRun(operation=operation, wanted=wanted, inputs=wanted.inputs(tx, vm))
