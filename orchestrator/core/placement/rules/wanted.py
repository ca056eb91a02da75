# SPDX-License-Identifier: Apache-2.0
"""A VM that is to have a place, as the rules see it."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.errors import InvalidInput
from orchestrator.core.hosts.bridges import Uplink
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.vms.isolation import Isolation
from orchestrator.core.vms.vm import Vm, VmShape


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """A VM that somebody asks for or asks about: each rule picks out of it what it is about."""

    vm_id: str
    vm: VmShape
    """With its size, the host that its volumes tie it to, and their disk where they lie nowhere yet. What it calls its
    networks says nothing here."""
    offering: Offering
    tied_by: str | None = None
    """Name of the data volume that alone says which host that is; None: the request names it, or any will do."""
    models: tuple[str, ...] = ()
    """Of the GPUs that will do where the offering names none; empty: any."""
    made: Vm | None = None
    """The VM itself, with its disk, where that is there already."""
    moves: bool = False
    """Its disk goes where it goes."""
    off_hosts: frozenset[str] = frozenset()
    """Names of hosts that it may not move to."""
    beside_snapshot: str | None = None
    """Host of the snapshot that its disk is a copy of."""
    count: int = 1
    """It has what the offering gives so many times."""
    uplinks: tuple[Uplink, ...] = ()
    """By which its networks leave its host."""
    overlay: bool = False
    """Whether one of its networks is of kind ovn."""
    leading_out: frozenset[str] | None = None
    """Names of hosts that have the provider networks which it is on; None: it is on none."""
    isolation: Isolation | None = None
    """From other tenants; None: nobody is kept apart."""
    apart_from_vms: tuple[str, ...] = ()
    """Ids of VMs that it may not share a host with."""

    @property
    def profile(self) -> str:
        """As the engine knows it; see :func:`profile_of`."""
        return profile_of(self.offering)


def profile_of(offering: Offering) -> str:
    """How the engine names what one device of the offering is.

    :raises InvalidInput: ``profile.unsupported``
    """
    if offering.kind == "passthrough":
        return f"gpu:{offering.gpu_count}"
    profile = offering.vgpu_type or offering.mig_profile
    if profile is None:
        raise InvalidInput(
            "profile.unsupported",
            f"profile {offering.name} names no vGPU type or MIG profile",
            hint="'vgpuctl profile list' shows what there is",
        )
    return profile
