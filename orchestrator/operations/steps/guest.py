# SPDX-License-Identifier: Apache-2.0
"""Running roles in a VM's guest. What they put there is the tenant's: nothing of it is taken back."""

from __future__ import annotations

import json
from typing import Final

from orchestrator.core.errors import Bug, Conflict, VgpuctlError
from orchestrator.core.guest.guest import Guest, GuestRecord, GuestRun, WantedRoles, secret_of, with_run
from orchestrator.core.guest.settings import SettingValue, check_roles, check_settings
from orchestrator.core.tenancy.node_labels import node_labels
from orchestrator.core.vms.vm import Vm
from orchestrator.operations.context import Context
from orchestrator.operations.journal import Suspended
from orchestrator.operations.step import Step
from orchestrator.operations.steps.driver_swap import driver_file

REACHED_WITHIN_S: Final = 300.0
"""How long a guest that is new has to boot and to run its cloud-init."""
NEW_FOR_S: Final = 900.0
"""A guest is new for runs that were asked for within this time of its VM: how long the VM took, an image to be
sent first and a slow boot, is no matter."""
AGAIN_AFTER_S: Final = 5.0
"""From one try to the next: each is a run of a playbook."""
_NOT_YET: Final = frozenset({"vm.no_address", "vm.unreachable", "guest.unreachable", "guest.auth_failed"})
"""What a guest that still boots answers with."""
_TENANTS: Final = "what is in a guest is its tenant's; the roles can be run again"


class _Watched:
    """Asked by a run whether it should end. ``why``: what is to be raised when it was told so."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.why: BaseException | None = None

    def __call__(self) -> bool:
        try:
            self._context.pause(0.0)
        except (Suspended, VgpuctlError) as error:
            self.why = error
            return True
        return False


def _running(context: Context) -> Vm:
    """:raises Conflict: ``vm.not_running``"""
    vm = context.vm()
    if vm is None or vm.state != "running":
        state = "gone" if vm is None else vm.state
        raise Conflict("vm.not_running", f"the VM is {state}", hint="start it, then run it again")
    return vm


def _guest(context: Context, vm: Vm, record: GuestRecord) -> Guest:
    return Guest(vm=vm.id, name=vm.full_name, host=context.host(), host_key=record.host_key, run=context.operation_id)


def _record(context: Context) -> GuestRecord:
    with context.world.store.read() as tx:
        return tx.guests.get(context.subject)


def _keep(context: Context, run: GuestRun) -> None:
    with context.begin() as tx:
        tx.guests.put(with_run(tx.guests.get(context.subject), run))


def _raise_if_ended(watched: _Watched) -> None:
    if watched.why is not None:
        raise watched.why


def _reach(context: Context) -> str:
    """Once it lets us in; its host key is kept. :raises VgpuctlError: ``guest.…``"""
    vm, watched = _running(context), _Watched(context)
    run = context.world.guests.reach(_guest(context, vm, _record(context)), watched)
    _raise_if_ended(watched)
    if run.error is None:
        _keep(context, run)
        return "it lets us in"
    if run.error.code in _NOT_YET and _asked_at(context) - vm.created_at < NEW_FOR_S:
        context.report(run.error.message)
        context.wait_for_guest()
    raise run.error


def _asked_at(context: Context) -> float:
    with context.world.store.read() as tx:
        return tx.operations.get(context.operation_id).operation.created_at


def _provision(context: Context) -> str:
    """What was done is kept, also of a run that fails."""
    vm = _running(context)
    watched = _Watched(context)
    guest = _guest(context, vm, _record(context))
    run = context.world.guests.provision(guest, _wanted(context), context.report, watched)
    _keep(context, run)
    _raise_if_ended(watched)
    if run.error is not None:
        raise run.error
    context.write_at_end(lambda tx: tx.secrets.remove(secret_of(vm.id)))
    return ", ".join(f"{result.role} {result.state}" for result in run.results)


def _wanted(context: Context) -> WantedRoles:
    """:raises NotFound: ``bundle.unknown``; :raises Fatal: ``bundle.damaged``"""
    driver, cuda, cudnn = (context.inputs.get(name) for name in ("driver", "cuda", "cudnn"))
    packages = context.inputs.get("cudnn_packages", [])
    return WantedRoles(
        roles=_roles(context),
        driver=driver_file(context, driver) if isinstance(driver, str) else None,
        cuda=cuda if isinstance(cuda, str) else None,
        cudnn=cudnn if isinstance(cudnn, str) else None,
        cudnn_packages=tuple(driver_file(context, package) for package in packages)
        if isinstance(packages, list)
        else (),
        settings=_settings(context),
        secrets=_secrets(context),
        labels=_labels(context) if "guest_k8s_node" in _roles(context) else {},
    )


def _labels(context: Context) -> dict[str, str]:
    """Of what the VM is now."""
    vm, store = _running(context), context.world.store
    with store.read() as tx:
        return node_labels(vm, tx.hosts.snapshot(vm.host), tx.quotas.list(), store.site)


def _settings(context: Context) -> dict[str, SettingValue]:
    """Operations of older versions have none."""
    stored = context.inputs.get("settings")
    return check_settings(_roles(context), stored) if isinstance(stored, dict) else {}


def _secrets(context: Context) -> dict[str, str]:
    """:raises Bug: ``secret.missing``"""
    if not context.inputs.get("secrets"):
        return {}
    with context.world.store.read() as tx:
        stored = json.loads(tx.secrets.get(secret_of(context.subject)))
    return {str(name): str(text) for name, text in stored.items()}


def forget_secrets(context: Context) -> None:
    """All that is taken back of a run that failed or was cancelled. One that is stuck or abandoned goes on no more:
    it needs them no longer either."""
    with context.begin() as tx:
        tx.secrets.remove(secret_of(context.subject))


def _roles(context: Context) -> tuple[str, ...]:
    stored = context.inputs.get("roles")
    if not isinstance(stored, list):
        raise Bug("operation.inputs", f"operation {context.operation_id} lacks its input roles")
    return check_roles([str(role) for role in stored])


REACH = Step(
    name="guest_reached.1",
    title="the guest lets us in",
    do=_reach,
    undo=forget_secrets,
)
PROVISION = Step(name="provision_guest.1", title="run the roles", do=_provision, no_undo_reason=_TENANTS)
