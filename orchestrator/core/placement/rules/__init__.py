# SPDX-License-Identifier: Apache-2.0
"""What hosts have and VMs need of them beside room: a constraint is one file here, listed below and nowhere else."""

from __future__ import annotations

from typing import Final

from orchestrator.core.attachments.host_facts import HostFacts
from orchestrator.core.hosts.bridges import Uplink
from orchestrator.core.hosts.domain import Firmware
from orchestrator.core.labels import Labels
from orchestrator.core.placement.rules import bridges, features, labels
from orchestrator.core.placement.rules.rule import Fact, Need

CODES: Final = frozenset({*bridges.NeedsBridges.codes, *labels.NeedsLabels.codes, *features.NeedsFeature.codes})
"""Of everything that a need may find missing: it stays so, whatever goes from the host."""


def needs_of(*, uplinks: tuple[Uplink, ...], host_labels: Labels, boots_by: Firmware) -> tuple[Need, ...]:
    """Of one VM, the most telling first."""
    return (*bridges.needs_of(uplinks), *labels.needs_of(host_labels), *features.needs_of(boots_by))


def facts_of(host: HostFacts, host_labels: Labels) -> tuple[Fact, ...]:
    """Of one host. ``host_labels``: those that say something about placement."""
    return (*bridges.facts_of(host), *labels.facts_of(host_labels), *features.facts_of(host))
