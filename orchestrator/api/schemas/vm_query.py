# SPDX-License-Identifier: Apache-2.0
"""Which VMs a list is to have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Query

from orchestrator.api.schemas.base import MAX_NAME
from orchestrator.api.services import SelectorOf
from orchestrator.core.labels import Selector, selects
from orchestrator.core.vms.vm import Vm, VmState


@dataclass(frozen=True)
class VmFilter:
    """All that is given must hold."""

    state: VmState | None
    host: str | None
    profile: str | None
    label: str | None
    selector: Selector

    def picks(self, vm: Vm) -> bool:
        """Whether the VM is to be in the list."""
        return (
            (self.state is None or vm.state == self.state)
            and (self.host is None or vm.host == self.host)
            and (self.profile is None or vm.spec.profile == self.profile)
            and (self.label is None or vm.spec.label == self.label)
            and (not self.selector or selects(self.selector, vm.spec.labels))
        )


async def _filter(
    selector: SelectorOf,
    state: Annotated[VmState | None, Query(description="Only VMs in this state")] = None,
    host: Annotated[str | None, Query(max_length=MAX_NAME, description="Only VMs there; for who runs the pool")] = None,
    profile: Annotated[str | None, Query(max_length=MAX_NAME, description="Only VMs made with this profile")] = None,
    label: Annotated[str | None, Query(max_length=MAX_NAME, description="Only those that such a file made")] = None,
) -> VmFilter:
    return VmFilter(state, host, profile, label, selector)


VmFilterOf = Annotated[VmFilter, Depends(_filter)]
