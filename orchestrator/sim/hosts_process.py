# SPDX-License-Identifier: Apache-2.0
"""``python -m orchestrator.sim.hosts_process FLEET SOCKET DIRECTORY``: simulated hosts in a process of their own.

What they cost is no cost of the server then, and several servers of one database reach the same hosts. It says
``{}`` in a line once it listens, or the error, and ends when its standard input does: with whoever started it.

Frames as an agent's (core/protocol). ``{"hello": {"site": …}}`` opens a connection; then, one at a time,
``{"method": …, "host": …, "params": …}`` is answered by ``{"result": …}`` or ``{"error": …}``.
"""

from __future__ import annotations

import argparse
import base64
import dataclasses
import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeVar

from orchestrator.catalogue.catalogue import shipped
from orchestrator.client.location import bind_for_owner
from orchestrator.core.actions.live_move import LiveMove
from orchestrator.core.actions.volume_copy import VolumeCopy
from orchestrator.core.drivers.host_drivers import DriverFile, HostDrivers
from orchestrator.core.errors import Retryable, VgpuctlError, error_to_dict
from orchestrator.core.gpu.vgpu_metadata import VgpuQuestion, answers_to_dict
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import DomainSnapshot
from orchestrator.core.ovn import HostInOvn
from orchestrator.core.protocol import encode_frame, read_frame
from orchestrator.core.readings.frame import frame_to_dict
from orchestrator.core.wire import (
    action_from_dict,
    domain_to_dict,
    look_to_dict,
    result_to_dict,
    things_to_dict,
    token_from_dict,
    unless_known,
)
from orchestrator.sim.fleet import SimulatedFleet, enrolled, fleet_of
from orchestrator.sim.machine import SimulatedMachine
from orchestrator.sim.machine_files import MachineFiles
from orchestrator.sim.machine_link import OBSERVE, MachineLink
from orchestrator.sim.observing import snapshot_of

T = TypeVar("T")

_LOCKS: Final = 64


class _Unchanged(NamedTuple):
    """A look that found what its asker knew."""

    digest: str
    frame: bytes


def _runs(domain: DomainSnapshot) -> bool:
    return domain.state == "running"


class LiveMachines:
    """All machines of one fleet. Safe to call from many threads."""

    def __init__(self, fleet: SimulatedFleet, kept: MachineFiles) -> None:
        """:raises Fatal: ``fleet.differs``"""
        self.fleet = fleet
        self._kept = kept
        self._touched = {address for address, machine in fleet.machines.items() if kept.restore(address, machine)}
        self._locks = tuple(threading.Lock() for _ in range(_LOCKS))
        """By index of the machine: thousands of machines need no lock each."""
        self._looks: dict[str, _Unchanged] = {}

    def call(self, address: str, name: str, work: Callable[[SimulatedMachine], T]) -> T:
        """Do ``work`` on the machine; what it did is kept when it returns.

        :raises Retryable: ``host.unreachable``
        """
        machine = self._at(address)
        with self._locks[machine.index % _LOCKS]:
            machine.now = time.time()
            try:
                return work(machine)
            finally:
                if name != OBSERVE:
                    self._looks.pop(address, None)
                    self._touched.add(address)
                    self._kept.keep(address, machine)

    def look(self, address: str, check: Callable[[SimulatedMachine], SimulatedMachine], known: str | None) -> bytes:
        """The frame that answers a look. That nothing has changed is found out once for as long as nothing happens
        there: this process shares the processors with the server."""

        def written(machine: SimulatedMachine) -> bytes:
            check(machine)
            kept = self._looks.get(address)
            if kept is not None and kept.digest == known:
                return kept.frame
            snapshot = snapshot_of(machine)
            answer = unless_known(snapshot, known)
            frame = encode_frame({"result": look_to_dict(answer)})
            if (
                known
                and answer is not snapshot
                and not machine.pools  # what other machines do there changes what this one shows
                and all(domain.addresses for domain in snapshot.domains if _runs(domain))
            ):
                self._looks[address] = _Unchanged(known, frame)
            return frame

        return self.call(address, OBSERVE, written)

    def enrol(self, site: str, unknown: frozenset[str]) -> None:
        """Make ready for ``site`` what is ``unknown`` to it, and the machines on which nothing has happened yet."""
        for address, machine in self.fleet.machines.items():
            if address in unknown or (address not in self._touched and machine.ledger.site != site):
                enrolled(machine, site)
                self._looks.pop(address, None)

    def _at(self, address: str) -> SimulatedMachine:
        if address not in self.fleet.machines:
            raise Retryable(
                "host.unreachable", f"{address} cannot be reached", details="the fleet file has no such host"
            )
        return self.fleet.machines[address]


