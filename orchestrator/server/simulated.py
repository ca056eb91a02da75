# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl serve --simulate FLEET``: the server as it is, in front of hosts that another process simulates."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from orchestrator.adapters.controllers.images import FetchedImages
from orchestrator.adapters.state.keys import HostKeyFiles
from orchestrator.core.actions.host_actions import ImageFormat
from orchestrator.core.errors import Fatal, InvalidInput, error_from_dict
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.core.tenancy.tenant import digest_of
from orchestrator.core.vms.image import NewImage
from orchestrator.operations.gpu_health import judge_gpus
from orchestrator.server.bootstrap import IN_MEMORY_SITE, App, build
from orchestrator.server.reach import Reach, images_of
from orchestrator.server.settings import Settings
from orchestrator.services.messages import HostKey
from orchestrator.sim.fleet import DOMAIN
from orchestrator.sim.guests import SimulatedGuests
from orchestrator.sim.hosts_link import HostsLink
from orchestrator.sim.in_memory import InMemoryImages, new_host, record_enrolled, scan
from orchestrator.store.database import Store

IMAGE: Final = "demo"
_LOOKS_AT_ONCE: Final = 4
_AHEAD: Final = 200
"""Snapshots in memory at a time."""
SOCKET_NAME: Final = "hosts.sock"
PROCESS: Final = "orchestrator.sim.hosts_process"


class _Images(FetchedImages):
    """All but one are files."""

    def has(self, sha256: str, image_format: ImageFormat) -> bool:
        return sha256 == digest_of(IMAGE) or super().has(sha256, image_format)


@contextmanager
def simulated_hosts(fleet: Path, settings: Settings) -> Iterator[Path]:
    """The socket of a process that simulates the hosts: a new one for as long as the block lasts when ``fleet`` is a
    file, or the one whose socket it is.

    :raises InvalidInput: ``fleet.invalid``, ``serve.own_database``; :raises Fatal: ``fleet.differs``, ``fleet.ended``
    """
    if fleet.is_socket():
        yield fleet
        return
    if settings.database_server is not None:
        raise InvalidInput(
            "serve.own_database",
            "a database server may have several controllers, and each would simulate other hosts",
            hint=f"'python -m {PROCESS} FLEET SOCKET DIRECTORY' simulates them for all: give the socket to each",
        )
    socket = settings.state / SOCKET_NAME
    # In a session of its own: Ctrl-C is for the server, whose running steps need their hosts until they have ended.
    with subprocess.Popen(
        [sys.executable, "-I", "-m", PROCESS, fleet, socket, settings.state / "machines"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
    ) as process:  # fmt: skip
        line = b"" if process.stdout is None else process.stdout.readline()
        if not line:
            raise Fatal(
                "fleet.ended",
                "the process that simulates the hosts has ended",
                hint="its last words are above this line",
            )
        if error := json.loads(line):
            raise error_from_dict(error)
        yield socket


def build_without_hosts(settings: Settings, socket: Path) -> App:
    """The control plane over the hosts behind a socket; those that are not in the database yet are put there, ready.

    :raises Conflict: ``serve.real_state``: this state directory or database serves real hosts
    """

    def reach(settings: Settings, store: Store) -> Reach:
        return _reach(settings, store, socket)

    return build(settings, reach, site_prefix=IN_MEMORY_SITE)


def _reach(settings: Settings, store: Store, socket: Path) -> Reach:
    link = HostsLink(socket, site=store.site)
    _enrol(store, link)

    images = images_of(settings, store, _Images)

    def scan_here(address: str, port: int) -> HostKey:
        link.locate(address)
        return scan(address, port)

    return Reach(
        link=link,
        configurator=link,
        guests=SimulatedGuests(),
        scan_key=scan_here,
        keys=HostKeyFiles(settings.state / "secrets" / "hosts", store),
        images=images,
        rounds={"images": images.round},
        close=link.close,
    )


def _enrol(store: Store, link: HostsLink) -> None:
    now = time.time()
    with store.begin() as tx:
        known = tx.hosts.addresses()
        if all(image.name != IMAGE for image in tx.images.list()):
            tx.images.add(InMemoryImages().named(NewImage(name=IMAGE, source=IMAGE), now))
    new, ill = link.enrol(known), dict[str, HostSnapshot]()

    def look(address: str) -> tuple[str, str, HostSnapshot]:
        name = address.removesuffix(DOMAIN)
        return name, address, link.observe(new_host(name, address, None, (), now))

    def seen() -> Iterator[tuple[str, str, HostSnapshot]]:
        """Some are on their way while others are written."""
        with ThreadPoolExecutor(_LOOKS_AT_ONCE) as pool:
            for at in range(0, len(new), _AHEAD):
                for name, address, snapshot in pool.map(look, new[at : at + _AHEAD]):
                    if any(gpu.signals for gpu in snapshot.gpus):
                        ill[name] = snapshot
                    yield name, address, snapshot

    record_enrolled(store, seen(), now)
    with store.begin() as tx:
        for name, snapshot in ill.items():
            judge_gpus(tx, tx.hosts.get(name), snapshot, now)
