# SPDX-License-Identifier: Apache-2.0
"""What an agent does with a host action: fence, observe, record the owner, act, observe again.

The order of these, the error codes and what counts as "already so" are those of orchestrator/agent; what differs is
that the host under it is a :class:`SimulatedMachine`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orchestrator.core.actions.gpu_cards import AcceptGpus
from orchestrator.core.actions.host_actions import (
    ActionResult,
    DisableVirtualFunctions,
    EnableVirtualFunctions,
    FencingToken,
    HostAction,
    ManageGpus,
    StopDomain,
)
from orchestrator.sim import (
    gpu_settings,
    mig_actions,
    nics,
    settling,
    vgpu_actions,
    vm_actions,
    whole_gpus,
)
from orchestrator.sim.machine import Effect, SimulatedMachine


def perform(machine: SimulatedMachine, action: HostAction, token: FencingToken, *, fenced: bool = True) -> ActionResult:
    """``fenced=False`` is an agent without its fence, for showing that the invariants notice.

    :raises VgpuctlError: what a real agent would answer
    :raises AgentDied: it died in the middle
    """
    if fenced:
        machine.ledger.admit(token, action)
    effect = Effect(token, type(action).__name__, getattr(action, "vm", None))
    if isinstance(action, StopDomain):
        domain = machine.domains.get(action.vm)
        effect.stopped = domain is not None and domain.running
    if machine.keep_effects:
        machine.effects.append(effect)
    return HANDLERS[type(action)](machine, action)


def manage(machine: SimulatedMachine, action: ManageGpus) -> ActionResult:
    """GPUs that are given back are as they were before."""
    for gpu in sorted(machine.ledger.managed - frozenset(action.gpus)):
        vgpu_actions.check_no_vgpus(machine, gpu)
        gpu_settings.settings_of(machine).put_back(gpu)
    return vgpu_actions.manage(machine, action)


HANDLERS: dict[type[HostAction], Callable[[SimulatedMachine, Any], ActionResult]] = {
    **vgpu_actions.HANDLERS,
    **mig_actions.HANDLERS,
    **whole_gpus.HANDLERS,
    **gpu_settings.HANDLERS,
    **nics.HANDLERS,
    **vm_actions.HANDLERS,
    **settling.HANDLERS,
    AcceptGpus: vgpu_actions.accept,
    ManageGpus: manage,
    EnableVirtualFunctions: vgpu_actions.enable,
    DisableVirtualFunctions: vgpu_actions.disable,
}
