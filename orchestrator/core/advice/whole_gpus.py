# SPDX-License-Identifier: Apache-2.0
"""How many sets of whole GPUs a fleet could hold if nothing else were on it."""

from __future__ import annotations

from orchestrator.core.geometry.board import most_sets, other_models
from orchestrator.core.placement.fleet import Fleet, FleetHost
from orchestrator.core.placement.state_table import Demand


def serves(host: FleetHost, demand: Demand) -> bool:
    """Whether some of the host's GPUs are of the models asked for and may be given out."""
    models = {gpu.table.geometry.model for gpu in host.gpus}
    return not host.view.cordoned and (not demand.gpu_models or bool(models & set(demand.gpu_models)))


def most_whole_sets(fleet: Fleet, demand: Demand) -> int:
    """An upper bound on sets for ``demand`` (``gpu:N``), host CPU and memory left out; reached on empty hosts."""
    return sum(
        most_sets(fleet.boards[host.board].cut, host.closed | others, demand.profile)
        for host in fleet.hosts
        if serves(host, demand)
        for others in other_models([gpu.table.geometry.model for gpu in host.gpus], demand.gpu_models)
    )
