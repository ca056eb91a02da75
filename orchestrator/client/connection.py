# SPDX-License-Identifier: Apache-2.0
"""One HTTP connection to the server's unix socket, and the server's problems as errors of core/errors.py."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from orchestrator.client.location import SocketAddress
from orchestrator.core.errors import Retryable, Unknown, VgpuctlError, error_from_dict

Json = dict[str, Any]
"""An object of the API, as its OpenAPI page describes it."""

CALL_TIMEOUT_S: Final = 120.0
MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024


class _UnixHttpConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        with SocketAddress(self._path) as address:
            self.sock.connect(address)


def path_of(*parts: str) -> str:
    """``/v1/…`` with every part quoted: a name never becomes syntax of a URL."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


class Connection:
    """Sends requests one after the other over one kept-open connection."""

    def __init__(self, socket_path: Path) -> None:
        self.socket_path = socket_path
        self._http = _UnixHttpConnection(socket_path, CALL_TIMEOUT_S)

    def open(self) -> None:
        """:raises OSError: nobody listens there, or we may not talk to it"""
        self._http.connect()

    def close(self) -> None:
        self._http.close()

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        query: Mapping[str, object] | None = None,
    ) -> Any:
        """The answer's JSON, None when it has no body.

        :raises VgpuctlError: the server's own error; ``server.unreachable`` (Retryable) when nothing was sent,
            ``server.lost`` (Unknown) when the answer did not come
        """
        wanted = {key: value for key, value in (query or {}).items() if value is not None}
        target = path + ("?" + urlencode(wanted) if wanted else "")
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json"}
        if data is not None:
            headers["Content-Type"] = "application/json"
        try:
            if self._http.sock is None:
                self._http.connect()
        except OSError as error:
            raise _unreachable(self.socket_path, error) from error
        try:
            self._http.request(method, target, data, headers)
            answer = self._http.getresponse()
            content = answer.read(MAX_ANSWER_BYTES)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Unknown(
                "server.lost",
                "the server went away before it answered",
                hint="run the command again; an operation that was started goes on",
                details=str(error),
            ) from error
        return _decoded(answer.status, content)


def _unreachable(path: Path, error: OSError) -> Retryable:
    return Retryable(
        "server.unreachable",
        f"no server answers at {path}: {error.strerror or error}",
        hint="run 'vgpuctl server status'",
    )


def _decoded(status: int, content: bytes) -> Any:
    try:
        data = json.loads(content) if content else None
    except ValueError as error:
        raise Unknown("server.malformed", "the server's answer is not JSON", details=str(error)) from error
    if status < 400:
        return data
    raise _problem(status, data)


def _problem(status: int, data: Any) -> VgpuctlError:
    if not isinstance(data, dict) or "code" not in data:
        return Unknown("server.malformed", f"the server answered with status {status} and no explanation")
    return error_from_dict({**data, "message": data.get("detail"), "details": data.get("operator_details")})
