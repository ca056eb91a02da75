# SPDX-License-Identifier: Apache-2.0
"""One device of a VM, as it was drawn: what it is, on which GPU, and what its host calls it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DeviceKind = Literal["mdev", "vendor_vfio"]
"""How it reaches the VM; each is a file in core/attachments and one in agent/attachments."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """Drawn and stored before the first effect; exists on its host while the VM runs."""

    kind: DeviceKind
    gpu: str
    """PCI address of the physical GPU."""
    parent: str
    """PCI address it is made on: the GPU or one of its virtual functions."""
    type_name: str
    name: str
    """What the domain's ``<hostdev>`` calls it: a UUID of its own, or the PCI address of ``parent``."""

    @property
    def function(self) -> str | None:
        """The virtual function that is the device's alone; None when it shares the GPU's own function."""
        return self.parent if self.parent != self.gpu else None


@dataclass(frozen=True, kw_only=True)
class ObservedDevice:
    """A device that exists on a host, whoever made it."""

    device: Device
    owner: str | None
    """VM id from the agent's ledger; None: not ours."""
    in_use: bool
    """A process holds it, or nobody can tell; a running domain may hold it either way."""
