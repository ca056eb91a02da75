# SPDX-License-Identifier: Apache-2.0
"""One connection of a controller: the hello, then requests and answers, or a stream of bytes."""

from __future__ import annotations

import base64
import logging
import queue
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict
from functools import partial
from typing import NamedTuple

from orchestrator.agent import streams
from orchestrator.agent.assembly import Agent
from orchestrator.agent.libvirt.connection import subscribed
from orchestrator.agent.libvirt.domains import domain_key
from orchestrator.agent.move_load import load_of
from orchestrator.agent.nvml.vgpu_metadata import compatibilities
from orchestrator.agent.sessions import CHANNEL_SILENT_S, KEEPALIVE_S, KEEPALIVES_MISSED, HeardReader, Place, readable
from orchestrator.agent.version import agent_version
from orchestrator.core.attachments.host_facts import things_of
from orchestrator.core.contained import Contained
from orchestrator.core.domain_xml.console import MAX_LOG_BYTES
from orchestrator.core.errors import Fatal, InvalidInput, Unknown, VgpuctlError, error_to_dict
from orchestrator.core.gpu.vgpu_metadata import answers_to_dict
from orchestrator.core.protocol import (
    HELLO_BYTES,
    PROTOCOL_VERSION,
    REQUEST_BYTES,
    SUPPORTED_VERSIONS,
    encode_frame,
    read_frame,
)
from orchestrator.core.wire import (
    action_from_dict,
    domain_to_dict,
    look_to_dict,
    result_to_dict,
    things_to_dict,
    token_from_dict,
    unless_known,
)

HELLO_SECONDS = 30.0
_EVENT_POLL_SECONDS = 1.0

Message = dict[str, object]
log = logging.getLogger(__name__)


