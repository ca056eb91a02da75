# SPDX-License-Identifier: Apache-2.0
"""Puts the agent's parts together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orchestrator.agent.config import Config
from orchestrator.agent.gpu_switches import GpuSwitches
from orchestrator.agent.images.store import Storage
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.libvirt.connection import Libvirt
from orchestrator.agent.libvirt.domains import Domains
from orchestrator.agent.libvirt.networks import Networks
from orchestrator.agent.nvml.reading import Nvml
from orchestrator.agent.observing import Observer
from orchestrator.agent.paths import Paths
from orchestrator.agent.performing import Performer
from orchestrator.agent.sysfs.machine import boot_id
from orchestrator.agent.timing import Timing
from orchestrator.agent.vgpus import Vgpus


@dataclass(frozen=True)
class Agent:
    ledger: Ledger
    storage: Storage
    libvirt: Libvirt
    domains: Domains
    observer: Observer
    performer: Performer


def assemble(config: Config, *, root: Path, libvirt_uri: str, timing: Timing) -> Agent:
    """:raises Fatal: ``agent.ledger_unusable``, ``host.storage_failed``"""
    paths = Paths(root=root, storage=config.storage)
    ledger = Ledger(paths.ledger, site=config.site, epoch=config.epoch, boot_id=boot_id(paths))
    storage = Storage(paths, ledger)
    libvirt, nvml = Libvirt(libvirt_uri), Nvml()
    domains, networks = Domains(libvirt, ledger, timing), Networks(libvirt, ledger)
    performer = Performer(
        ledger,
        storage=storage,
        vgpus=Vgpus(paths, ledger, timing, nvml.type_names),
        switches=GpuSwitches(paths, ledger, timing, nvml),
        domains=domains,
        networks=networks,
    )
    observer = Observer(
        paths=paths, ledger=ledger, nvml=nvml, libvirt=libvirt, domains=domains, networks=networks, storage=storage
    )
    return Agent(ledger, storage, libvirt, domains, observer, performer)
