# SPDX-License-Identifier: Apache-2.0
"""A server of an OVSDB database, asked by its own protocol (RFC 7047): JSON-RPC 1.0 over TCP, TLS or a unix socket.

OVN's Python library has a parser of its own, which takes ten times as long for the same text, and keeps a copy of all
tables in each client."""

from __future__ import annotations

import json
import re
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from orchestrator.core.errors import Retryable

LIMIT_S: Final = 10.0
"""For one answer, connecting included."""
MAX_BYTES: Final = 32 * 1024 * 1024
"""Of one answer, where nothing else is said: a southbound of 20,000 ports has some 100 MB in all, and no question is
for the whole."""
_PIECE: Final = 1 << 20
_QUIET_S: Final = 0.05
"""Whoever has sent nothing for as long may have said all."""
_TCP: Final = re.compile(r"(ssl|tcp):\[?(.+?)\]?:([0-9]+)")
_OUTDATED: Final = frozenset({"timed out", "duplicate uuid"})
"""Errors of a wait that waits for nothing, and of a row that has come meanwhile."""
Row = Mapping[str, Any]


class OvsdbClient:
    """A connection to one server; ``endpoint`` as core/ovn.parse_endpoints takes it.

    ``trust`` None: without TLS. Whose name a certificate has says nothing, as everywhere in OVS: who has one of the
    authority is believed (ovsdb-server(1), PKI options)."""

    def __init__(self, endpoint: str, trust: ssl.SSLContext | None, limit_s: float = LIMIT_S) -> None:
        """:raises Retryable: ``ovn.unreachable``"""
        self._deadline = time.monotonic() + limit_s
        self.limit_s, self.max_bytes = limit_s, MAX_BYTES
        self._read = b""
        self._asked = 0
        try:
            self._socket = _connected(endpoint, trust, limit_s)
        except (OSError, OverflowError) as error:
            raise unreachable(_why(error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def certificate_ends_at(self) -> float | None:
        """In seconds since the epoch; None: it has shown none."""
        shown = self._socket.getpeercert() if isinstance(self._socket, ssl.SSLSocket) else None
        return None if not shown else float(ssl.cert_time_to_seconds(str(shown["notAfter"])))

    def select(self, database: str, *wanted: tuple[str, Sequence[str]]) -> list[list[dict[str, Any]]]:
        """All rows of each table with these columns, of one moment; sets and maps are lists and dicts."""
        operations = [{"op": "select", "table": table, "where": [], "columns": list(cols)} for table, cols in wanted]
        return [[plain_row(row) for row in answer["rows"]] for answer in self.transact(database, *operations)]

    def transact(self, database: str, *operations: Mapping[str, Any]) -> list[Any]:
        """All of them or none, and what each gave.

        :raises Retryable: ``ovn.unreachable``, ``ovn.refused``, ``ovn.outdated``"""
        answers = self._call("transact", [database, *operations])
        if not isinstance(answers, list):
            raise unreachable("it answered with something else")
        refused = [answer for answer in answers if not isinstance(answer, dict) or "error" in answer]
        if any(isinstance(answer, dict) and answer.get("error") in _OUTDATED for answer in refused):
            raise Retryable("ovn.outdated", "OVN's database was changed meanwhile", details=json.dumps(refused)[:2000])
        if refused:
            raise _refused(refused)
        return answers

    def _call(self, method: str, parameters: Sequence[Any]) -> Any:
        self._asked += 1
        self._deadline = time.monotonic() + self.limit_s
        try:
            self._send({"method": method, "params": parameters, "id": self._asked})
            while True:
                message = self._message()
                if message.get("method") == "echo":  # it wants to know whether we live
                    self._send({"result": message.get("params"), "error": None, "id": message.get("id")})
                elif message.get("id") == self._asked:
                    break
        except (OSError, ValueError, RecursionError) as error:
            raise unreachable(_why(error)) from error
        if message.get("error") is not None:
            raise _refused(message["error"])
        return message.get("result")

    def _send(self, message: Mapping[str, Any]) -> None:
        self._socket.settimeout(self._left_s())
        self._socket.sendall(json.dumps(message).encode())

    def _left_s(self) -> float:
        """However much comes meanwhile. :raises TimeoutError: nothing"""
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        return left_s

    def _message(self) -> dict[str, Any]:
        """Nothing stands between two messages: one ends where its JSON does, which a brace may be. What is long is
        parsed again when it has doubled, or nothing more comes."""
        pieces, size, parsed, quiet = [self._read], len(self._read), 0, False
        while True:
            left_s = self._left_s()
            ends = pieces[-1].rstrip().endswith(b"}")
            if ends and (quiet or size >= 2 * parsed):
                whole, parsed = b"".join(pieces).decode(), size
                pieces = [whole.encode()]
                try:
                    message, end = json.JSONDecoder().raw_decode(whole)
                except json.JSONDecodeError:
                    pass
                else:
                    self._read = whole[end:].lstrip().encode()
                    return dict(message)
            may_be_all = ends and size > parsed
            self._socket.settimeout(min(left_s, _QUIET_S) if may_be_all else left_s)
            try:
                piece = self._socket.recv(_PIECE)
                quiet = may_be_all and not piece
            except OSError:  # nothing for a while, or no more at all
                if not may_be_all:
                    raise
                quiet = True
            if quiet:
                continue
            size += len(piece)
            if not piece or size > self.max_bytes:
                much = f"its answer has more than {self.max_bytes >> 20} MiB"
                raise ValueError(much if piece else "it closed the connection")
            pieces.append(piece)


def unreachable(why: str, details: str | None = None) -> Retryable:
    hint = "an operator sees more with 'vgpuctl network driver check'"
    return Retryable("ovn.unreachable", f"OVN's database does not answer: {why}", hint=hint, details=details)


def _refused(why: object) -> Retryable:
    return Retryable("ovn.refused", "OVN's database refused what it was asked", details=json.dumps(why)[:2000])


def _connected(endpoint: str, trust: ssl.SSLContext | None, limit_s: float) -> socket.socket:
    if endpoint.startswith("unix:"):
        local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        local.settimeout(limit_s)
        local.connect(endpoint.removeprefix("unix:"))
        return local
    parts = _TCP.fullmatch(endpoint)
    if parts is None:
        raise OSError("not an address")
    plain = socket.create_connection((parts[2], int(parts[3])), timeout=limit_s)
    if parts[1] == "tcp":
        return plain
    if trust is None:
        plain.close()
        raise OSError("it wants TLS, and nothing says whom to trust")
    try:
        return trust.wrap_socket(plain)
    except OSError:
        plain.close()
        raise


def plain_row(row: Row) -> dict[str, Any]:
    """Sets and maps as lists and dicts."""
    return {name: _value(value) for name, value in row.items()}


def _value(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()  # half a character may be in it, which nobody can send on
    if not isinstance(value, list) or len(value) != 2:
        return value
    kind, content = value
    if kind == "map":
        return {_value(key): _value(each) for key, each in content}
    return [_value(each) for each in content] if kind == "set" else _value(content)


def _why(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__)[:200]
