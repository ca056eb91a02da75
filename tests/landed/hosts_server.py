# SPDX-License-Identifier: Apache-2.0
"""The hosts of an older version, reached by a real server process as it reaches simulated ones (sim/hosts_link.py)."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from orchestrator.core.errors import InvalidInput, VgpuctlError, error_to_dict
from orchestrator.core.hosts.host import Host
from orchestrator.core.protocol import encode_frame, read_frame
from orchestrator.core.wire import (
    action_from_dict,
    domain_to_dict,
    look_to_dict,
    result_to_dict,
    things_to_dict,
    token_from_dict,
    unless_known,
)
from tests.fakes.fake_host import FakeHosts
from tests.fakes.listening import Listening

Message = dict[str, Any]


class HostsServer(Listening):
    """Listens on ``path`` until the process ends; one request at a time."""

    def __init__(self, path: Path, hosts: FakeHosts) -> None:
        self.done: Counter[tuple[str, str]] = Counter()
        """What was changed, by VM and action."""
        self.refused: Counter[str] = Counter()
        """Methods that the older version does not have."""
        self.hosts = hosts
        self._lock = threading.Lock()
        self._methods: dict[str, Callable[[Host, Message], Message]] = {
            "observe": lambda host, params: look_to_dict(unless_known(hosts.observe(host), params["known"])),
            "observe_domain": lambda host, params: domain_to_dict(hosts.observe_domain(host, params["vm"])),
            "things_of": lambda host, params: things_to_dict(hosts.things_of(host, params["vm"])),
            "perform": self._perform,
        }
        super().__init__(path, self._serve_one)

    def _serve_one(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as reader, suppress(OSError, VgpuctlError):
            read_frame(reader)  # who is there
            while (request := read_frame(reader)) is not None:
                with self._lock:
                    answer = self._answer(request)
                connection.sendall(encode_frame(answer))

    def _answer(self, request: Any) -> Message:
        if request["method"] == "enrol":
            return {"result": {"new": []}}
        method = request["method"]
        try:
            if method not in self._methods:
                self.refused[method] += 1
                raise InvalidInput("agent.request_invalid", f"this agent has no method {ascii(method)[:60]}")
            return {"result": self._methods[method](Host(**request["host"]), request["params"])}
        except VgpuctlError as error:
            return {"error": error_to_dict(error)}

    def _perform(self, host: Host, params: Message) -> Message:
        action = params["action"]
        result = self.hosts.perform(host, action_from_dict(action), token_from_dict(params["token"]))
        if result.changed:
            self.done[str(action.get("vm")), action["action"]] += 1
        return result_to_dict(result)
