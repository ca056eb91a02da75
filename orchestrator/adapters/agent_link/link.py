# SPDX-License-Identifier: Apache-2.0
"""Implements ports.host.HostLink over SSH."""

from __future__ import annotations

import base64
import logging
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import paramiko

from orchestrator.adapters.agent_link import moving
from orchestrator.adapters.agent_link.carrying import carry, content_of
from orchestrator.adapters.agent_link.conversation import CUT, Conversation, Message, agent_too_old
from orchestrator.adapters.agent_link.pool import HostLine
from orchestrator.adapters.agent_link.ssh import UNREACHABLE, connect
from orchestrator.adapters.agent_link.stream_lines import StreamLines
from orchestrator.core.actions.backups import FindRepositories, ListBackups
from orchestrator.core.actions.host_actions import (
    ActionResult,
    FencingToken,
    HostAction,
    ImageFormat,
    StartDomain,
    StopDomain,
)
from orchestrator.core.actions.live_move import LiveMove, MovedVm, MoveLoad
from orchestrator.core.actions.suspension import ResumeDomain, SuspendDomain
from orchestrator.core.actions.volume_copy import VolumeCopy
from orchestrator.core.errors import InvalidInput, NotFound, Retryable, Unknown, one_line
from orchestrator.core.gpu.vgpu_metadata import Answers, VgpuQuestion, answers_from_dict
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import DomainSnapshot, HostSnapshot, Unchanged
from orchestrator.core.hosts.snapshot_rules import checked, checked_domain, checked_unchanged
from orchestrator.core.protocol import encode_frame
from orchestrator.core.readings.frame import READINGS_BYTES, HostFrame, frame_from_dict
from orchestrator.core.units import show_size
from orchestrator.core.wire import (
    action_to_dict,
    domain_from_dict,
    load_from_dict,
    look_from_dict,
    result_from_dict,
    snapshot_from_dict,
    things_from_dict,
    token_to_dict,
)

log = logging.getLogger(__name__)

AGENT_USER = "vgpuctl-agent"

OBSERVE_SECONDS = 90.0
COMPATIBILITY_SECONDS = 10.0
"""Somebody waits for a page."""
PERFORM_SECONDS = 180.0
START_SECONDS = 360.0
IMAGE_STALL_SECONDS = 120.0
"""Longest time without any progress while an image is on its way."""

VOLUME_KEPT_SECONDS = 900.0
"""Longest time until a disk that has come whole is written down to the last byte."""

MAX_CONNECTIONS = 2000
"""A thread and 60 KB each, and a descriptor."""

_MISSED = 4
"""A watching agent that pings and has missed so many has ended the session or hangs."""

_CHUNK = 256 * 1024

_Key = tuple[str, str, int, str]
"""A host's name, and what a connection to it was made to."""


class AgentStream:
    """A console, a display or a TCP connection, as ports.host.ByteStream."""

    def __init__(self, conversation: Conversation, leave: Callable[[], None]) -> None:
        self._conversation = conversation
        self._leave = leave

    def fileno(self) -> int:
        return self._conversation.fileno()

    def send(self, data: bytes, /) -> int:
        return self._conversation.send_some(data)

    def receive(self, size: int, /) -> bytes:
        return self._conversation.receive_bytes(size)

    def close(self) -> None:
        self._conversation.close()
        self._leave()


