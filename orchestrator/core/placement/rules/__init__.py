# SPDX-License-Identifier: Apache-2.0
"""What VMs need of hosts and GPUs beside room on a GPU, vCPUs and memory, and what hosts and GPUs have of it: a
constraint is one file here, listed below and nowhere else."""

from __future__ import annotations

from typing import Final

from orchestrator.core.attachments.host_facts import HostFacts
from orchestrator.core.gpu.device import Device
from orchestrator.core.gpu.health_states import GpuHealth
from orchestrator.core.hosts.snapshot import GpuSnapshot
from orchestrator.core.labels import Labels
from orchestrator.core.placement.rules import (
    affinity,
    bridges,
    disk,
    features,
    health,
    labels,
    named,
    nics,
    nodes,
    overlay,
    pools,
    providers,
    scheduler,
    tenants,
)
from orchestrator.core.placement.rules.rule import Fact, Need
from orchestrator.core.placement.rules.wanted import Wanted

_RULES: Final = (
    named,
    bridges,
    overlay,
    providers,
    pools,
    labels,
    features,
    affinity,
    disk,
    tenants,
    scheduler,
    nodes,
    nics,
)
"""The most telling first."""
_KINDS: Final = tuple(
    kind for rule in _RULES for kind in vars(rule).values()
    if isinstance(kind, type) and issubclass(kind, Need) and kind is not Need
)  # fmt: skip
CODES: Final = frozenset(code for kind in _KINDS for code in kind.codes)
LASTING: Final = frozenset(code for kind in _KINDS for code in kind.lasting)
"""Codes of what may be missing on a host: it stays so, whatever goes from it."""
_AMOUNTS: Final = ("host.vcpus", "host.memory")
CURABLE: Final = frozenset(_AMOUNTS).union(*(kind.curable for kind in _KINDS))
"""Codes of what the going of VMs may cure on a host."""
YIELDED: Final = frozenset(_AMOUNTS).union(*(kind.yielded for kind in _KINDS))
"""Codes of what it cures too if they are stopped, and keep their disks there."""


def needs_of(wanted: Wanted) -> tuple[Need, ...]:
    """The most telling first."""
    return tuple(need for rule in _RULES for need in rule.needs_of(wanted))


def needs_of_device(device: Device) -> tuple[Need, ...]:
    """Of a VM that has the device: those that may keep others off its GPU."""
    return scheduler.needs_of_device(device)


def facts_of_gpu(gpu: GpuSnapshot, its_health: GpuHealth | None) -> tuple[Fact, ...]:
    return (*scheduler.facts_of(gpu), *health.facts_of(its_health))


def facts_of(host: HostFacts, name: str, host_labels: Labels) -> tuple[Fact, ...]:
    """Of the host of that name, whatever is on it. ``host_labels``: those that say something about placement."""
    of_host = (*bridges.facts_of(host), *overlay.facts_of(host, name), *pools.facts_of(host))
    return (*of_host, *labels.facts_of(host_labels), *features.facts_of(host))
