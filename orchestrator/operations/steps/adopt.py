# SPDX-License-Identifier: Apache-2.0
"""Taking over a domain that somebody else made: the host's ledger learns whose it is, the guest notices nothing."""

from __future__ import annotations

from typing import Final, Literal

from orchestrator.core.actions.host_actions import AdoptDomain, ReleaseDomain
from orchestrator.core.errors import Fatal
from orchestrator.core.vms.vm import Vm
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step

_ADOPTED: Final = "adopted"


def _action(context: Context, vm: Vm) -> AdoptDomain:
    return AdoptDomain(
        vm=vm.id,
        devices=vm.devices,
        running=context.inputs.get("running") is True,
        boot_policy=vm.spec.boot_policy,
    )


def _adopt(context: Context) -> str:
    vm = context.known_vm()
    if vm.spec.adopted is None:
        return f"{vm.domain_name} is ours already"
    context.make(_ADOPTED, _action(context, vm))
    devices = ", ".join(f"{device.type_name} on {device.parent}" for device in vm.devices)
    return f"{vm.domain_name} with {devices}"


def _release(context: Context) -> None:
    vm = context.vm()
    if vm is None or vm.spec.adopted is None or not context.made(_ADOPTED):
        return
    context.perform(ReleaseDomain(vm=vm.id, devices=vm.devices))


def _remains(context: Context) -> tuple[str, ...]:
    vm = context.vm()
    return () if vm is None else (f"domain {vm.domain_name} ({vm.id}) in the ledger of host {vm.host}",)


def _as_it_is(context: Context) -> str:
    """The VM's state is what the host shows, and that is wanted of it: nobody has asked for anything else."""
    domain = next((one for one in context.observe().domains if one.uuid == context.subject), None)
    if domain is None:
        raise Fatal("vm.gone", "the domain is not defined on its host any more", hint="somebody removed it there")
    state: Literal["running", "stopped"] = "running" if domain.active else "stopped"
    seen, addresses, by = context.subject, domain.addresses, context.operation_id
    context.write_at_end(lambda tx: tx.vms.set_state(seen, state, operation=by, addresses=addresses, wanted=state))
    return domain.state.replace("_", " ")


ADOPT = Step(name="adopt.1", title="the host's ledger", do=_adopt, undo=_release, remains=_remains)
AS_IT_IS = Step(
    name="as_it_is.1",
    title="record how it is",
    do=_as_it_is,
    no_undo_reason="the steps before it forget the VM",
)
