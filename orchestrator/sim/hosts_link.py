# SPDX-License-Identifier: Apache-2.0
"""The way to simulated hosts that a process of their own serves (sim/hosts_process.py), over its unix socket."""

from __future__ import annotations

import base64
import dataclasses
import socket
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from orchestrator.client.location import SocketAddress
from orchestrator.core.actions.host_actions import ActionResult, FencingToken, HostAction, ImageFormat
from orchestrator.core.actions.live_move import LiveMove, MovedVm, MoveLoad
from orchestrator.core.actions.volume_copy import VolumeCopy
from orchestrator.core.drivers.host_drivers import DueReboot, HostDrivers
from orchestrator.core.errors import InvalidInput, Retryable, Unknown, VgpuctlError, agent_error, naming
from orchestrator.core.gpu.vgpu_metadata import Answers, VgpuQuestion, answers_from_dict
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import DomainSnapshot, HostSnapshot, Unchanged
from orchestrator.core.ovn import HostInOvn
from orchestrator.core.protocol import encode_frame, read_frame
from orchestrator.core.readings.frame import PERIOD_S, HostFrame, frame_from_dict
from orchestrator.core.wire import (
    action_to_dict,
    domain_from_dict,
    load_from_dict,
    look_from_dict,
    moved_from_dict,
    result_from_dict,
    snapshot_from_dict,
    things_from_dict,
    token_to_dict,
)
from orchestrator.ports.host import ByteStream
from orchestrator.sim.guests import Consoles, no_guest
from orchestrator.sim.readings import frames
from orchestrator.sim.screen import Screen

LIMIT_S: Final = 180.0
"""For one answer. The machines themselves answer at once."""
Message = dict[str, Any]


