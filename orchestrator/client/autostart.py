# SPDX-License-Identifier: Apache-2.0
"""Finds the local server, starts it when nobody listens, and replaces one of another version that is idle and was
started so."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from orchestrator.client.connection import CALL_TIMEOUT_S, Connection, Json, path_of
from orchestrator.client.file_lock import POLL_S, LockTimeout, file_lock
from orchestrator.client.http import UnixHttp
from orchestrator.client.location import LOG_NAME, SERVE_LOCK_NAME, SOCKET_NAME, START_LOCK_NAME
from orchestrator.client.program import need_extra, own_program
from orchestrator.client.token import token_headers, without_token
from orchestrator.client.version import VERSION
from orchestrator.core.errors import Conflict, Denied, Fatal, Unknown, VgpuctlError, error_from_dict

START_LIMIT_S: Final = 300.0
"""On a machine with much else to do a start takes minutes; one that fails is seen at once."""
STOP_LIMIT_S: Final = 300.0
"""The running step of every operation ends first."""
HANDSHAKES: Final = 3
ALREADY_RUNNING: Final = "server.already_running"
START_ERROR_MARK: Final = "vgpuctl-start-error "
"""Before the JSON of the error that kept a server from starting, in its log."""


def connect(state: Path, retries: int = 0) -> Connection:
    """A connection to this state directory's server, started when there is none.

    :raises VgpuctlError: it cannot be started, is not ours, or is of another version and busy or there to stay
    """
    was_empty = _holds_nothing(state)
    for _ in range(HANDSHAKES):
        connection, started = _open(state), None
        if connection is None:
            connection, started = _start(state)
        try:
            info = server_info(connection)
        except Unknown:
            continue  # it ended, being idle, just when we came
        version = str(info["version"])
        if version == VERSION:
            connection.retries = retries
            connection.server_is_new = was_empty and info["pid"] == started
            return connection
        if info["stops_after_idle_seconds"] is None:
            raise _stays(state, version)
        _stop_other_version(connection, state, version)
    raise Fatal("server.unstable", "the server ends again and again", hint=f"see {state / LOG_NAME}")


def _holds_nothing(state: Path) -> bool:
    """Whether a server that is started there would be a new one. A file of settings is something."""
    try:
        return not {file.name for file in state.iterdir()} - {START_LOCK_NAME, SERVE_LOCK_NAME, LOG_NAME}
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False


def connect_running(state: Path) -> Connection | None:
    """A connection to the server if one runs, of whatever version; starts nothing."""
    return _open(state)


def server_info(connection: Connection) -> Json:
    """Version, pid and what the server is doing."""
    info: Json = connection.call("GET", path_of("server"))
    return info


def stop(connection: Connection, state: Path, *, only_idle: bool) -> None:
    """Ask the server to stop and wait until it is gone. Running operations are parked and taken up again later.

    :raises Conflict: ``server.busy`` with ``only_idle`` while operations run
    """
    connection.call("POST", path_of("server", "stop"), {"only_idle": only_idle})
    connection.close()
    with _locked(state / SERVE_LOCK_NAME, STOP_LIMIT_S, "the server takes too long to stop"):
        return


def _open(state: Path) -> Connection | None:
    http = UnixHttp(state / SOCKET_NAME, CALL_TIMEOUT_S, token_headers())
    try:
        http.open()
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise Denied(
            "server.not_yours",
            f"the server in {state} belongs to somebody else",
            hint="set VGPUCTL_STATE to a directory of your own, or run as the server's owner",
        ) from error
    return Connection(http)


def _stop_other_version(connection: Connection, state: Path, version: str) -> None:
    try:
        stop(connection, state, only_idle=True)
    except Conflict as error:
        raise Conflict(
            "server.other_version",
            f"a server of version {version} is busy here, this is version {VERSION}",
            hint="wait for its operations ('vgpuctl operation list' of that version), or run 'vgpuctl server stop'",
        ) from error


def _stays(state: Path, version: str) -> Conflict:
    """Whoever started it ends it: a person in a terminal, or systemd."""
    return Conflict(
        "server.other_version",
        f"the server in {state} is of version {version}, this is version {VERSION}",
        hint="it was started to stay, so no command replaces it: end it where it was started and start it again, "
        "or use the command line of its version",
    )


def _start(state: Path) -> tuple[Connection, int | None]:
    """And the process that was started; None where another command was quicker.

    Who is being started otherwise, with hosts in memory say, may be quicker still: the server's answer has its pid."""
    need_extra("server")
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise state_unusable(state, error) from error
    with _locked(state / START_LOCK_NAME, START_LIMIT_S, "another command has been starting the server for too long"):
        running = _open(state)
        if running is not None:
            return running, None
        log = state / LOG_NAME
        log_start = log.stat().st_size if log.exists() else 0
        pid = _spawn(state, log)
        return _wait_until_open(state, pid, log, log_start), pid


def _spawn(state: Path, log: Path) -> int:
    """Start the server as a session of its own, so that Ctrl-C here does not reach it."""
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    words = own_program("orchestrator.server.serve", "--detached")
    return os.posix_spawn(
        words[0],
        words,
        {**without_token(os.environ), "VGPUCTL_STATE": str(state)},
        file_actions=actions,
        setsid=True,
    )


def _wait_until_open(state: Path, pid: int, log: Path, log_start: int) -> Connection:
    deadline = time.monotonic() + START_LIMIT_S
    refused: VgpuctlError | None = None
    while time.monotonic() < deadline:
        connection = _open(state)
        if connection is not None:
            return connection
        if refused is None and os.waitpid(pid, os.WNOHANG)[0]:
            refused = _start_error(log, log_start)
            if refused.code != ALREADY_RUNNING:  # else somebody else is starting one here, and that will do
                raise refused
        time.sleep(POLL_S)
    raise refused or Fatal(
        "server.start_slow", f"the server did not answer within {START_LIMIT_S:.0f} s", hint=f"see {log}"
    )


def _start_error(log: Path, log_start: int) -> VgpuctlError:
    with log.open("rb") as stream:
        stream.seek(log_start)
        lines = stream.read().decode(errors="replace").splitlines()
    for line in lines:
        if line.startswith(START_ERROR_MARK):
            return error_from_dict(json.loads(line.removeprefix(START_ERROR_MARK)))
    return Fatal("server.start_failed", "the server ended while it started", hint=f"see {log}")


@contextmanager
def _locked(path: Path, limit_s: float, too_slow: str) -> Iterator[None]:
    with ExitStack() as held:
        try:
            held.enter_context(file_lock(path, limit_s))
        except LockTimeout as error:
            raise Fatal("server.lock_held", too_slow, hint=f"see who holds {path}") from error
        except OSError as error:
            raise state_unusable(path.parent, error) from error
        yield


def state_unusable(state: Path, error: OSError) -> Fatal:
    """What a state directory is refused with that cannot be made or written."""
    return Fatal(
        "server.state_unusable",
        f"cannot use {state}: {error.strerror or error}",
        hint="set VGPUCTL_STATE to a directory you may write to",
    )