class LiveLink(MachineLink):
    """One server's way to them."""

    def __init__(self, machines: LiveMachines, *, site: str) -> None:
        super().__init__(site=site)
        self._machines = machines

    def answer(self, host: Host, known: str | None) -> bytes:
        """A fresh observation of the whole host, as the frame that answers it."""
        return self._machines.look(host.address, self._ours, known)

    def _call(self, host: Host, name: str, work: Callable[[SimulatedMachine], T]) -> T:
        return self._machines.call(host.address, name, work)


Message = dict[str, Any]

_BACKLOG: Final = 256


def machines_of(fleet_file: Path, directory: Path) -> LiveMachines:
    """The fleet file's machines with what happened on them before.

    :raises InvalidInput: ``fleet.invalid``; :raises Fatal: ``fleet.differs``
    """
    return LiveMachines(fleet_of(fleet_file, shipped()), MachineFiles(directory))


def serve_connection(machines: LiveMachines, connection: socket.socket) -> None:
    """Until the server at the other end closes it."""
    with connection, connection.makefile("rb") as reader:
        hello: Message | None = read_frame(reader)
        if hello is None:
            return
        session = _Session(machines, hello["hello"]["site"])
        try:
            while (request := read_frame(reader)) is not None:
                connection.sendall(session.answer(request))
        except (BrokenPipeError, ConnectionResetError):
            return  # the server was killed


