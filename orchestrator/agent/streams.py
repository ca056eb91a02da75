# SPDX-License-Identifier: Apache-2.0
"""Streams of bytes after the hellos: a VM's console or display, a connection to a VM, an image or a VM's disk."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Protocol

from orchestrator.agent.assembly import Agent
from orchestrator.agent.images import volume_copies
from orchestrator.agent.libvirt.displays import open_display
from orchestrator.agent.libvirt.migration import MoveProgress
from orchestrator.agent.live_moves import OtherHost
from orchestrator.agent.nic_links import own_addresses
from orchestrator.agent.sessions import HeardReader, readable
from orchestrator.core.actions.host_actions import ActionResult, ImageFormat
from orchestrator.core.actions.live_move import LiveMove, MovedVm, MoveKey
from orchestrator.core.actions.volume_copy import VolumeCopy
from orchestrator.core.errors import Conflict, InvalidInput, Retryable
from orchestrator.core.protocol import encode_frame
from orchestrator.core.wire import token_from_dict

_CHUNK = 64 * 1024
_CONNECT_SECONDS = 10.0

Hello = dict[str, object]


class Greet(Protocol):
    def __call__(self, **more: object) -> None: ...


class StreamPeer(Protocol):
    """The other end that a controller's stream is joined to."""

    def send(self, data: bytes) -> None: ...
    def receive(self, size: int) -> bytes: ...
    def close(self) -> None: ...


class _Socket:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def send(self, data: bytes) -> None:
        self._connection.sendall(data)

    def receive(self, size: int) -> bytes:
        try:
            return self._connection.recv(size)
        except OSError:
            return b""

    def close(self) -> None:
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # the other end closed it already
        finally:
            self._connection.close()


def serve_console(agent: Agent, hello: Hello, greet: Greet, reader: HeardReader, near: socket.socket) -> None:
    """:raises Fatal: ``console.refused``
    :raises Conflict: ``vm.foreign_domain``"""
    vm = _text(hello, "vm")
    agent.domains.check_ours(vm)
    console = agent.consoles.join(vm)
    greet()
    _join(reader, near, console)


def serve_display(agent: Agent, hello: Hello, greet: Greet, reader: HeardReader, near: socket.socket) -> None:
    """:raises Fatal: ``display.refused``
    :raises Conflict: ``vm.foreign_domain``, ``vm.no_display``"""
    vm = _text(hello, "vm")
    agent.domains.check_ours(vm)
    screen = open_display(agent.libvirt, vm)
    greet()
    _join(reader, near, _Socket(screen))


def serve_tcp(agent: Agent, hello: Hello, greet: Greet, reader: HeardReader, near: socket.socket) -> None:
    """Connect to an address that the VM itself leased; the controller names a VM, never an address.

    :raises Conflict: ``vm.no_address``
    :raises Retryable: ``vm.unreachable``
    """
    vm, port = _text(hello, "vm"), _number(hello, "port")
    addresses = agent.domains.addresses(vm)
    if not addresses:
        hint = "wait until it has booted; of its networks those of kind ovn are not reached from hosts"
        raise Conflict("vm.no_address", "the VM has no address that its host reaches", hint=hint)
    try:
        connection = socket.create_connection((addresses[0], port), timeout=_CONNECT_SECONDS)
    except OSError as error:
        raise Retryable(
            "vm.unreachable",
            f"the VM does not answer on port {port}",
            hint="is the service running in the guest?",
            details=f"{addresses[0]}: {error}",
        ) from error
    connection.settimeout(None)
    greet()
    _join(reader, near, _Socket(connection))


def receive_image(agent: Agent, hello: Hello, greet: Greet, reader: HeardReader) -> ActionResult:
    """:raises Denied: ``agent.stale_token``
    :raises Fatal: see images/store.py"""
    sha256, size = _text(hello, "sha256"), _number(hello, "size")
    image_format = _format(hello)
    agent.ledger.admit(token_from_dict(hello.get("token")))
    present = agent.storage.has_image(sha256, image_format)
    greet(present=present)
    if present:
        return ActionResult(changed=False)
    return agent.storage.receive_image(sha256, image_format, size, reader.read1)


def give_volume(agent: Agent, hello: Hello, greet: Greet, reader: HeardReader, near: socket.socket) -> None:
    """A VM's disk, to its end; nothing is done to the VM meanwhile. What fails once it has begun ends the stream. When
    all is sent, the controller ends it: what is on its way when a stream is closed may be lost.

    :raises Denied: ``agent.stale_token``
    :raises NotFound, Conflict: see images/volume_copies.py"""
    vm, volume = _text(hello, "vm"), _text(hello, "volume")
    with agent.performer.turn(vm, token_from_dict(hello.get("token"))):
        path = volume_copies.check_may_go(agent.storage, vm, volume)
        greet()
        try:
            for record in volume_copies.records(agent.storage, vm, path):
                near.sendall(record)
        except OSError:
            return  # without its last record the other end knows that it was cut
    reader.read1(1)


