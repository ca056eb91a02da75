# SPDX-License-Identifier: Apache-2.0
"""Follows an operation: step by step with times, live on a terminal and as plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from threading import Event
from typing import Any, Final, Protocol, TypeVar

from orchestrator.cli.ages import seconds_of
from orchestrator.cli.output import printable
from orchestrator.cli.session import CliSession
from orchestrator.client.connection import Json
from orchestrator.client.failures import failure_of
from orchestrator.core.errors import Retryable, Unknown
from orchestrator.core.operation import FINISHED

T = TypeVar("T")

POLL_S: Final = 20.0
"""How long one question to the server may take to be answered."""
_POLL_STOP_S: Final = 2.0
RECONNECTS: Final = 5
RECONNECT_PAUSE_S = 0.2
_MARKS: Final = {"done": "✓", "failed": "✗", "undone": "↩", "undo_failed": "✗"}
_SHOWN: Final = {
    "done": "done",
    "failed": "failed",
    "undone": "taken back",
    "undo_failed": "could not be taken back",
}


class Display(Protocol):
    """Shows an operation as it goes."""

    def update(self, operation: Json) -> None: ...


class PlainLines:
    """One line on standard error for each step that ended. For logs and pipes.

    ``joined``: somebody else began it; what had ended before is not told as if it were new.
    """

    def __init__(self, *, joined: bool = False) -> None:
        self._said: set[tuple[str, str]] = set()
        self._joined = joined

    def update(self, operation: Json) -> None:
        if self._joined:
            self._joined = False
            self._said = {(step["name"], step["state"]) for step in operation["steps"]}
            done = sum(step["state"] == "done" for step in operation["steps"])
            print(f"it is being done already: {done} of {len(operation['steps'])} steps", file=sys.stderr, flush=True)
        self._say_waiting(operation)
        for step in operation["steps"]:
            event = (step["name"], step["state"])
            if step["state"] in _SHOWN and event not in self._said:
                self._said.add(event)
                print(line_of(step), file=sys.stderr, flush=True)

    def _say_waiting(self, operation: Json) -> None:
        event = ("waits", str(operation.get("waits_for_host_since")))
        if operation.get("waits_for_host_since") is not None and event not in self._said:
            self._said.add(event)
            name = operation["waits_for_host"]
            host = "its host" if name is None else f"host {printable(name)}"
            print(f"… waits for {host}, which is out of reach; it goes on by itself", file=sys.stderr, flush=True)


class NoDisplay:
    """For output that a program reads."""

    def update(self, operation: Json) -> None:
        """Nothing to show."""


def line_of(step: Mapping[str, Any]) -> str:
    """``✓ disk on lab1  0.8 s``."""
    text = f"{_MARKS[step['state']]} {printable(step['title'])}: {_SHOWN[step['state']]}"
    seconds = seconds_of(step, None)
    if seconds is not None:
        text += f" ({seconds:.1f} s)"
    if step["message"]:
        text += f": {printable(step['message'])}"
    return text


@contextmanager
def _display(session: CliSession, *, joined: bool) -> Iterator[Display]:
    if sys.stderr is None or session.format != "table":
        yield NoDisplay()
    elif sys.stderr.isatty() and os.environ.get("TERM") not in {None, "dumb"}:
        from orchestrator.cli.live import LiveSteps

        with LiveSteps() as live:
            yield live
    else:
        yield PlainLines(joined=joined)


def follow(session: CliSession, operation_id: str, *, joined: bool = False) -> Json:
    """Wait until the operation is finished. A server that goes away is started again: it takes the operation up.

    ``joined``: it was begun before this command.

    :raises VgpuctlError: what made the operation fail
    """
    try:
        with _display(session, joined=joined) as display:
            operation = until_finished(session, operation_id, display)
    except KeyboardInterrupt:
        print(f"The operation goes on. Watch it with: vgpuctl operation wait {operation_id}", file=sys.stderr)
        raise
    for warning in operation["warnings"]:
        print(f"warning: {printable(warning)}", file=sys.stderr)
    if operation["state"] == "done":
        return operation
    raise failure_of(operation)


def until_finished(session: CliSession, operation_id: str, display: Display, *, poll_s: float = POLL_S) -> Json:
    """Wait, showing how it goes. A server that goes away is started again.

    :raises Retryable, Unknown: the server does not answer; the hint says how to go on waiting"""
    revision: int | None = None
    while True:
        try:
            operation = retry(session, partial(_beyond, session, operation_id, poll_s, revision))
        except (Retryable, Unknown) as error:
            error.hint = "; ".join(filter(None, [error.hint, _go_on(operation_id)]))
            raise
        display.update(operation)
        if operation["state"] in FINISHED:
            return operation
        revision = operation["revision"]


def wait_among_others(session: CliSession, operation_id: str, stop: Event) -> None:
    """Wait, showing nothing, until it has ended well: one of many that go on at once.

    :raises Retryable: ``manifest.interrupted``: ``stop`` was set
    :raises VgpuctlError: it failed
    """
    operation = until_finished(session, operation_id, _UntilStopped(stop, operation_id), poll_s=_POLL_STOP_S)
    if operation["state"] != "done":
        raise failure_of(operation)


class _UntilStopped:
    """A display that shows nothing and ends the waiting when the user has pressed Ctrl-C."""

    def __init__(self, stop: Event, operation_id: str) -> None:
        self._stop, self._operation_id = stop, operation_id

    def update(self, _: Json) -> None:
        if self._stop.is_set():
            raise Retryable(
                "manifest.interrupted", "interrupted; its operation goes on", hint=_go_on(self._operation_id)
            )


def _go_on(operation_id: str) -> str:
    return f"the operation goes on; 'vgpuctl operation wait {operation_id}' waits for it"


def _beyond(session: CliSession, operation_id: str, poll_s: float, revision: int | None) -> Json:
    return session.client.operation(operation_id, wait_s=poll_s, since=revision)


def retry(session: CliSession, ask: Callable[[], T]) -> T:
    """The answer to a question that changes nothing. A server that goes away is started again."""
    left = RECONNECTS
    while True:
        try:
            return ask()
        except (Retryable, Unknown) as error:
            if left == 0 or not error.code.startswith("server."):
                raise
            left -= 1
            time.sleep(RECONNECT_PAUSE_S)
            session.reconnect()
