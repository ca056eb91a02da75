# SPDX-License-Identifier: Apache-2.0
"""Puts the agent's parts together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orchestrator.agent.attachments import kinds_of
from orchestrator.agent.attachments.device_files import DeviceFiles
from orchestrator.agent.config import Config
from orchestrator.agent.dcgm import Dcgm
from orchestrator.agent.fabric.fmpm import Fmpm
from orchestrator.agent.gpu_settings import SettingDrivers
from orchestrator.agent.gpu_switches import Chosen, GpuSwitches
from orchestrator.agent.images.store import Storage, holds_files
from orchestrator.agent.kernel_log import KernelLog
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.libvirt.connection import Libvirt
from orchestrator.agent.libvirt.console_log import ConsoleLogs
from orchestrator.agent.libvirt.domains import Domains
from orchestrator.agent.libvirt.networks import LibvirtNetworks
from orchestrator.agent.nic_links import IpLinks
from orchestrator.agent.nics import NicFunctions
from orchestrator.agent.nvml import gpu_settings
from orchestrator.agent.nvml.mig import NvmlMig
from orchestrator.agent.nvml.reading import Nvml
from orchestrator.agent.observing import Observer
from orchestrator.agent.paths import Paths
from orchestrator.agent.performing import Parts, Performer
from orchestrator.agent.restore import Restorer
from orchestrator.agent.sessions import Sessions
from orchestrator.agent.settling import Settler
from orchestrator.agent.sysfs.bridges import HostBridges
from orchestrator.agent.sysfs.machine import driver_epoch
from orchestrator.agent.timing import Timing
from orchestrator.agent.turns import Turns
from orchestrator.agent.vgpu_parameters import VgpuParameterFiles
from orchestrator.agent.wanted import RestoreList


@dataclass(frozen=True)
class Agent:
    ledger: Ledger
    storage: Storage
    libvirt: Libvirt
    domains: Domains
    observer: Observer
    performer: Performer
    restorer: Restorer
    logs: ConsoleLogs
    sessions: Sessions


def assemble(config: Config, *, root: Path, libvirt_uri: str, timing: Timing) -> Agent:
    """:raises Fatal: ``agent.ledger_unusable``, ``host.storage_failed``"""
    paths = Paths(root=root, storage=config.storage)
    booted = driver_epoch(paths)
    libvirt, nvml = Libvirt(libvirt_uri), Nvml()
    ledger = Ledger(
        paths.ledger, site=config.site, epoch=config.epoch, boot_id=booted, found=holds_files(paths), cards=nvml.cards
    )
    storage = Storage(paths, ledger)
    bridges = HostBridges(paths)
    domains = Domains(libvirt, ledger, timing, is_plugged=bridges.is_plugged)
    networks = LibvirtNetworks(libvirt, ledger, bridges)
    mig = NvmlMig(nvml)
    files = DeviceFiles(paths, ledger, timing, nvml.type_names)
    kinds = kinds_of(files, mig, nvml)
    settings = SettingDrivers(schedulers=gpu_settings.schedulers(nvml), mixed_sizes=gpu_settings.mixed_sizes(nvml))
    switches = GpuSwitches(paths, ledger, timing, nvml, kinds, Chosen(mig, settings))
    turns, wanted = Turns(), RestoreList(paths, ledger, booted)
    nics = NicFunctions(files, IpLinks())
    settler = Settler(ledger, storage, kinds, domains, nics, switches)
    parameters = VgpuParameterFiles(files, kinds)
    logs, sessions = ConsoleLogs(paths), Sessions()
    handlers = Parts(paths, storage, kinds, switches, domains, networks, settler, parameters, logs, nics).handlers
    return Agent(
        ledger=ledger,
        storage=storage,
        libvirt=libvirt,
        domains=domains,
        observer=Observer(
            paths=paths,
            ledger=ledger,
            kinds=kinds,
            nvml=nvml,
            libvirt=libvirt,
            domains=domains,
            networks=networks,
            storage=storage,
            wanted=wanted,
            kernel_log=KernelLog(paths, ledger),
            fabric=Fmpm(paths),
            nics=nics,
            dcgm=Dcgm(paths),
            sessions=sessions,
        ),
        performer=Performer(ledger, turns, wanted, handlers),
        restorer=Restorer(
            wanted,
            turns,
            timing,
            handlers,
        ),
        logs=logs,
        sessions=sessions,
    )