class _Session:
    def __init__(self, machines: LiveMachines, site: str) -> None:
        self._machines = machines
        self._site = site
        self._link = LiveLink(machines, site=site)
        self._methods: dict[str, Callable[[Host, Message], Message]] = {
            "observe_domain": lambda host, params: domain_to_dict(self._link.observe_domain(host, params["vm"])),
            "things_of": lambda host, params: things_to_dict(self._link.things_of(host, params["vm"])),
            "vgpu_compatibility": lambda host, params: answers_to_dict(
                self._link.vgpu_compatibility(host, [VgpuQuestion(*pair) for pair in params["questions"]])
            ),
            "readings": self._readings,
            "console_log": lambda host, params: {
                "text": self._link.console_log(host, params["vm"], params["most"]).decode()
            },
            "perform": self._perform,
            "send_image": self._send_image,
            "read_snapshot": self._read_snapshot,
            "give_volume": self._give_volume,
            "take_volume": self._take_volume,
            "move_load": lambda host, params: dataclasses.asdict(self._link.move_load(host, params["vm"])),
            "await_vm": partial(self._move, "await_vm"),
            "leave_vm": partial(self._move, "leave_vm"),
            "install_agent": self._install,
            "remove_agent": self._remove,
            "provision": self._provision,
            "join_ovn": self._join_ovn,
        }

    def answer(self, request: Message) -> bytes:
        try:
            return self._answer(request["method"], request["host"], request["params"])
        except VgpuctlError as error:
            return encode_frame({"error": error_to_dict(error)})

    def _answer(self, method: str, host: Message, params: Message) -> bytes:
        if method == "enrol":
            return encode_frame({"result": self._enrol(params)})
        if method == "locate":
            self._machines.fleet.machine(params["address"])
            return encode_frame({"result": {}})
        if method == "observe":
            return self._link.answer(Host(**host), params["known"])
        return encode_frame({"result": self._methods[method](Host(**host), params)})

    def _enrol(self, params: Message) -> Message:
        """Addresses that the server does not know yet; from now on all obey it."""
        known = frozenset(params["known"])
        new = [address for address in self._machines.fleet.machines if address not in known]
        self._machines.enrol(self._site, frozenset(new))
        return {"new": new}

    def _readings(self, host: Host, _params: Message) -> Message:
        frame = self._link.readings(host)
        slow = self._machines.fleet.machine(host.address).readings == "slow"
        return {"frame": None if frame is None else frame_to_dict(frame), "slow": slow}

    def _perform(self, host: Host, params: Message) -> Message:
        action, token = action_from_dict(params["action"]), token_from_dict(params["token"])
        return result_to_dict(self._link.perform(host, action, token))

    def _send_image(self, host: Host, params: Message) -> Message:
        token = token_from_dict(params["token"])
        image = (Path(params["path"]), params["sha256"], params["format"])
        return result_to_dict(self._link.send_image(host, *image, token))

    def _read_snapshot(self, host: Host, params: Message) -> Message:
        of = (params["vm"], params["volume"], token_from_dict(params["token"]))
        return {"content": base64.b64encode(b"".join(self._link.read_snapshot(host, *of))).decode()}

    def _give_volume(self, host: Host, params: Message) -> Message:
        copy, token = VolumeCopy(**params["copy"]), token_from_dict(params["token"])
        return {"variables": self._link.give_volume(host, copy, token)}

    def _take_volume(self, host: Host, params: Message) -> Message:
        copy, token = VolumeCopy(**params["copy"]), token_from_dict(params["token"])
        return result_to_dict(self._link.take_volume(host, copy, token, variables=params["variables"]))

    def _move(self, half: Literal["await_vm", "leave_vm"], host: Host, params: Message) -> Message:
        move, token = params["move"], token_from_dict(params["token"])
        wanted = LiveMove(**{**move, "devices": tuple(move["devices"])})
        done = (self._link.await_vm if half == "await_vm" else self._link.leave_vm)(host, wanted, token)
        return dataclasses.asdict(done)

    def _install(self, host: Host, params: Message) -> Message:
        self._link.install_agent(host, tuple(params["gpus"]), _unheard, take_over=params["take_over"])
        return {}

    def _remove(self, host: Host, _params: Message) -> Message:
        self._link.remove_agent(host, _unheard)
        return {}

    def _provision(self, host: Host, params: Message) -> Message:
        wanted = params["wanted"]
        files = {name: wanted[name] and DriverFile(**wanted[name]) for name in ("driver", "fabric_manager")}
        due = self._link.provision(host, HostDrivers(**{**wanted, **files}), _unheard)
        return {"reboot": due and dataclasses.asdict(due)}

    def _join_ovn(self, host: Host, params: Message) -> Message:
        self._link.join_ovn(host, HostInOvn(**params["wanted"]), _unheard)
        return {}


def _unheard(_progress: str) -> None:
    """The server says by itself what is going on."""


def _listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    bind_for_owner(listener, path)
    listener.listen(_BACKLOG)
    return listener


def _accept(machines: LiveMachines, listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve_connection, args=(machines, connection), daemon=True).start()


def main() -> int:
    """Exit code 1 when the fleet cannot be served; the line on standard output says why."""
    parser = argparse.ArgumentParser(prog="python -m orchestrator.sim.hosts_process", description=__doc__)
    for name in ("fleet", "socket", "directory"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--guest-boots-s", type=float, help="seconds until a started guest has an address")
    wanted = parser.parse_args()
    try:
        machines = machines_of(wanted.fleet, wanted.directory)
        for machine in machines.fleet.machines.values() if wanted.guest_boots_s is not None else ():
            machine.guest_boots_s = wanted.guest_boots_s
    except VgpuctlError as error:
        print(json.dumps(error_to_dict(error)), flush=True)
        return 1
    listener = _listen(wanted.socket)
    threading.Thread(target=_accept, args=(machines, listener), daemon=True).start()
    print("{}", flush=True)
    sys.stdin.read()
    wanted.socket.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