class _Connection:
    """Used by one caller at a time."""

    def __init__(self, path: Path, site: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(LIMIT_S)
        with SocketAddress(path) as address:
            self._socket.connect(address)
        self._reader = self._socket.makefile("rb")
        self._socket.sendall(encode_frame({"hello": {"site": site}}))

    def ask(self, request: Message) -> Message:
        """:raises OSError: cut before it was asked; :raises Unknown: and after"""
        self._socket.sendall(encode_frame(request))
        try:
            answer = read_frame(self._reader)
        except OSError as error:
            raise _cut(str(error)) from error
        if answer is None:
            raise _cut("the stream ended")
        return answer

    def close(self) -> None:
        self._reader.close()
        self._socket.close()


class HostsLink:
    """Implements ports.host.HostLink and Configurator. As many connections as calls at the same time, all kept."""

    def __init__(self, path: Path, *, site: str, period_s: float = PERIOD_S) -> None:
        """``period_s``: between two frames of a host."""
        self._consoles = Consoles()
        self._path = path
        self.period_s = period_s
        self._site = site
        self._lock = threading.Lock()
        self._idle: list[_Connection] = []
        self._ended = threading.Event()

    def enrol(self, known: tuple[str, ...]) -> tuple[str, ...]:
        """Make all hosts obey this site; the addresses that are not among ``known``."""
        return tuple(self._ask("enrol", None, {"known": known})["new"])

    def locate(self, address: str) -> None:
        """:raises InvalidInput: ``host.address_unknown``"""
        self._ask("locate", None, {"address": address})

    def observe(self, host: Host) -> HostSnapshot:
        return snapshot_from_dict(self._ask("observe", host, {"known": None}))

    def look(self, host: Host, known: str) -> HostSnapshot | Unchanged:
        return look_from_dict(self._ask("observe", host, {"known": known}))

    def observe_domain(self, host: Host, vm: str) -> DomainSnapshot | None:
        return domain_from_dict(self._ask("observe_domain", host, {"vm": vm}))

    def things_of(self, host: Host, vm: str) -> tuple[str, ...]:
        return things_from_dict(self._ask("things_of", host, {"vm": vm}), vm)

    def vgpu_compatibility(self, host: Host, questions: Sequence[VgpuQuestion]) -> Answers:
        return answers_from_dict(self._ask("vgpu_compatibility", host, {"questions": questions}), questions)

    def perform(self, host: Host, action: HostAction, token: FencingToken) -> ActionResult:
        params = {"action": action_to_dict(action), "token": token_to_dict(token)}
        return result_from_dict(self._ask("perform", host, params))

    def send_image(
        self, host: Host, path: Path, sha256: str, image_format: ImageFormat, token: FencingToken
    ) -> ActionResult:
        params = {"path": str(path), "sha256": sha256, "format": image_format, "token": token_to_dict(token)}
        return result_from_dict(self._ask("send_image", host, params))

    def copy_volume(
        self,
        source: Host,
        source_token: FencingToken,
        target: Host,
        target_token: FencingToken,
        copy: VolumeCopy,
        progress: Callable[[int], None],
    ) -> ActionResult:
        given = self._ask("give_volume", source, {"copy": copy.fields(), "token": token_to_dict(source_token)})
        progress(copy.size_bytes)
        taken = {"copy": copy.fields(), "token": token_to_dict(target_token), "variables": given["variables"]}
        return result_from_dict(self._ask("take_volume", target, taken))

    def read_snapshot(self, host: Host, vm: str, volume: str, token: FencingToken) -> Generator[bytes]:
        params = {"vm": vm, "volume": volume, "token": token_to_dict(token)}
        yield base64.b64decode(self._ask("read_snapshot", host, params)["content"])

    def move_vm(
        self,
        source: Host,
        source_token: FencingToken,
        target: Host,
        target_token: FencingToken,
        move: LiveMove,
        progress: Callable[[int, int], None],
    ) -> MovedVm:
        with naming(target.name):
            self._ask("await_vm", target, {"move": asdict(move), "token": token_to_dict(target_token)})
        progress(0, 1)
        with naming(source.name):
            return moved_from_dict(
                self._ask("leave_vm", source, {"move": asdict(move), "token": token_to_dict(source_token)})
            )

    def move_load(self, host: Host, vm: str) -> MoveLoad:
        return load_from_dict(self._ask("move_load", host, {"vm": vm}))

    def watch(self, host: Host) -> Iterator[dict[str, object] | HostFrame]:
        """Readings and no events: what changed is seen at the next observation. Hosts of a version without readings
        refuse the first question and get no other."""
        try:
            slow = self._ask("readings", host, {})["slow"]
        except InvalidInput:
            return frames(lambda: None, slow=False, period_s=self.period_s, ended=self._ended)
        return frames(lambda: self._frame(host), slow=slow, period_s=self.period_s, ended=self._ended)

    def _frame(self, host: Host) -> HostFrame | None:
        frame = self._ask("readings", host, {})["frame"]
        return None if frame is None else frame_from_dict(frame)

    def open_console(self, host: Host, vm: str) -> ByteStream:
        """A guest that sends back what it gets."""
        return self._consoles.open(vm, f"console of {vm}\r\n")

    def open_display(self, host: Host, vm: str) -> ByteStream:
        """A screen that shows one colour, another with each key."""
        return Screen(vm)

    def console_log(self, host: Host, vm: str, most: int) -> bytes:
        return str(self._ask("console_log", host, {"vm": vm, "most": most})["text"]).encode()

    def open_tcp(self, host: Host, vm: str, port: int) -> ByteStream:
        """:raises Conflict: ``vm.simulated``"""
        raise no_guest(self.observe_domain(host, vm))

    def forget(self, host: Host) -> None:
        """No connection is one host's."""

    def install_agent(
        self, host: Host, gpus: tuple[str, ...], progress: Callable[[str], None], *, take_over: bool = False
    ) -> None:
        progress("install")
        self._ask("install_agent", host, {"gpus": gpus, "take_over": take_over})

    def remove_agent(self, host: Host, progress: Callable[[str], None]) -> None:
        progress("remove")
        self._ask("remove_agent", host, {})

    def provision(self, host: Host, wanted: HostDrivers, progress: Callable[[str], None]) -> DueReboot | None:
        progress("install the driver")
        due = self._ask("provision", host, {"wanted": dataclasses.asdict(wanted)})["reboot"]
        return due and DueReboot(**due)

    def join_ovn(self, host: Host, wanted: HostInOvn, progress: Callable[[str], None]) -> None:
        progress("join OVN")
        self._ask("join_ovn", host, {"wanted": dataclasses.asdict(wanted)})

    def close(self) -> None:
        """Connections in use end with their calls, and so does watching."""
        self._ended.set()
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _ask(self, method: str, host: Host | None, params: Message) -> Message:
        address = "the simulated hosts" if host is None else host.address
        connection = self._connection(address)
        whose = None if host is None else dataclasses.asdict(host)
        try:
            answer = connection.ask({"method": method, "host": whose, "params": params})
        except (OSError, VgpuctlError) as error:
            connection.close()
            raise _unreachable(address, error) if isinstance(error, OSError) else error from error
        with self._lock:
            self._idle.append(connection)
        if "error" in answer:
            raise agent_error(answer["error"]) if host is None else agent_error(answer["error"], host.name)
        result: Message = answer["result"]
        return result

    def _connection(self, address: str) -> _Connection:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        try:
            return _Connection(self._path, self._site)
        except OSError as error:
            raise _unreachable(address, error) from error


def _unreachable(address: str, error: OSError) -> Retryable:
    return Retryable("host.unreachable", f"{address} cannot be reached", details=str(error))


def _cut(why: str) -> Unknown:
    return Unknown("agent.channel_cut", "the connection to the simulated hosts was cut", details=why)