class _BrokenFrames:
    """Leaves out frames that are none, and logs the first of a watch."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._logged = False

    def skipped(self, readings: object) -> Iterator[HostFrame]:
        try:
            yield frame_from_dict(readings)
        except Unknown as error:
            if not self._logged:
                log.warning("%s sends readings that are none: %s", self._host.name, error.details)
            self._logged = True


def _not_told(_host: str) -> None:
    """Nobody has asked to be told."""


class SshHostLink:
    """``site``: id of this control plane, ``controller``: name of this one of it. ``key_file``: private key that hosts
    accept for the agent's account.

    ``most``: standing connections at a time; beyond them the longest unused are closed."""

    def __init__(
        self, *, site: str, key_file: Path, controller: str = "", user: str = AGENT_USER, most: int = MAX_CONNECTIONS
    ) -> None:
        self._who = {"site": site, "controller": controller}
        self._most = most
        self._tell_lost: Callable[[str], None] = _not_told
        self._key_file = key_file
        self._user = user
        self._lock = threading.Lock()
        self._lines: dict[_Key, HostLine] = {}
        self._streams: dict[_Key, StreamLines] = {}

    def when_lost(self, tell: Callable[[str], None]) -> None:
        """``tell`` is given the name of a host whose standing connection was lost, within seconds of its silence."""
        self._tell_lost = tell

    def observe(self, host: Host) -> HostSnapshot:
        return checked(snapshot_from_dict(self._observe(host, "observe", {})))

    def look(self, host: Host, known: str) -> HostSnapshot | Unchanged:
        answer = look_from_dict(self._observe(host, "observe", {"known": known}))
        return checked_unchanged(answer) if isinstance(answer, Unchanged) else checked(answer)

    def observe_domain(self, host: Host, vm: str) -> DomainSnapshot | None:
        domain = domain_from_dict(self._observe(host, "observe_domain", {"vm": vm}))
        return None if domain is None else checked_domain(domain)

    def things_of(self, host: Host, vm: str) -> tuple[str, ...]:
        things = things_from_dict(self._observe(host, "observe", {"things_of": vm}), vm)
        return tuple(one_line(thing) for thing in things)

    def vgpu_compatibility(self, host: Host, questions: Sequence[VgpuQuestion]) -> Answers:
        answer = self._ask(host, "vgpu_compatibility", {"questions": questions}, COMPATIBILITY_SECONDS)
        return answers_from_dict(answer, questions)

    def move_load(self, host: Host, vm: str) -> MoveLoad:
        return load_from_dict(self._ask(host, "move_load", {"vm": vm}, COMPATIBILITY_SECONDS))

    def _observe(self, host: Host, method: str, params: Message) -> Any:
        """A cut connection is tried once more: observing twice does no harm."""
        stood = self._line(host).connected
        try:
            return self._ask(host, method, params, OBSERVE_SECONDS)
        except (Unknown, Retryable) as error:
            if error.code not in (CUT, UNREACHABLE) or not stood:
                raise
            return self._ask(host, method, params, OBSERVE_SECONDS, fresh=True)

    def perform(self, host: Host, action: HostAction, token: FencingToken) -> ActionResult:
        params = {**action_to_dict(action), "token": token_to_dict(token)}
        with self._line(host).conversation(host, self._open_channel, fresh=False) as conversation:
            conversation.check_speaks(action.since)
            result = result_from_dict(conversation.ask("perform", params, limit_s=_limit(action)))
        is_list = isinstance(action, FindRepositories | ListBackups)  # in JSON; what others say is a line for people
        return result if is_list else replace(result, message=one_line(result.message))

    def send_image(
        self, host: Host, path: Path, sha256: str, image_format: ImageFormat, token: FencingToken
    ) -> ActionResult:
        """:raises NotFound: ``image.file_missing`` when the controller's own copy is gone"""
        try:
            size = path.stat().st_size
        except OSError as error:
            raise NotFound(
                "image.file_missing",
                "the controller's copy of the image is gone",
                details=str(error),
                hint="add the image again: 'vgpuctl image add NAME FILE-OR-URL'",
            ) from error
        params = {"sha256": sha256, "format": image_format, "size": size, "token": token_to_dict(token)}
        (conversation, hello), leave = self._stream(host, "image", params, None)
        try:
            if not hello.get("present"):
                _send_file(conversation, path)
            return result_from_dict(conversation.receive_result(IMAGE_STALL_SECONDS))
        finally:
            conversation.close()
            leave()

    def copy_volume(
        self,
        source: Host,
        source_token: FencingToken,
        target: Host,
        target_token: FencingToken,
        copy: VolumeCopy,
        progress: Callable[[int], None],
    ) -> ActionResult:
        """:raises Retryable: ``volume.cut``"""
        taking = {**copy.fields(), "token": token_to_dict(target_token)}
        giving: Message = {"vm": copy.vm, "volume": copy.volume, "token": token_to_dict(source_token)}
        with (
            self._kept_stream(target, "volume_in", taking) as (taker, _),
            self._kept_stream(source, "volume_out", giving) as (giver, _),
        ):
            limit = copy.max_bytes_per_s
            sent = carry(giver, taker, most_per_s=limit, stall_s=IMAGE_STALL_SECONDS, progress=progress)
            result = result_from_dict(taker.receive_result(VOLUME_KEPT_SECONDS))
        return replace(result, message=f"{show_size(sent)} copied")

    def read_snapshot(self, host: Host, vm: str, volume: str, token: FencingToken) -> Generator[bytes]:
        """:raises Retryable: ``volume.cut``"""
        giving: Message = {"vm": vm, "volume": volume, "token": token_to_dict(token)}
        with self._kept_stream(host, "volume_out", giving) as (giver, _):
            yield from content_of(giver, IMAGE_STALL_SECONDS)

    def move_vm(
        self,
        source: Host,
        source_token: FencingToken,
        target: Host,
        target_token: FencingToken,
        move: LiveMove,
        progress: Callable[[int, int], None],
    ) -> MovedVm:
        return moving.move(self._kept_stream, (source, source_token), (target, target_token), move, progress)

    @contextmanager
    def _kept_stream(self, host: Host, kind: str, params: Message) -> Iterator[tuple[Conversation, Message]]:
        try:
            (conversation, hello), leave = self._stream(host, kind, params, None)
        except InvalidInput as error:
            if error.code != "agent.request_invalid":
                raise
            raise agent_too_old(host, str(error)) from error
        try:
            yield conversation, hello
        finally:
            conversation.close()
            leave()

    def watch(self, host: Host) -> Iterator[dict[str, object] | HostFrame]:
        line, broken = self._line(host), _BrokenFrames(host)
        with line.in_use():
            for message in self._messages(line.use(host, lambda transport: self._open_channel(host, transport))):
                event = message.get("event")
                if isinstance(event, dict):
                    yield event
                if "readings" in message:
                    yield from broken.skipped(message["readings"])

    def _messages(self, conversation: Conversation) -> Iterator[Message]:
        """Whatever a watching agent sends; its pings are answered."""
        try:
            params: Message = {"keepalive": True, "readings": True}
            every_s = conversation.ask("watch", params, limit_s=OBSERVE_SECONDS).get("keepalive_s")
            silent_s = _MISSED * every_s if isinstance(every_s, int | float) and every_s > 0 else None
            while True:
                message = conversation.receive(silent_s, READINGS_BYTES)
                if "ping" in message:
                    conversation.send(encode_frame({"ping": {}}))
                yield message
        except (Unknown, OSError):
            return  # the channel ended; whoever watches observes and watches again
        finally:
            conversation.close()

    def open_console(self, host: Host, vm: str) -> AgentStream:
        return self._guest_stream(host, "console", vm, {"vm": vm})

    def open_display(self, host: Host, vm: str) -> AgentStream:
        try:
            return self._guest_stream(host, "display", vm, {"vm": vm})
        except InvalidInput as error:
            if error.code != "agent.request_invalid":
                raise
            raise agent_too_old(host, str(error)) from error

    def console_log(self, host: Host, vm: str, most: int) -> bytes:
        answer = self._observe(host, "console_log", {"vm": vm, "most": most})
        try:
            content = base64.b64decode(answer["content_base64"], validate=True)
        except (KeyError, TypeError, ValueError) as error:
            raise Unknown("agent.protocol", "the agent sent a console log that is none") from error
        return content[-most:]

    def open_tcp(self, host: Host, vm: str, port: int) -> AgentStream:
        return self._guest_stream(host, "tcp", vm, {"vm": vm, "port": port})

    def forget(self, host: Host) -> None:
        with self._lock:
            lines = [self._lines.pop(key) for key in list(self._lines) if key[0] == host.name]
            streams = [self._streams.pop(key) for key in list(self._streams) if key[0] == host.name]
        _close([*lines, *streams])

    def close(self) -> None:
        with self._lock:
            all_lines: list[HostLine | StreamLines] = [*self._lines.values(), *self._streams.values()]
            self._lines.clear()
            self._streams.clear()
        _close(all_lines)

    def _line(self, host: Host) -> HostLine:
        with self._lock:
            return self._lines.setdefault(_key(host), HostLine(self._connect))

    def _connect(self, host: Host) -> paramiko.Transport:
        self._make_room()
        lost = partial(self._lost, host.name)
        return connect(host, user=self._user, key_file=self._key_file, lost=lost)

    def _connect_stream(self, host: Host) -> paramiko.Transport:
        return connect(host, user=self._user, key_file=self._key_file, lost=lambda: None)

    def _lost(self, host: str) -> None:
        self._tell_lost(host)

    def _make_room(self) -> None:
        with self._lock:
            standing = sorted((one for one in self._lines.values() if one.connected), key=lambda one: one.last_used)
        too_many = len(standing) + 1 - self._most
        for line in standing:
            if too_many <= 0:
                return
            too_many -= line.close_unused()

    def _open_channel(self, host: Host, transport: paramiko.Transport) -> Conversation:
        return Conversation.open(host, transport, self._who, "channel", {})[0]

    def _ask(self, host: Host, method: str, params: Message, limit_s: float, *, fresh: bool = False) -> Message:
        with self._line(host).conversation(host, self._open_channel, fresh=fresh) as conversation:
            return conversation.ask(method, params, limit_s=limit_s)

    def _guest_stream(self, host: Host, kind: str, vm: str, params: Message) -> AgentStream:
        (conversation, _), leave = self._stream(host, kind, params, vm)
        return AgentStream(conversation, leave)

    def _stream(
        self, host: Host, kind: str, params: Message, vm: str | None
    ) -> tuple[tuple[Conversation, Message], Callable[[], None]]:
        with self._lock:
            lines = self._streams.setdefault(_key(host), StreamLines(self._connect_stream))
        return lines.open(host, vm, lambda transport: Conversation.open(host, transport, self._who, kind, params))


def _close(lines: list[HostLine | StreamLines]) -> None:
    for line in lines:
        line.close()


def _key(host: Host) -> _Key:
    return (host.name, host.address, host.port, host.host_key)


def _limit(action: HostAction) -> float:
    if isinstance(action, StopDomain):
        return PERFORM_SECONDS + action.grace_seconds
    if isinstance(action, (SuspendDomain, ResumeDomain)):
        return PERFORM_SECONDS + action.limit_s
    return START_SECONDS if isinstance(action, StartDomain) else PERFORM_SECONDS


def _send_file(conversation: Conversation, path: Path) -> None:
    """When the agent stops listening, its reason is the next thing to be read."""
    conversation.limit_sending(IMAGE_STALL_SECONDS)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            try:
                conversation.send(chunk)
            except OSError:
                return
