# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl serve --simulate FLEET``: the server as it is, in front of hosts that only exist in its memory."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from orchestrator.adapters.images.library import ImageLibrary
from orchestrator.adapters.state.keys import HostKeyFiles
from orchestrator.adapters.store.database import SqlStore
from orchestrator.bootstrap import PAPER_SITE, App, Reach, build
from orchestrator.catalogue.catalogue import Catalogue, shipped
from orchestrator.catalogue.geometries import KINDS
from orchestrator.core.errors import InvalidInput
from orchestrator.services.messages import HostKey
from orchestrator.settings import Settings
from orchestrator.sim.enrolment import record_enrolled
from orchestrator.sim.fleet import Fleet, enrolled, new_machine
from orchestrator.sim.hardware import GpuKind, gpu_kind
from orchestrator.sim.kept import KeptMachines
from orchestrator.sim.live_link import LiveLink
from orchestrator.sim.machine import Machine
from orchestrator.sim.paper import PaperImages, scan
from orchestrator.simulate_placement.fleet_file import Group, host_names, read_groups

IMAGE = "demo"
_DOMAIN = ".test"
"""Reserved for what does not exist (RFC 2606)."""


def build_without_hosts(settings: Settings, fleet_file: Path) -> App:
    """The control plane over the hosts of the fleet file; those that are not in the database yet are put there, ready.

    :raises InvalidInput: ``fleet.invalid``, ``serve.own_database``
    :raises Conflict: ``serve.real_state``: this state directory serves real hosts
    """
    if settings.database_url is not None:
        raise InvalidInput(
            "serve.own_database", "simulated hosts are kept in SQLite only", hint="unset VGPUCTL_DATABASE_URL"
        )
    catalogue = shipped()
    groups = read_groups(fleet_file, catalogue)

    def reach(settings: Settings, store: SqlStore) -> Reach:
        return _reach(settings, store, groups, catalogue)

    return build(settings, reach, site_prefix=PAPER_SITE)


def _reach(settings: Settings, store: SqlStore, groups: tuple[Group, ...], catalogue: Catalogue) -> Reach:
    fleet, kept = Fleet(), KeptMachines(settings.state / "machines")
    for name, machine in _machines(groups, catalogue):
        fleet.add(f"{name}{_DOMAIN}", machine)
    _enrol(store, fleet, kept)
    link = LiveLink(fleet, kept, site=store.site)

    def scan_here(address: str, port: int) -> HostKey:
        fleet.machine(address)
        return scan(address, port)

    return Reach(
        link=link,
        configurator=link,
        scan_key=scan_here,
        keys=HostKeyFiles(settings.state / "secrets" / "hosts"),
        images=ImageLibrary(settings.state / "images"),
    )


def _machines(groups: tuple[Group, ...], catalogue: Catalogue) -> Iterator[tuple[str, Machine]]:
    for number, group in enumerate(groups):
        kinds = [_kind(group, catalogue)] * group.gpus_per_host
        for name in host_names(group, number):
            yield name, new_machine(_index(name), kinds, vcpus=group.vcpus, memory_mib=int(group.memory_gib * 1024))


def _kind(group: Group, catalogue: Catalogue) -> GpuKind:
    """The model with the vGPU types that the group allows."""
    kind = gpu_kind(catalogue, group.gpu_model)
    allowed = {KINDS[mode] for mode in group.modes_allowed}
    return kind if "time_sliced" in allowed else replace(kind, types=())


def _index(name: str) -> int:
    """The same for the same name, whatever else the fleet file says."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])


def _enrol(store: SqlStore, fleet: Fleet, kept: KeptMachines) -> None:
    now = time.time()
    with store.begin() as tx:
        known = {host.address for host in tx.hosts.list()}
        if all(image.name != IMAGE for image in tx.images.list()):
            tx.images.add(PaperImages().take(IMAGE, IMAGE, None, now))
    new = []
    for address, machine in fleet.machines.items():
        seen = kept.restore(address, machine)
        if address not in known or not seen:
            enrolled(machine, store.site)
        if address not in known:
            new.append((address.removesuffix(_DOMAIN), address, machine))
    record_enrolled(store, new, now)
