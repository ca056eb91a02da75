# SPDX-License-Identifier: Apache-2.0
"""``python -m orchestrator.sim.hosts_process FLEET SOCKET DIRECTORY``: simulated hosts in a process of their own.

What they cost is no cost of the server then, and several servers of one database reach the same hosts. It says
``{}`` in a line once it listens, or the error, and ends when its standard input does: with whoever started it.

Frames as an agent's (core/protocol). ``{"hello": {"site": …}}`` opens a connection; then, one at a time,
``{"method": …, "host": …, "params": …}`` is answered by ``{"result": …}`` or ``{"error": …}``.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from orchestrator.catalogue.catalogue import shipped
from orchestrator.client.location import bind_for_owner
from orchestrator.core.drivers.host_drivers import DriverFile, HostDrivers
from orchestrator.core.errors import VgpuctlError, error_to_dict
from orchestrator.core.hosts.host import Host
from orchestrator.core.protocol import encode_frame, read_frame
from orchestrator.core.readings.frame import frame_to_dict
from orchestrator.core.wire import action_from_dict, domain_to_dict, result_to_dict, things_to_dict, token_from_dict
from orchestrator.sim.fleet import fleet_of
from orchestrator.sim.live_machines import LiveLink, LiveMachines
from orchestrator.sim.machine_files import MachineFiles

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
            "readings": self._readings,
            "console_log": lambda host, params: {
                "text": self._link.console_log(host, params["vm"], params["most"]).decode()
            },
            "perform": self._perform,
            "send_image": self._send_image,
            "install_agent": self._install,
            "remove_agent": self._remove,
            "provision": self._provision,
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
