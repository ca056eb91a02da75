# SPDX-License-Identifier: Apache-2.0
"""One SSH session joined to the agent: hello, requests and answers, raw bytes. Used by one caller at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

import paramiko

from orchestrator.adapters.agent_link.ssh import LOST, unreachable
from orchestrator.core.errors import Fatal, Retryable, Unknown, VgpuctlError, agent_error
from orchestrator.core.hosts.host import Host
from orchestrator.core.protocol import (
    ANSWER_BYTES,
    HELLO_BYTES,
    OBSERVED_BYTES,
    SUPPORTED_VERSIONS,
    encode_frame,
    read_frame,
)

COMMAND = "vgpuctl-agent"
"""What we ask sshd to run; the key's forced command checks it."""

CUT = "agent.channel_cut"

HELLO_SECONDS = 60.0
"""The relay is a Python process that has to start on the host."""

_NOT_GREETED: Final = (*LOST, Unknown)
_OPEN_SECONDS = 20.0
_MAX_NOISE = 2000

_REUSED_S = 600.0
"""An agent ends a channel after 900 s without a request: one that may just be ending is not asked."""

Message = dict[str, object]


class _Source:
    """Reads a channel until a moment, however many pieces the answer comes in."""

    def __init__(self, channel: paramiko.Channel, limit_s: float | None) -> None:
        self._channel = channel
        self._deadline = None if limit_s is None else time.monotonic() + limit_s

    def read(self, size: int, /) -> bytes:
        """:raises TimeoutError:"""
        if self._deadline is None:
            self._channel.settimeout(None)
        else:
            self._channel.settimeout(max(0.001, self._deadline - time.monotonic()))
        return self._channel.recv(size)


def _unheard(_message: Message) -> None:
    """Nobody wants to know how far it is."""


