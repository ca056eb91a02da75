# SPDX-License-Identifier: Apache-2.0
"""What is done to a GPU for its MIG layout."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.core.actions.host_actions import CreateGpuInstance, DestroyGpuInstance, HostAction, SetMigMode
from orchestrator.core.hosts.mig_layout import KEEPER, MigLayout


def actions(before: MigLayout, after: MigLayout) -> Iterator[HostAction]:
    """From one layout of a GPU to another: what stays in its place is not touched."""
    for place in before.instances:
        if place not in after.instances:
            yield DestroyGpuInstance(vm=KEEPER, gpu=after.gpu, start=place.start)
    yield SetMigMode(gpu=after.gpu, on=after.on)
    for place in after.instances:
        yield CreateGpuInstance(vm=KEEPER, gpu=after.gpu, profile=place.profile, start=place.start)
