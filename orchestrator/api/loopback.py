# SPDX-License-Identifier: Apache-2.0
"""A port of this machine alone for the browser of a local user, opened when it is first asked for.

Every user of the machine can connect to it, and a browser sends a cookie to all ports of one name. So it answers under
a name that is drawn for this process, below ``localhost``, which browsers look up nowhere.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable

from starlette.types import ASGIApp

from orchestrator.api.connection_limits import Listener, network_limit
from orchestrator.api.listening import BACKLOG
from orchestrator.core.errors import Fatal


class Loopback:
    """``begin``: serves an application on a socket from now on. ``serves``: that application, set by whoever has it."""

    def __init__(self, begin: Callable[[ASGIApp, Listener], object]) -> None:
        self._begin = begin
        self._name = f"vgpuctl-{secrets.token_hex(8)}.localhost"
        self._port: int | None = None
        self.serves: ASGIApp | None = None

    @property
    def host(self) -> str:
        """As a browser's ``Host`` has it."""
        return f"{self._name}:{self._port}"

    def open(self) -> str:
        """The address of what is served there. :raises Fatal: ``serve.cannot_listen``"""
        if self.serves is None:
            raise Fatal("serve.cannot_listen", "this server has no pages", hint="run 'vgpuctl serve'")
        if self._port is None:
            try:
                made = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
            except OSError as error:
                raise Fatal(
                    "serve.cannot_listen",
                    f"cannot listen on this machine: {error.strerror or error}",
                    hint="is its loopback interface up?",
                ) from error
            made.setblocking(False)
            self._port = made.getsockname()[1]
            self._begin(self.serves, Listener(made, network_limit()))
        return f"http://{self.host}"