class Conversation:
    def __init__(self, host: Host, channel: paramiko.Channel) -> None:
        self._host = host
        self._channel = channel
        self._last_id = 0
        self.settled = True
        """Whether every question has had its answer, so that another may be asked."""
        self._used = time.monotonic()
        self.protocol = 1
        """Version that the agent speaks."""

    @classmethod
    def open(
        cls, host: Host, transport: paramiko.Transport, who: Mapping[str, str], kind: str, params: Mapping[str, object]
    ) -> tuple[Conversation, Message]:
        """The conversation and the agent's hello. ``who`` asks: site and controller.

        :raises Retryable: ``host.unreachable``, ``host.busy``, ``agent.not_running``
        :raises VgpuctlError: the agent's own refusal
        """
        try:
            channel = transport.open_session(timeout=_OPEN_SECONDS)
            channel.exec_command(COMMAND)
        except paramiko.ChannelException as error:  # sshd has as many sessions on this connection as it allows
            raise Retryable(
                "host.busy", f"{host.name} takes no more sessions for now", hint="try again", details=str(error)
            ) from error
        except LOST as error:
            raise unreachable(host.address, error) from error
        conversation = cls(host, channel)
        try:
            hello = conversation._greet({"protocol": list(SUPPORTED_VERSIONS), "kind": kind, **who, **params})
        except VgpuctlError:
            conversation.close()
            raise
        return conversation, hello

    def _greet(self, hello: Message) -> Message:
        """Until the agent has greeted back, nothing was done: whatever goes wrong may be tried again."""
        try:
            self._channel.sendall(encode_frame({"hello": hello}))
            answer = read_frame(_Source(self._channel, HELLO_SECONDS), HELLO_BYTES)
        except _NOT_GREETED as error:
            raise self._not_running(str(error)) from error
        if answer is None:
            raise self._not_running("it closed the connection")
        _raise_error(answer, self._host)
        greeting = answer.get("hello")
        if not isinstance(greeting, dict):
            raise self._not_running("it did not greet")
        version = greeting.get("protocol")
        self.protocol = version if isinstance(version, int) else 1
        return greeting

    def check_speaks(self, version: int) -> None:
        """:raises Fatal: ``agent.too_old``"""
        if self.protocol < version:
            raise agent_too_old(self._host, f"it speaks protocol {self.protocol}, {version} is needed")

    def _not_running(self, why: str) -> Retryable:
        noise = b""
        if self._channel.recv_stderr_ready():
            noise = self._channel.recv_stderr(_MAX_NOISE)
        return Retryable(
            "agent.not_running",
            f"the agent on {self._host.name} does not answer",
            hint="on the host: systemctl status vgpuctl-agent",
            details=" ".join([why, *noise.decode(errors="replace").split()]),
        )

    def usable(self) -> bool:
        """Whether it is still open as far as can be seen without asking."""
        unused_s = time.monotonic() - self._used
        return not (self._channel.closed or self._channel.eof_received) and unused_s < _REUSED_S

    def ask(self, method: str, params: Message, *, limit_s: float) -> Message:
        """The agent's result.

        :raises Retryable: ``host.unreachable`` when the request did not go out whole: a cut request is never acted on
        :raises Unknown: ``agent.channel_cut``, ``agent.answer_late``, ``agent.protocol``
        :raises VgpuctlError: what the agent answered
        """
        self._last_id += 1
        self.settled = False
        try:
            self._channel.settimeout(limit_s)
            self._channel.sendall(encode_frame({"id": self._last_id, "method": method, "params": params}))
        except LOST as error:
            raise unreachable(self._host.address, error) from error
        answer = self.receive(limit_s, OBSERVED_BYTES if method == "observe" else ANSWER_BYTES)
        if answer.get("id") != self._last_id:
            raise Unknown("agent.protocol", f"the agent on {self._host.name} answered another question")
        self.settled = True
        self._used = time.monotonic()
        _raise_error(answer, self._host)
        return _result(answer)

    def receive(self, limit_s: float | None, most: int) -> Message:
        """The next frame, of at most so many bytes.

        :raises Unknown: ``agent.channel_cut``, ``agent.answer_late``, ``agent.protocol``
        """
        try:
            answer = read_frame(_Source(self._channel, limit_s), most)
        except TimeoutError as error:
            raise Unknown(
                "agent.answer_late",
                f"the agent on {self._host.name} did not answer in time",
                hint="look at the host",
                details=f"no answer within {limit_s:g} s",
            ) from error
        except LOST as error:
            raise _cut(self._host, str(error)) from error
        if answer is None:
            raise _cut(self._host, "the stream ended")
        return answer

    def receive_result(self, limit_s: float, progress: Callable[[Message], None] = _unheard) -> Message:
        """The result that ends a stream. ``progress``: is given what comes before it of how far it is."""
        answer = self.receive(limit_s, ANSWER_BYTES)
        while isinstance(reached := answer.get("progress"), dict):
            progress(reached)
            answer = self.receive(limit_s, ANSWER_BYTES)
        _raise_error(answer, self._host)
        return _result(answer)

    def send(self, data: bytes) -> None:
        """:raises OSError: the stream is closed"""
        with _closed_if_lost():
            self._channel.sendall(data)

    def send_some(self, data: bytes) -> int:
        """How much the other side takes now, perhaps nothing. :raises OSError: the stream is closed"""
        if not self._channel.send_ready():
            return 0
        with _closed_if_lost():
            sent = self._channel.send(data)
        if not sent:
            raise BrokenPipeError
        return sent

    def fileno(self) -> int:
        """Readable when :meth:`receive_bytes` would not wait."""
        return self._channel.fileno()

    def receive_bytes(self, size: int, limit_s: float | None = None) -> bytes:
        """b"" at the end of the stream. :raises OSError: it was cut, or nothing came for so long"""
        self._channel.settimeout(limit_s)
        with _closed_if_lost():
            return self._channel.recv(size)

    def limit_sending(self, seconds: float) -> None:
        self._channel.settimeout(seconds)

    def end_sending(self) -> None:
        """The agent reads to the end of what came."""
        with suppress(*LOST):
            self._channel.shutdown_write()

    def close(self) -> None:
        self._channel.close()


def agent_too_old(host: Host, details: str) -> Fatal:
    return Fatal(
        "agent.too_old",
        f"the agent on {host.name} is too old for this",
        hint=f"'vgpuctl host upgrade-agent {host.name}' brings the one that belongs to this server",
        details=details,
    )


@contextmanager
def _closed_if_lost() -> Iterator[None]:
    """:raises OSError:"""
    try:
        yield
    except (paramiko.SSHException, EOFError) as error:
        raise BrokenPipeError(str(error)) from error


def _cut(host: Host, why: str) -> Unknown:
    return Unknown(
        CUT,
        f"the connection to {host.name} was cut before the answer",
        hint="the host will be looked at again",
        details=why,
    )


def _raise_error(answer: Message, host: Host) -> None:
    error = answer.get("error")
    if isinstance(error, dict):
        raise agent_error(error, host.name)


def _result(answer: Message) -> Message:
    result = answer.get("result")
    if not isinstance(result, dict):
        raise Unknown("agent.protocol", "the agent's answer holds neither result nor error")
    return result