def take_volume(agent: Agent, hello: Hello, greet: Greet, reader: HeardReader) -> ActionResult:
    """:raises Denied: ``agent.stale_token``
    :raises Retryable, Fatal, Conflict: see images/volume_copies.py"""
    copy = VolumeCopy(
        vm=_text(hello, "vm"),
        volume=_text(hello, "volume"),
        base_sha256=_text(hello, "base_sha256"),
        base_format=_format(hello, "base_format"),
        size_bytes=_number(hello, "size_bytes"),
    )
    with agent.performer.turn(copy.vm, token_from_dict(hello.get("token"))):
        volume_copies.check_may_come(agent.storage, copy)
        greet()
        return volume_copies.take(agent.storage, copy, reader.read)


def give_vm(agent: Agent, hello: Hello, greet: Greet, near: socket.socket) -> None:
    """A running VM, which stays when its controller ends the stream. That it is gone is told before libvirt has cleaned
    up here, for its guest stands still so long; the VM's turn ends after that.

    :raises Denied: ``agent.stale_token``
    :raises VgpuctlError: see live_moves.py"""
    devices, ends = hello.get("devices"), hello.get("ends")
    if not isinstance(devices, list) or not isinstance(ends, list):
        raise InvalidInput("agent.request_invalid", "the stream needs lists devices and ends")
    move = LiveMove(
        vm=_text(hello, "vm"),
        devices=tuple(map(str, devices)),
        max_bytes_per_s=_number(hello, "max_bytes_per_s") or None,
        max_pause_ms=_number(hello, "max_pause_ms") or None,
    )

    def progress(reached: MoveProgress) -> bool:
        with suppress(OSError):
            near.sendall(encode_frame({"progress": asdict(reached)}))
            return not readable(near)
        return False

    def gone(moved: MovedVm) -> None:
        with suppress(OSError):  # nobody asks any more
            near.sendall(encode_frame({"result": asdict(moved)}))

    with agent.performer.turn(move.vm, token_from_dict(hello.get("token"))):
        greet()
        where = [(str(address), int(port)) for address, port in ends]
        other_host = OtherHost(*_key(hello), where, _text(hello, "storage"))
        agent.live_moves.leave(move, other_host, progress, gone)


def take_vm(agent: Agent, hello: Hello, greet: Greet, reader: HeardReader, end: Callable[[], object]) -> None:
    """A running VM may come here until the controller ends the stream, or a newer attempt does: a controller's machine
    that lost its power ends none. ``end``: ends it.

    :raises Denied: ``agent.stale_token``, and what was refused of what came
    :raises VgpuctlError: see live_moves.py"""
    vm = _text(hello, "vm")
    with (
        agent.performer.turn(vm, token_from_dict(hello.get("token")), end=end),
        agent.live_moves.coming(vm, *_key(hello)) as here,
    ):
        greet(ends=[(address, here.port) for address in own_addresses()], storage=str(agent.storage.directory))
        reader.read1(1)
        if here.refusals:
            raise here.refusals[0]


def _key(hello: Hello) -> tuple[MoveKey, str]:
    """This end's, and the other end's certificate."""
    return MoveKey(certificate=_text(hello, "certificate"), key=_text(hello, "key")), _text(hello, "other")


def _join(reader: HeardReader, near: socket.socket, far: StreamPeer) -> None:
    """Copy both ways until one end closes."""

    def to_controller() -> None:
        _copy(far.receive, near.sendall)
        _shut_down(near)

    back = threading.Thread(target=to_controller, name="stream-out", daemon=True)
    back.start()
    try:
        _copy(reader.read1, far.send)
    finally:
        far.close()
    back.join()


def _copy(read: Callable[[int], bytes], write: Callable[[bytes], object]) -> None:
    try:
        while data := read(_CHUNK):
            write(data)
    except OSError:
        return  # one end is gone: that is how streams end


def _shut_down(near: socket.socket) -> None:
    try:
        near.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # the controller closed first


def _text(hello: Hello, name: str) -> str:
    value = hello.get(name)
    if not isinstance(value, str):
        raise InvalidInput("agent.request_invalid", f"the stream needs {name}")
    return value


def _number(hello: Hello, name: str) -> int:
    value = hello.get(name)
    if type(value) is not int or value < 0:
        raise InvalidInput("agent.request_invalid", f"the stream needs a number {name}")
    return value


def _format(hello: Hello, name: str = "format") -> ImageFormat:
    value = hello.get(name)
    if value == "qcow2":
        return "qcow2"
    if value == "raw":
        return "raw"
    raise InvalidInput("agent.request_invalid", f"the stream needs {name} qcow2 or raw")
