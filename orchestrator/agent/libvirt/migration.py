# SPDX-License-Identifier: Apache-2.0
"""A running domain migrates to another host's libvirt, through sockets of this host that lead there.

It arrives paused, and whoever asked resumes it once it cannot run here any more: libvirt has noted that the other host
has all of it, and its QEMU has ended. So it runs on one host at most: libvirt alone resumes it here when the other
host's answer at the end is lost, whether or not that one has begun to run it.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import libvirt

from orchestrator.agent.libvirt.connection import Libvirt, translated
from orchestrator.core.actions.live_move import LiveMove, MovedVm
from orchestrator.core.domain_xml.guest_agent import without_socket
from orchestrator.core.errors import Conflict, Fatal
from orchestrator.core.hosts.pool import DIRECTORY

log = logging.getLogger(__name__)

SOCKETS: Final = Path("/run/libvirt/qemu")
"""Where QEMU's account may make sockets, and libvirt keeps what it knows of running domains."""
LIBVIRT: Final = "libvirt"
_CONFINED: Final = ".tunnelmigrate.dest."
"""What AppArmor lets a domain's QEMU have there ends so, and with its name (virt-aa-helper)."""
_MAX_PATH: Final = 107
"""Of a unix socket's."""
_POLL_S: Final = 0.05
_PROGRESS_POLLS: Final = 5
_BACK_POLLS: Final = 1200
"""In which libvirt's daemon that died is back: a minute."""
FLAGS: Final = (
    libvirt.VIR_MIGRATE_LIVE
    | libvirt.VIR_MIGRATE_PEER2PEER
    | libvirt.VIR_MIGRATE_PAUSED
    | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE
    | libvirt.VIR_MIGRATE_NON_SHARED_INC
    | libvirt.VIR_MIGRATE_ABORT_ON_ERROR
    | libvirt.VIR_MIGRATE_AUTO_CONVERGE
)
OWN_DISK: Final = {libvirt.VIR_MIGRATE_PARAM_MIGRATE_DISKS: "vda"}
"""All that is copied of a VM whose data volumes are in pools."""
_DOWNTIME_MS: Final = (300, 600, 1200, 2500, 5000, 10_000, 20_000, 40_000, 60_000)
"""How long the guest may stand still at the end: QEMU's own limit, then more with every so many seconds that it does
not come to that."""
_PATIENCE: Final = 40
"""Looks at its progress: 10 s."""
_HAS_GONE: Final = "confirm3"
_SENT: Final = frozenset({"perform3_done", "confirm3_cancelled", _HAS_GONE})
"""Phases of a migration as libvirt writes them down (its src/qemu/qemu_migration.c) once all was sent."""


@dataclass(frozen=True)
class MoveSockets:
    """On both hosts the same but for libvirt's own."""

    directory: Path
    domain: str
    """Its name."""

    def paths(self) -> dict[str, Path]:
        """Of QEMU. :raises Fatal: ``move.name_too_long``"""
        paths = {name: self.directory / f"{name[0]}{_CONFINED}{self.domain}" for name in ("memory", "disks")}
        if max(len(str(path)) for path in paths.values()) > _MAX_PATH:
            raise Fatal(
                "move.name_too_long", f"with the name {self.domain} no socket can be made for its move",
                hint="a shorter name: 'vgpuctl vm rename --help'",
            )  # fmt: skip
        return paths

    def twins(self) -> dict[str, Path]:
        """Where it leaves."""
        return {LIBVIRT: self.directory / f"l{_CONFINED}{self.domain}", **self.paths()}

    def uris(self) -> dict[str, str]:
        """libvirt's parameters."""
        paths = self.paths()
        return {
            libvirt.VIR_MIGRATE_PARAM_URI: f"unix://{paths['memory']}",
            libvirt.VIR_MIGRATE_PARAM_DISKS_URI: f"unix://{paths['disks']}",
        }


@dataclass(frozen=True, kw_only=True)
class MoveProgress:
    """Bytes of memory, devices and disks."""

    done: int
    left: int


def arriving_text(xml: str, *, own: str, other: str, devices: Sequence[str]) -> str:
    """A running domain's definition (XML) as it is on the other host. ``own``, ``other``: the agents' directories."""
    root = ET.fromstring(xml)  # noqa: S314 - libvirt's
    for element in root.iter():
        for name, value in element.attrib.items():
            if name == "file" and value.startswith(f"{own}/"):
                element.set(name, other + value.removeprefix(own))
        if element.tag == "nvram" and (element.text or "").startswith(f"{own}/"):
            element.text = other + str(element.text).removeprefix(own)
    without_socket(root)
    sources = root.findall("./devices/hostdev/source/address")
    if len(sources) != len(devices):
        raise Conflict("vm.definition_differs", f"the VM runs with {len(sources)} host devices, not {len(devices)}")
    for address, device in zip(sources, devices, strict=True):
        if address.get("uuid") is not None:
            address.set("uuid", device)
        else:
            domain, bus, place = device.split(":")
            slot, function = place.split(".")
            address.attrib = {
                "domain": f"0x{domain}",
                "bus": f"0x{bus}",
                "slot": f"0x{slot}",
                "function": f"0x{function}",
            }
    return ET.tostring(root, encoding="unicode")


