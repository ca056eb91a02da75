# SPDX-License-Identifier: Apache-2.0
"""Between one server and the simulated hosts: hosts that are down, and answers that are lost after the effect."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from orchestrator.core.errors import Retryable, VgpuctlError, error_to_dict
from orchestrator.core.protocol import encode_frame, read_frame
from tests.fakes.listening import Listening


class HostsRelay(Listening):
    """Listens on ``path`` until the process ends."""

    def __init__(self, path: Path, hosts: Path) -> None:
        self.down: set[str] = set()
        """Names of hosts that cannot be reached."""
        self.lose = 0
        """So many answers to changes are lost."""
        self.on_performed: Callable[[dict[str, Any]], object] = bool
        """Called with an action that was done, before its answer goes on."""
        self._hosts = hosts
        super().__init__(path, self._serve_one)

    def _serve_one(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as hosts, suppress(OSError, VgpuctlError):
            hosts.connect(str(self._hosts))
            asked, answered = client.makefile("rb"), hosts.makefile("rb")
            hello = read_frame(asked)
            assert hello is not None
            hosts.sendall(encode_frame(hello))
            while (request := read_frame(asked)) is not None:
                host: Any = request.get("host") or {}
                name = host.get("name")
                if name in self.down:
                    gone = Retryable("host.unreachable", f"{name} cannot be reached")
                    client.sendall(encode_frame({"error": error_to_dict(gone)}))
                    continue
                hosts.sendall(encode_frame(request))
                answer = read_frame(answered)
                if answer is None:
                    return
                if request["method"] == "perform":
                    params: Any = request["params"]
                    self.on_performed(params["action"])
                if self.lose and request["method"] == "perform":
                    self.lose -= 1
                    return
                client.sendall(encode_frame(answer))
