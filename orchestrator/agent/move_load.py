# SPDX-License-Identifier: Apache-2.0
"""What a VM that runs would have to move: its memory and how fast its guest writes there, and its vGPUs' state."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from orchestrator.agent.assembly import Agent
from orchestrator.agent.libvirt.memory_load import memory_load
from orchestrator.agent.nvml.asking import answer_of
from orchestrator.agent.nvml.vgpu_metadata import state_of_vgpus
from orchestrator.core.actions.live_move import MoveLoad
from orchestrator.core.errors import WorldError


def load_of(agent: Agent, vm: str) -> MoveLoad:
    """:raises Conflict: ``vm.foreign_domain``; :raises WorldError: see Libvirt.call"""
    agent.domains.check_ours(vm)
    memory, written = agent.libvirt.call(partial(memory_load, vm))
    device: int | None = None
    with suppress(WorldError):
        device = answer_of(lambda: agent.observer.nvml.change(partial(state_of_vgpus, vm)))
    return MoveLoad(memory_bytes=memory, dirty_per_s=written, device_bytes=device)