def copied_disks(xml: str, storage: str) -> tuple[str, ...] | None:
    """Targets of a running domain's disks that go with it, where others lie in pools, which its next host has too.
    None: all that it may write to go."""
    root = ET.fromstring(xml)  # noqa: S314 - libvirt's
    written = [disk for disk in root.findall("./devices/disk") if disk.find("readonly") is None]
    own = [disk for disk in written if not _source(disk).startswith(f"{storage}/{DIRECTORY}/")]
    return None if len(own) == len(written) else tuple(_target(disk) for disk in own)


def _source(disk: ET.Element) -> str:
    source = disk.find("source")
    return "" if source is None else source.get("file", "")


def _target(disk: ET.Element) -> str:
    target = disk.find("target")
    return "" if target is None else target.get("dev", "")


def migrate(
    host: Libvirt, move: LiveMove, *,
    sockets: MoveSockets, arriving: Callable[[str], tuple[str, tuple[str, ...] | None]],
    progress: Callable[[MoveProgress], bool], gone: Callable[[MovedVm], None],
) -> None:  # fmt: skip
    """Returns when libvirt has removed all of it here; ``gone`` is called before that, once it cannot run here any
    more, and nothing is raised from then on. ``arriving``: from its definition as it runs here that which it will
    have there, and :func:`copied_disks`. ``progress``: asked again and again; False ends it, and the VM runs on here.

    :raises Fatal: ``move.failed``; :raises Conflict: ``vm.not_running``, ``move.cancelled``
    :raises Unknown: ``libvirt.answer_lost``, ``move.unsettled``"""
    connection = host.open()
    try:
        domain = connection.lookupByUUIDString(move.vm)
        if domain.state()[0] != libvirt.VIR_DOMAIN_RUNNING:
            raise Conflict("vm.not_running", "the VM does not run", hint="start it first")
        parameters: dict[str, Any] = dict(sockets.uris())
        flags = libvirt.VIR_DOMAIN_XML_MIGRATABLE | libvirt.VIR_DOMAIN_XML_SECURE
        how = FLAGS
        parameters[libvirt.VIR_MIGRATE_PARAM_DEST_XML], copied = arriving(domain.XMLDesc(flags))
        if copied:
            parameters[libvirt.VIR_MIGRATE_PARAM_MIGRATE_DISKS] = list(copied)
        elif copied is not None:
            how &= ~libvirt.VIR_MIGRATE_NON_SHARED_INC
        if move.max_bytes_per_s is not None:
            parameters[libvirt.VIR_MIGRATE_PARAM_BANDWIDTH] = max(1, move.max_bytes_per_s // 1024**2)
        target = f"qemu+unix:///system?socket={sockets.twins()[LIBVIRT]}"
        with _process_of(sockets) as process:
            pause_ms = move.max_pause_ms or _DOWNTIME_MS[0]
            _Migration(domain, target, parameters, how, pause_ms, process).run(progress, gone)
    except libvirt.libvirtError as error:
        raise translated(error, "move.failed", f"the VM did not move: {error}", "the details hold it whole") from error
    finally:
        connection.close()


@dataclass(frozen=True)
class QemuProcess:
    """Of a domain that leaves, without asking libvirt: it answers nothing about a domain while it takes down the packet
    filter, vGPUs and cgroup of one that has left, and that may take minutes."""

    status: Path
    """What libvirt would need of it after a restart of its own."""
    pidfd: int

    def phase(self) -> str:
        """Of the migration; empty: not known."""
        with suppress(OSError, ET.ParseError):
            job = ET.parse(self.status).find("./job")  # noqa: S314 - libvirt's
            return "" if job is None else job.get("phase", "")
        return ""

    def has_ended(self) -> bool:
        """Whatever it had in memory is not here any more."""
        return bool(select.select([self.pidfd], [], [], 0)[0])


@contextmanager
def _process_of(sockets: MoveSockets) -> Iterator[QemuProcess | None]:
    """None: it cannot be followed, and libvirt alone says when it has gone."""
    try:
        pid = int((sockets.directory / f"{sockets.domain}.pid").read_text())
        pidfd = os.pidfd_open(pid)
    except (OSError, ValueError) as error:
        log.warning("the QEMU of %s cannot be followed: %s", sockets.domain, error)
        yield None
        return
    try:
        yield QemuProcess(sockets.directory / f"{sockets.domain}.xml", pidfd)
    finally:
        os.close(pidfd)


class _Migration:
    def __init__(
        self, domain: Any, target: str, parameters: dict[str, Any], flags: int, pause_ms: int,
        process: QemuProcess | None,
    ) -> None:  # fmt: skip
        self._domain, self._target, self._parameters, self._flags = domain, target, parameters, flags
        self._pause_ms = pause_ms
        self._process = process
        self._error: Exception | None = None
        self._ended = threading.Event()
        self._unwanted = self._cancelled = False
        self._polls = 0
        self._copied = 0
        """Looks since all of its memory was sent once: to start QEMU there and to copy disks takes what it takes."""
        self._reached = MoveProgress(done=0, left=0)
        self._phase = ""
        self._ran_at = time.monotonic()
        """Last that it was seen to."""
        self._stopped_at: float | None = None

    def run(self, progress: Callable[[MoveProgress], bool], gone: Callable[[MovedVm], None]) -> None:
        thread = threading.Thread(target=self._migrate, name="migration", daemon=True)
        thread.start()
        asking = threading.Thread(target=self._ask, name="migration's progress", daemon=True)
        asking.start()
        polls, waited, confirmed = 0, 0, False
        while waited < _BACK_POLLS:
            thread.join(_POLL_S)
            alive = thread.is_alive()
            polls += 1
            ended = self._process is not None and self._process.has_ended()
            self._phase = self._phase_now(still=ended or not alive)
            confirmed = confirmed or self._phase == _HAS_GONE  # a daemon that is back removes the file that says so
            if ended and confirmed:
                gone(self._moved())
                thread.join()
                log.info("libvirt has removed a domain that has left: %s", self._error or "done")
                return
            if not polls % _PROGRESS_POLLS and not progress(self._reached):
                self._unwanted = True
            if not alive:
                if self._error is None or not confirmed:
                    break
                waited += 1  # libvirt's daemon has died, and ends the domain when it is back
                time.sleep(_POLL_S)
        asking.join()
        if self._error is None:
            gone(self._moved())
        elif self._cancelled:
            raise Conflict("move.cancelled", "the move was ended; the VM runs on where it was") from self._error
        else:
            raise self._error

    def _phase_now(self, *, still: bool) -> str:
        """Of one that stands still, whose QEMU has ended or that libvirt says no more of: its file is written often
        before that."""
        still = still or self._stopped_at is not None
        return self._process.phase() if self._process is not None and still else ""

    def _moved(self) -> MovedVm:
        """It stands still since it was not seen to run any more: libvirt may not have said that it has stopped."""
        paused_s = time.monotonic() - (self._stopped_at or self._ran_at)
        return MovedVm(sent_bytes=self._reached.done, paused_ms=round(paused_s * 1000))

    def _migrate(self) -> None:
        try:
            self._domain.migrateToURI3(self._target, self._parameters, self._flags)
        except libvirt.libvirtError as error:
            self._error = error
        finally:
            self._ended.set()

    def _ask(self) -> None:
        """On a thread of its own: libvirt answers nothing about the domain while it cleans up."""
        while not self._ended.wait(_POLL_S):
            self._polls += 1
            with suppress(libvirt.libvirtError):  # it has ended meanwhile
                self._see_to_it()

    def _see_to_it(self) -> None:
        reports = not self._polls % _PROGRESS_POLLS
        sends = self._reached.done > 0  # and so may stop: until then the other host's QEMU starts
        if self._stopped_at is None and (reports or sends):
            asked_at = time.monotonic()
            if self._domain.state()[0] != libvirt.VIR_DOMAIN_RUNNING:
                self._stopped_at = asked_at
                return
            self._ran_at = asked_at
        if not reports or self._phase in _SENT:  # there is nothing left to end
            return
        stats = self._domain.jobStats()
        self._reached = _progress(stats)
        if self._unwanted and not self._cancelled:
            self._domain.abortJob()
            self._cancelled = True
        self._copied += int(stats.get(libvirt.VIR_DOMAIN_JOB_MEMORY_ITERATION, 0)) > 1
        if self._polls == _PROGRESS_POLLS or (self._copied and self._copied % _PATIENCE == 0):
            step = min(self._copied // _PATIENCE, len(_DOWNTIME_MS) - 1)
            self._domain.migrateSetMaxDowntime(max(self._pause_ms, _DOWNTIME_MS[step]))


def _progress(stats: dict[str, Any]) -> MoveProgress:
    return MoveProgress(
        done=int(stats.get(libvirt.VIR_DOMAIN_JOB_DATA_PROCESSED, 0)),
        left=int(stats.get(libvirt.VIR_DOMAIN_JOB_DATA_REMAINING, 0)),
    )
