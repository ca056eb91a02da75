# SPDX-License-Identifier: Apache-2.0
"""What hosts and GPUs have and VMs need of them beside room: a constraint is one file here, listed below and nowhere
else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orchestrator.core.attachments.host_facts import HostFacts
from orchestrator.core.gpu.vgpu_parameters import Scheduler
from orchestrator.core.hosts.bridges import Uplink
from orchestrator.core.hosts.domain import Firmware
from orchestrator.core.labels import Labels
from orchestrator.core.placement.rules import affinity, bridges, features, labels, scheduler, tenants
from orchestrator.core.placement.rules.rule import Fact, Need
from orchestrator.core.vms.isolation import Isolation

LASTING: Final = frozenset({*bridges.NeedsBridges.codes, *labels.NeedsLabels.codes, *features.NeedsFeature.codes})
"""Codes of what may be missing on a host: it stays so, whatever goes from it."""
CODES: Final = LASTING.union(affinity.ApartFrom.codes, tenants.Isolated.codes, scheduler.ScheduledBy.codes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Wants:
    """What a VM wants that rules are made of; left out: nothing."""

    profile: str
    """As its request has it."""
    tenant: str = ""
    isolation: Isolation | None = None
    """From other tenants; None: nobody is kept apart."""
    uplinks: tuple[Uplink, ...] = ()
    """By which its networks leave."""
    host_labels: Labels = ()
    boots_by: Firmware = "bios"
    tpm: bool = False
    scheduler: Scheduler | None = None
    """How its GPUs shall divide their time; None: as the driver does by itself."""
    apart_from: tuple[str, ...] = ()
    """Ids of VMs that it may not share a host with."""


def needs_of(wants: Wants) -> tuple[Need, ...]:
    """The most telling first."""
    return (
        *bridges.needs_of(wants.uplinks),
        *labels.needs_of(wants.host_labels),
        *features.needs_of(wants.boots_by, tpm=wants.tpm),
        *affinity.needs_of(wants.apart_from),
        *tenants.needs_of(wants.tenant, wants.isolation, wants.profile),
        *scheduler.needs_of(wants.scheduler),
    )


def facts_of(host: HostFacts, host_labels: Labels) -> tuple[Fact, ...]:
    """Of one host. ``host_labels``: those that say something about placement."""
    return (*bridges.facts_of(host), *labels.facts_of(host_labels), *features.facts_of(host))