class AgentSession:
    """Runs in a thread of its own until the controller closes the connection."""

    def __init__(self, agent: Agent, connection: socket.socket, greeted: Callable[[], object] = lambda: None) -> None:
        """``greeted`` is called once: it has said who it is, or will not any more."""
        self._agent = agent
        self._socket = connection
        self._greeted = greeted
        self._reader = connection.makefile("rb")
        self._methods: dict[str, Callable[[Message], Message]] = {
            "observe": self._observe,
            "observe_domain": lambda params: domain_to_dict(agent.observer.domain(str(params.get("vm")))),
            "console_log": self._console_log,
            "perform": self._perform,
            "move_load": lambda params: asdict(load_of(agent, str(params.get("vm")))),
            "vgpu_compatibility": lambda params: answers_to_dict(
                compatibilities(params.get("questions"), agent.observer.nvml.change)
            ),
        }

    def run(self) -> None:
        try:
            with Contained(partial(self._send_error, {})):
                hello = self._greet_first()
                place = Place(
                    self._socket,
                    controller=str(hello.get("controller", "")),
                    stream=hello.get("kind") not in {"channel", "image", "volume_out", "volume_in"},
                )
                self._agent.sessions.enter(place)
                try:
                    self._serve(hello, place)
                finally:
                    self._agent.sessions.leave(place)
        finally:
            self._reader.close()
            self._socket.close()

    def _greet_first(self) -> Message:
        try:
            self._socket.settimeout(HELLO_SECONDS)
            return self._hello()
        finally:
            self._greeted()

    def _hello(self) -> Message:
        """:raises InvalidInput: ``agent.request_invalid``, ``agent.protocol_unsupported``
        :raises Denied: ``agent.other_site``"""
        hello = (read_frame(self._reader, HELLO_BYTES) or {}).get("hello")
        if not isinstance(hello, dict):
            raise InvalidInput("agent.request_invalid", "the first message must be a hello")
        offered = hello.get("protocol")
        if not isinstance(offered, list) or not set(SUPPORTED_VERSIONS) & {v for v in offered if isinstance(v, int)}:
            raise InvalidInput(
                "agent.protocol_unsupported",
                f"agent and controller share no protocol version: {list(SUPPORTED_VERSIONS)} and {ascii(offered)[:60]}",
                hint="'vgpuctl host upgrade-agent HOST' brings the agent that belongs to the server",
            )
        self._agent.ledger.check_site(str(hello.get("site")))
        return hello

    def _serve(self, hello: Message, place: Place) -> None:
        kind, reader = hello.get("kind"), HeardReader(self._reader, place)
        self._socket.settimeout(None if place.stream else CHANNEL_SILENT_S)
        if kind == "channel":
            self._greet()
            self._channel(reader, place)
        elif kind == "console":
            streams.serve_console(self._agent, hello, self._greet, reader, self._socket)
        elif kind == "display":
            streams.serve_display(self._agent, hello, self._greet, reader, self._socket)
        elif kind == "tcp":
            streams.serve_tcp(self._agent, hello, self._greet, reader, self._socket)
        elif kind == "image":
            self._send({"result": result_to_dict(streams.receive_image(self._agent, hello, self._greet, reader))})
        elif kind == "volume_out":
            place.working = True
            streams.give_volume(self._agent, hello, self._greet, reader, self._socket)
        elif kind == "move_out":
            place.working = True
            streams.give_vm(self._agent, hello, self._greet, self._socket)
        elif kind == "move_in":
            place.working = True
            streams.take_vm(self._agent, hello, self._greet, reader, place.end)
            self._send({"result": {}})
        elif kind == "volume_in":
            self._send({"result": result_to_dict(streams.take_volume(self._agent, hello, self._greet, reader))})
        else:
            raise InvalidInput("agent.request_invalid", f"there is no stream kind {ascii(kind)[:60]}")

    def _greet(self, **more: object) -> None:
        self._send({"hello": {"protocol": PROTOCOL_VERSION, "agent_version": agent_version(), **more}})

    def _channel(self, reader: HeardReader, place: Place) -> None:
        """Until its controller closes it, or says nothing for too long."""
        while True:
            try:
                request = read_frame(reader, REQUEST_BYTES)
            except TimeoutError:
                return
            if request is None:
                return
            answer: Message = {"id": request.get("id")}
            if request.get("method") == "watch":
                self._watch(answer, reader, place, _WatchParams.of(request.get("params")))
                return
            place.working = True
            with Contained(partial(self._send_error, answer)):
                self._send({**answer, "result": self._answer(request)})
            place.working = False

    def _answer(self, request: Message) -> Message:
        method, params = request.get("method"), request.get("params")
        function = self._methods.get(method) if isinstance(method, str) else None
        if function is None or not isinstance(params, dict):
            raise InvalidInput(
                "agent.request_invalid",
                f"this agent has no method {ascii(method)[:60]}",
                hint="'vgpuctl host upgrade-agent HOST' brings the agent that belongs to the server",
            )
        return function(params)

    def _observe(self, params: Message) -> Message:
        """The whole host, or what of it belongs to one VM: agents of older versions do not know ``things_of``."""
        snapshot, vm = self._agent.observer.observe(), params.get("things_of")
        if isinstance(vm, str):
            return things_to_dict(things_of(snapshot, vm))
        return look_to_dict(unless_known(snapshot, params.get("known")))

    def _perform(self, params: Message) -> Message:
        fields = {key: value for key, value in params.items() if key != "token"}
        token = token_from_dict(params.get("token"))
        return result_to_dict(self._agent.performer.perform(action_from_dict(fields), token))

    def _console_log(self, params: Message) -> Message:
        """Nothing of a domain that is not ours: what it prints is not our business.

        :raises InvalidInput: ``agent.request_invalid``"""
        vm, most = str(params.get("vm")), params.get("most")
        if type(most) is not int or not 0 < most <= MAX_LOG_BYTES:
            raise InvalidInput("agent.request_invalid", f"a console log has 1 to {MAX_LOG_BYTES} bytes")
        kept = self._agent.logs.tail(vm, most) if self._agent.ledger.owner(domain_key(vm)) is not None else b""
        return {"content_base64": base64.b64encode(kept).decode()}

    def _watch(self, answer: Message, reader: HeardReader, place: Place, params: _WatchParams) -> None:
        with ExitStack() as stack:
            events = stack.enter_context(subscribed(self._agent.libvirt))
            readings = stack.enter_context(self._agent.readings.watched()) if params.readings else None
            self._send({**answer, "result": {"keepalive_s": KEEPALIVE_S}})
            pinged = time.monotonic()
            while not self._hung_up(reader, place, keepalive=params.keepalive):
                with suppress(queue.Empty):
                    self._send({"event": events.get(timeout=_EVENT_POLL_SECONDS)})
                frame = readings and readings.newer()
                if frame:
                    self._socket.sendall(frame)
                if params.keepalive and time.monotonic() - pinged >= KEEPALIVE_S:
                    pinged = time.monotonic()
                    self._send({"ping": {}})

    def _hung_up(self, reader: HeardReader, place: Place, *, keepalive: bool) -> bool:
        """Without keepalives a watching controller sends nothing more: what can be read is the end of the stream."""
        if readable(self._socket):
            return not keepalive or read_frame(reader, HELLO_BYTES) is None
        return keepalive and time.monotonic() - place.heard > KEEPALIVES_MISSED * KEEPALIVE_S

    def _send(self, message: Message) -> None:
        self._socket.sendall(encode_frame(message))

    def _send_error(self, answer: Message, error: Exception) -> None:
        try:
            self._send({**answer, "error": error_to_dict(_as_told(error))})
        except OSError:
            return  # nobody is left to be told


class _WatchParams(NamedTuple):
    """Controllers of older versions do not know of them."""

    keepalive: bool
    """The controller answers each ping, and is gone when it does not."""
    readings: bool

    @classmethod
    def of(cls, params: object) -> _WatchParams:
        known = params if isinstance(params, dict) else {}
        return cls(known.get("keepalive") is True, known.get("readings") is True)


def _as_told(error: Exception) -> VgpuctlError:
    """One question that could not be answered ends neither the session nor the agent."""
    if isinstance(error, VgpuctlError):
        return error
    if isinstance(error, OSError):
        return Fatal("host.failed", "the host's system refused", hint="see the details", details=str(error))
    log.error("a request broke", exc_info=error)
    return Unknown(
        "agent.broke",
        "the agent broke over a request",
        hint="on the host: journalctl -u vgpuctl-agent",
        details=f"{type(error).__name__}: {error}"[:500],
    )
