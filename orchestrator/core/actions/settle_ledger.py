# SPDX-License-Identifier: Apache-2.0
"""The action for a host whose ledger was lost."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.actions.host_actions import HostAction
from orchestrator.core.actions.nics import GiveNicFunction
from orchestrator.core.gpu.device import Device
from orchestrator.core.hosts.domain import BootPolicy


@dataclass(frozen=True, kw_only=True)
class KnownVm:
    """What the database says of a VM on a host whose ledger was lost."""

    vm: str
    volume: str
    seed: str
    devices: tuple[Device, ...]
    """Those that are its own now: none of a VM that is deallocated."""
    running: bool
    """Whether it is wanted to run."""
    boot_policy: BootPolicy
    adopted: bool
    """Its files and its definition are somebody else's."""
    nic: GiveNicFunction | None = None
    """What gave it its function of a network card; None: it has none."""


@dataclass(frozen=True, kw_only=True)
class KnownVolume:
    """A data volume on a host whose ledger was lost: its file, and the id of the VM that has it."""

    volume: str
    vm: str | None


@dataclass(frozen=True, kw_only=True)
class FoundMigMode:
    """The MIG mode that a GPU had when it became ours."""

    gpu: str
    """PCI address."""
    on: bool


@dataclass(frozen=True, kw_only=True)
class SettleLedger(HostAction):
    """Write down anew whose everything is, where the ledger was lost; nothing but the ledger is changed.

    The only action that a host without its ledger performs. On any other those devices alone are written down that a
    VM of ours has and nobody owns."""

    since = 3
    no_inverse = "it says what is so"
    gpus: tuple[str, ...]
    """All that are ours."""
    functions: tuple[str, ...]
    """GPUs whose virtual functions we have switched on."""
    vms: tuple[KnownVm, ...]
    data: tuple[KnownVolume, ...] = ()
    mig_modes: tuple[FoundMigMode, ...] = ()
    """Of GPUs that show another one now; what is not known is not here."""
