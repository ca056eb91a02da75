# SPDX-License-Identifier: Apache-2.0
"""``python -m orchestrator.server.serve``: builds the control plane and serves it.

Graceful stop: no new work is taken, the running step of every operation ends and is journalled,
the rest is taken up by the next server.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import os
import shlex
import stat
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.types import ASGIApp

from orchestrator.adapters.engine.timer import Timer
from orchestrator.adapters.state.directory import LastBackup
from orchestrator.api.connection_limits import take_descriptors
from orchestrator.api.limits import Activity
from orchestrator.api.listening import group_socket_of, tls_of
from orchestrator.api.loopback import Loopback
from orchestrator.api.process import only_one, serve_until_done
from orchestrator.api.services import Process
from orchestrator.client.autostart import START_ERROR_MARK, connect_running, state_unusable
from orchestrator.client.client import Client
from orchestrator.client.location import SOCKET_NAME, state_directory
from orchestrator.core import interpreter
from orchestrator.core.errors import Conflict, Fatal, InvalidInput, VgpuctlError, error_to_dict
from orchestrator.server.bootstrap import App, build
from orchestrator.server.error_line import print_error
from orchestrator.server.flow_records import flows_written
from orchestrator.server.pushing import pushed
from orchestrator.server.settings import Settings, load_settings
from orchestrator.web.pages import pages_beside

log = logging.getLogger(__name__)

IDLE_VARIABLE: Final = "VGPUCTL_SERVE_IDLE_SECONDS"
DEFAULT_IDLE_S: Final = 15 * 60.0
LEAVE_LIMIT_S: Final = 17.0
"""A server that was told to end has ended by then, open requests (5 s) included."""
LOCK_PATIENCE_S: Final = 50.0
"""A server that just ends may still be parking its operations."""
OWN_STATE_S: Final = 2.0
"""How often a server looks whether its state directory and database are still its own."""


def idle_seconds(environment: str | None, *, detached: bool) -> float | None:
    """After how long without work the server ends. One that a person started in a terminal stays.

    :raises InvalidInput: ``serve.idle_invalid``
    """
    if not environment:
        return DEFAULT_IDLE_S if detached else None
    if not environment.isascii() or not environment.isdigit() or len(environment) > 9:
        raise InvalidInput("serve.idle_invalid", f"{IDLE_VARIABLE} is not a number of seconds", hint="for example 900")
    return float(environment)


def run(*, detached: bool, lock: int | None = None, fleet: Path | None = None, **chosen: object) -> None:
    """Serve until told to stop; ``chosen`` settings win over all others. ``fleet``: serve the hosts of that file,
    which only exist in the memory of another process, or those of the process that has this socket. ``lock``: the
    descriptor that holds the state directory already.

    :raises VgpuctlError: a setting is wrong, another server runs here, the database is of another version …
    """
    state = state_directory()
    _make(state)
    limit = idle_seconds(os.environ.get(IDLE_VARIABLE), detached=detached)
    settings = load_settings(**chosen)
    tls = tls_of(settings.listen, settings.tls_cert, settings.tls_key)
    group = group_socket_of(settings.socket_directory, settings.socket_group)
    with ExitStack() as held:
        try:
            held.enter_context(only_one(state, LOCK_PATIENCE_S if detached else 0, lock))
        except OSError as error:
            raise state_unusable(state, error) from error
        app = _build(settings, fleet, held)
        take_descriptors()
        faulthandler.enable()  # says where every thread was when the service manager's watchdog ends the process
        interpreter.tune_server()
        guard = Timer({"own state": lambda: _leave_if_lost(app)}, OWN_STATE_S)
        guard.start()
        try:
            process = Process(
                started_at=time.time(),
                idle_seconds=limit,
                activity=Activity(),
                timers=app.timers,
                backed_up_at=LastBackup(state).at if settings.database_server is None else lambda: None,
                leaving=_end_in_time,
                pages=_pages(app),
            )
            if fleet is not None and not detached and sys.stderr.isatty():
                threading.Thread(target=_show_ways, args=[state, settings.listen], daemon=True).start()
            with pushed(settings, app, process), flows_written(settings, app, process):
                serve_until_done(state, app.services, process, tls, lambda place: _say(place, detached=detached), group)
        finally:
            guard.stop()
            _end_in_time()
            if left := app.close():
                _end_now(f"{left} steps wait for hosts that hang")


def _pages(app: App) -> Callable[[Starlette, Loopback], ASGIApp]:
    identities = app.services.tenancy.access.identities
    browsers = None if identities is None else identities.browsers
    return pages_beside(app.services.controllers.key, app.store, browsers)


def _end_in_time() -> None:
    """Whatever hangs: a host, the database, a thread that answers somebody."""
    timer = threading.Timer(LEAVE_LIMIT_S, _end_now, ["something hangs"])
    timer.daemon = True
    timer.start()


def _end_now(why: str) -> None:
    """All that has not ended is stored, and the next server goes on with it: to it this is no other than a crash."""
    log.warning("%s: this server ends without them; the next one goes on with what has not ended", why)
    logging.shutdown()
    os._exit(0)


def _leave_if_lost(app: App) -> None:
    """Not in good order: whatever is still under way here would be done beside another server."""
    try:
        app.check_own()
    except Conflict as error:
        log.critical("%s [%s]; this server ends at once", error.message, error.code)
        os._exit(error.exit_code)


def _make(state: Path) -> None:
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = state.stat()
    except OSError as error:
        raise state_unusable(state, error) from error
    if status.st_uid != os.geteuid() or status.st_mode & stat.S_IWOTH:
        whose = "is another user's" if status.st_uid != os.geteuid() else "can be written by everybody"
        raise Fatal(
            "server.state_unsafe",
            f"{ascii(str(state))[1:-1]} {whose}: what is in it could be exchanged",
            hint="run the server as its owner, or 'chmod 0700' what is yours",
        )


def _build(settings: Settings, fleet: Path | None, held: ExitStack) -> App:
    if fleet is None:
        return build(settings)
    from orchestrator.server.simulated import build_without_hosts, simulated_hosts  # a real server needs nothing of it

    return build_without_hosts(settings, held.enter_context(simulated_hosts(fleet, settings)))


def _say(place: str, *, detached: bool) -> None:
    if not detached:
        print(f"serving on {place}; Ctrl-C stops", file=sys.stderr, flush=True)


def _show_ways(state: Path, listen: str | None) -> None:
    """Pages and metrics. To a terminal alone, as the address logs in whoever opens it: what 'vgpuctl web' prints to the
    same user."""
    while (connection := connect_running(state)) is None:
        time.sleep(OWN_STATE_S / 10)
    with suppress(VgpuctlError):
        given = Client(connection).web_ticket()
        ticket = f"{given['address']}/web/ticket#{given['ticket']}"
        print(f"pages, within a minute: {ticket}\nlater 'vgpuctl web' gives another address", file=sys.stderr)
        print(_metrics_at(state, listen), file=sys.stderr, flush=True)


def _metrics_at(state: Path, listen: str | None) -> str:
    """A Prometheus asks over the network alone."""
    if listen is None:
        socket = shlex.quote(str(state / SOCKET_NAME))
        ways = f"curl --unix-socket {socket} http://localhost/metrics (a Prometheus needs 'serve --listen')"
    else:
        ways = f"https://{listen}/metrics, hosts and VMs by http_sd https://{listen}/v1/metrics/targets"
    return f"metrics: {ways}; docs/reference/metrics.md has a Prometheus scrape them"


def main() -> int:
    """``python -m orchestrator.server.serve``: exit codes as everywhere."""
    parser = argparse.ArgumentParser(prog="vgpuctl serve", description="Run the control plane's server.")
    parser.add_argument("--detached", action="store_true", help="started by a command: ends when idle")
    parser.add_argument("--lock", type=int, help=argparse.SUPPRESS, default=argparse.SUPPRESS)
    for name, says in (
        ("listen", "HOST:PORT"),
        ("tls-cert", "PEM file"),
        ("tls-key", "PEM file"),
        ("socket-directory", "DIR"),
        ("socket-group", "GROUP"),
    ):
        parser.add_argument(f"--{name}", metavar=says, default=argparse.SUPPRESS)
    parser.add_argument("--simulate", metavar="FLEET", dest="fleet", type=Path, default=argparse.SUPPRESS)
    chosen = vars(parser.parse_args())
    detached = bool(chosen.pop("detached"))
    try:
        run(detached=detached, **chosen)
    except VgpuctlError as error:
        if detached:
            print(START_ERROR_MARK + json.dumps(error_to_dict(error)), file=sys.stderr, flush=True)
        else:
            print_error(error)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
