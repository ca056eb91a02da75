# SPDX-License-Identifier: Apache-2.0
"""One frame of the whole host, from the parts that read it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from orchestrator.agent.attachments.gpu_record import gpu_key
from orchestrator.agent.attachments.mig_backed import InstanceHolders
from orchestrator.agent.kernel_log import KernelLog
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.paths import Paths
from orchestrator.agent.readings.flow_log import FlowLog
from orchestrator.agent.readings.tunnels import MeasuredTunnels
from orchestrator.agent.sysfs import pci
from orchestrator.agent.sysfs.machine import driver_epoch
from orchestrator.core.errors import WorldError
from orchestrator.core.hosts.mig_layout import KEEPER
from orchestrator.core.readings.frame import PASSED_THROUGH, HostFrame, Key, Reading, arranged
from orchestrator.core.readings.quantities import FATAL_XIDS

DRIVER: Final = "nvidia"


class GpuReader(Protocol):
    """NVIDIA's driver, as it is asked again and again."""

    def read(self, gpus: Mapping[str, str]) -> tuple[Reading, ...] | None:
        """Of those that it has, PCI address → UUID. None: not now."""

    def forget(self) -> None:
        """Another one may be loaded."""


class VmReader(Protocol):
    def read(self) -> tuple[Reading, ...]:
        """Of VMs of ours. :raises WorldError: libvirt does not say"""


class InstanceVms:
    """Whose a GPU instance is."""

    def __init__(self, ledger: Ledger) -> None:
        self._holders = InstanceHolders(ledger)

    def of(self, gpu: str, start: int | None) -> str:
        """Empty: nobody's, or shared by several. ``gpu``: PCI address; ``start``: memory slot, None: not known."""
        holders = () if start is None else self._holders.of(gpu, start)
        vms = [vm for vm in holders if vm != KEEPER]
        return vms[0] if len(vms) == 1 else ""


@dataclass(kw_only=True)
class Sampler:
    """``clock``: seconds since 1970."""

    clock: Callable[[], float]
    paths: Paths
    ledger: Ledger
    nvml: GpuReader
    kernel_log: KernelLog
    domains: VmReader
    flow_log: FlowLog
    tunnels: MeasuredTunnels
    _epoch: str = field(default="", init=False)

    def sample(self) -> HostFrame | None:
        """None: GPUs are being changed, and nothing of them can be read."""
        self._notice_driver()
        drivers, uuids = pci.gpu_drivers(self.paths), self.ledger.cards.uuids()
        taken_at = self.clock()
        running = self.nvml.read({gpu: uuids.get(gpu, "") for gpu, driver in drivers.items() if driver == DRIVER})
        if running is None:
            return None
        problems: list[str] = []
        counts = {uuids.get(gpu, ""): xids for gpu, xids in self.kernel_log.xid_counts().items()}
        gpus = (*_with_xids(running, counts, least=FATAL_XIDS), *_with_xids(self._others(drivers, uuids), counts))
        readings = (*gpus, *self._vms(problems))
        logged = self.flow_log.read()
        return HostFrame(taken_at, readings, tuple(problems), logged.flows, self.tunnels.last(), logged.left_out)

    def _notice_driver(self) -> None:
        epoch = driver_epoch(self.paths)
        if epoch != self._epoch:
            self.nvml.forget()
        self._epoch = epoch

    def _others(self, drivers: Mapping[str, str | None], uuids: Mapping[str, str]) -> Iterator[Reading]:
        """GPUs that NVIDIA's driver does not have."""
        for gpu, driver in drivers.items():
            if driver == DRIVER or gpu not in uuids:
                continue
            owner = self.ledger.owner(gpu_key(gpu))
            silent = PASSED_THROUGH if driver == "vfio-pci" else f"driver {driver or 'none'} has it"
            facts = {"pci_address": gpu}
            yield Reading(
                "gpu", uuids[gpu], *arranged({}), vm="" if owner is None else owner.vm, silent=silent, facts=facts
            )

    def _vms(self, problems: list[str]) -> tuple[Reading, ...]:
        try:
            return self.domains.read()
        except WorldError as error:
            problems.append(error.message)
            return ()


def _with_xids(
    gpus: Iterable[Reading], counts: Mapping[str, Mapping[int, int]], least: Iterable[int] = ()
) -> Iterator[Reading]:
    """What the kernel log tells is told of a GPU that says nothing itself, too: Xid 79 is why it does not.

    ``counts``: by UUID. ``least``: told even where none came; of a GPU that NVIDIA's driver does not have, none could.
    """
    for reading in gpus:
        if reading.kind == "gpu":
            numbers = {**dict.fromkeys(least, 0), **counts.get(reading.id, {})}
            yield _with(reading, {("gpu_xid_total", str(xid)): float(count) for xid, count in numbers.items()})
        else:
            yield reading


def _with(reading: Reading, more: Mapping[Key, float]) -> Reading:
    keys, numbers = arranged({**dict(zip(reading.keys, reading.numbers, strict=True)), **more})
    return replace(reading, keys=keys, numbers=numbers)
