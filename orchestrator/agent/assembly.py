# SPDX-License-Identifier: Apache-2.0
"""The agent's configuration, written at enrolment, and its parts put together."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from orchestrator.agent.attachments import kinds_of
from orchestrator.agent.attachments.device_files import DeviceFiles
from orchestrator.agent.fabric.fmpm import Fmpm
from orchestrator.agent.gpu_settings import VgpuParameterFiles
from orchestrator.agent.gpu_switches import Chosen, GpuSwitches
from orchestrator.agent.images.store import Storage, holds_files
from orchestrator.agent.kernel_log import KernelLog
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.libvirt.connection import Libvirt
from orchestrator.agent.libvirt.console_keeping import HOURS, MIB, ConsoleBounds, ConsoleKeeper
from orchestrator.agent.libvirt.consoles import Console, ConsoleLogs
from orchestrator.agent.libvirt.domain_readings import DomainReadings
from orchestrator.agent.libvirt.domains import Domains
from orchestrator.agent.libvirt.networks import LibvirtNetworks
from orchestrator.agent.libvirt.saved_memory import SavedMemory
from orchestrator.agent.libvirt.shared_consoles import SharedConsoles
from orchestrator.agent.live_moves import LiveMoves
from orchestrator.agent.nic_links import IpLinks
from orchestrator.agent.nics import NicFunctions
from orchestrator.agent.nvml.gpu_settings import power_driver, setting_drivers
from orchestrator.agent.nvml.mig import NvmlMig
from orchestrator.agent.nvml.reading import Nvml
from orchestrator.agent.nvml.sampling import NvmlSampler
from orchestrator.agent.observing import Dcgm, Observer
from orchestrator.agent.paths import Paths
from orchestrator.agent.performing import Parts, Performer
from orchestrator.agent.readings.broadcast import Readings
from orchestrator.agent.readings.flow_log import FlowLog
from orchestrator.agent.readings.sampler import InstanceVms, Sampler
from orchestrator.agent.readings.tunnels import MeasuredTunnels
from orchestrator.agent.restore import Restorer
from orchestrator.agent.sessions import Sessions
from orchestrator.agent.settling import Settler
from orchestrator.agent.sysfs.bridges import HostBridges
from orchestrator.agent.sysfs.machine import driver_epoch
from orchestrator.agent.timing import Timing
from orchestrator.agent.turns import Turns
from orchestrator.agent.wanted import RestoreList
from orchestrator.core.errors import InvalidInput

_FIELDS = {"site": str, "epoch": int, "storage": str}
_OPTIONAL = {"console_hours": int, "console_mib": int}
"""Configurations of older versions do not have them."""


@dataclass(frozen=True)
class Config:
    """``site``: id of the control plane this host obeys. ``epoch``: the lowest fencing epoch it accepts. ``consoles``:
    how much of what guests print is kept."""

    site: str
    epoch: int
    storage: Path
    consoles: ConsoleBounds = field(default_factory=ConsoleBounds)


def read_config(path: Path) -> Config:
    """:raises InvalidInput: ``agent.config_invalid``"""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _invalid(path, str(error)) from error
    if not isinstance(data, dict) or not set(_FIELDS) <= set(data) <= {*_FIELDS, *_OPTIONAL}:
        raise _invalid(path, f"it must hold {', '.join(_FIELDS)}, and may hold {', '.join(_OPTIONAL)}")
    for name, kind in {**_FIELDS, **_OPTIONAL}.items():
        if name in data and type(data[name]) is not kind:
            raise _invalid(path, f"{name} must be of type {kind.__name__}")
    if not data["site"] or not Path(data["storage"]).is_absolute():
        raise _invalid(path, "site must not be empty and storage must be an absolute path")
    hours, mib = data.get("console_hours", HOURS), data.get("console_mib", MIB)
    if hours < 1 or mib < 1:
        raise _invalid(path, "console_hours and console_mib must be 1 or more")
    return Config(
        site=data["site"], epoch=data["epoch"], storage=Path(data["storage"]), consoles=ConsoleBounds(hours, mib)
    )


def _invalid(path: Path, why: str) -> InvalidInput:
    return InvalidInput(
        "agent.config_invalid", f"{path} cannot be used: {why}", hint="enrol the host again: 'vgpuctl host add --help'"
    )


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
    console_keeper: ConsoleKeeper
    consoles: SharedConsoles
    sessions: Sessions
    readings: Readings
    tunnels: MeasuredTunnels
    live_moves: LiveMoves


def assemble(config: Config, *, root: Path, libvirt_uri: str, timing: Timing) -> Agent:
    """:raises Fatal: ``agent.ledger_unusable``, ``host.storage_failed``"""
    paths = Paths(root=root, storage=config.storage)
    booted = driver_epoch(paths)
    libvirt, nvml = Libvirt(libvirt_uri), Nvml()
    ledger = Ledger(
        paths.ledger, site=config.site, epoch=config.epoch, boot_id=booted, found=holds_files(paths), cards=nvml.cards
    )
    storage = Storage(paths, ledger)
    tunnels = MeasuredTunnels(paths, timing)
    bridges = HostBridges(paths, tunnels=tunnels)
    domains = Domains(libvirt, ledger, timing, is_plugged=bridges.is_plugged)
    networks = LibvirtNetworks(libvirt, ledger, bridges)
    mig = NvmlMig(nvml)
    files = DeviceFiles(paths, ledger, timing, nvml.type_names)
    kinds = kinds_of(files, mig, nvml)
    switches = GpuSwitches(paths, ledger, timing, nvml, kinds, Chosen(mig, setting_drivers(nvml), power_driver(nvml)))
    turns, wanted = Turns(), RestoreList(paths, ledger, booted)
    nics = NicFunctions(files, IpLinks())
    settler = Settler(ledger, storage, kinds, domains, nics, switches)
    parameters = VgpuParameterFiles(files, kinds)
    logs, sessions, kernel_log = ConsoleLogs(paths), Sessions(), KernelLog(paths, ledger)
    saved = SavedMemory(libvirt, domains, ledger, storage.directory)
    parts = Parts(paths, storage, kinds, switches, domains, networks, settler, parameters, logs, nics, saved)
    handlers = parts.handlers
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
            kernel_log=kernel_log,
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
        live_moves=LiveMoves(
            libvirt, domains, wanted, storage.directory, parts.belongings.check_started, networks.reserve
        ),
        logs=logs,
        console_keeper=ConsoleKeeper(paths, libvirt, config.consoles),
        consoles=SharedConsoles(partial(Console, libvirt)),
        sessions=sessions,
        readings=Readings(
            Sampler(
                clock=time.time,
                paths=paths,
                ledger=ledger,
                nvml=NvmlSampler(nvml, InstanceVms(ledger).of),
                kernel_log=kernel_log,
                domains=DomainReadings(libvirt, ledger),
                flow_log=FlowLog(paths.root / "var/log/ovn/ovn-controller.log"),
                tunnels=tunnels,
            ).sample
        ),
        tunnels=tunnels,
    )
