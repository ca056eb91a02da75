# SPDX-License-Identifier: Apache-2.0
"""One HTTP connection to the server, and the server's problems as errors of core/errors.py."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

from orchestrator.client.http import Http, HttpAnswer
from orchestrator.core.errors import InvalidInput, Retryable, Unknown, VgpuctlError, error_from_dict

Json = dict[str, Any]
"""An object of the API, as its OpenAPI page describes it."""

CALL_TIMEOUT_S: Final = 120.0
PAGE: Final = 10_000
"""Objects of a list in one answer; the server allows no more."""
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
"""What an id may be: it becomes a file name here and a word of the commands that hints name."""
_ID_MEMBERS: Final = ("id", "operation")
_DATE: Final = re.compile(r"[A-Z][a-z]{2}, ([0-9]{2}) ([A-Z][a-z]{2}) ([0-9]{4}) ([0-9:]{8}) GMT")
_MONTHS: Final = "JanFebMarAprMayJunJulAugSepOctNovDec"
_SAME_S: Final = 2.0
_NEXT: Final = re.compile(r'<(?P<target>/[!-=?-~]*)>; rel="next"')


def path_of(*parts: str) -> str:
    """``/v1/…`` with every part quoted: a name never becomes syntax of a URL.

    :raises InvalidInput: a part is empty
    """
    if not all(parts):
        raise InvalidInput("request.empty_name", "a name must not be empty", hint="give a name")
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


class Connection:
    """Sends requests one after the other over one kept-open connection."""

    def __init__(self, http: Http) -> None:
        self._http = http
        self._ahead_s = 0.0

    def server_time(self) -> float:
        """Seconds since the epoch, by the server's clock as its last answer told it."""
        return time.time() + self._ahead_s

    def open(self) -> None:
        """:raises OSError: nobody listens there, or we may not talk to it"""
        self._http.open()

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
        answer = self._exchange(method, target, None if body is None else json.dumps(body).encode())
        return _decoded(answer.status, answer.body)

    def pages(
        self, path: str, query: Mapping[str, object], *, at_most: int | None = None, member: str | None = None
    ) -> list[Any]:
        """All objects of a list, or the first so many, page after page. ``member``: of each answer that is the list.

        Raises as :meth:`call` does."""
        limit = PAGE if at_most is None else min(PAGE, at_most)
        wanted = {"limit": limit, **{key: value for key, value in query.items() if value is not None}}
        target: str | None = f"{path}?{urlencode(wanted)}"
        found: list[Any] = []
        while target is not None and (at_most is None or len(found) < at_most):
            answer = self._exchange("GET", target, None)
            page = _decoded(answer.status, answer.body)
            found += page if member is None else page[member]
            following = _NEXT.fullmatch(answer.headers.get("link", ""))
            target = following["target"] if following else None
        return found[:at_most]

    def _exchange(self, method: str, target: str, data: bytes | None) -> HttpAnswer:
        try:
            if not self._http.is_open:
                self._http.open()
        except OSError as error:
            raise _unreachable(self._http, error) from error
        try:
            answer = self._http.request(method, target, data)
        except OSError as error:
            self.close()
            raise Unknown(
                "server.lost",
                "the server went away before it answered",
                hint="run the command again; an operation that was started goes on",
                details=str(error),
            ) from error
        self._ahead_s = _ahead_s(answer.headers.get("date", ""), time.time())
        return answer


def _ahead_s(date: str, now: float) -> float:
    """How far ahead the server's clock is. The header has whole seconds and is a little old: so much is no difference.

    Read by hand, as the standard library reads it with its e-mail package, which takes long to load."""
    found = _DATE.fullmatch(date)
    if found is None:
        return 0.0
    try:
        day, month, year, clock = found.groups()
        number = _MONTHS.index(month) // 3 + 1
        told = datetime.fromisoformat(f"{year}-{number:02}-{day}T{clock}+00:00").timestamp()
    except ValueError:
        return 0.0
    return told - now if abs(told - now) > _SAME_S else 0.0


def _unreachable(http: Http, error: OSError) -> Retryable:
    return Retryable(
        "server.unreachable",
        f"no server answers at {http.place}: {error.strerror or error}",
        hint=http.way_out,
    )


def _decoded(status: int, content: bytes) -> Any:
    try:
        data = json.loads(content) if content else None
    except ValueError as error:
        raise Unknown("server.malformed", "the server's answer is not JSON", details=str(error)) from error
    if status < 400:
        return _with_good_ids(data)
    raise _problem(status, data)


def _with_good_ids(data: Any) -> Any:
    """The server is believed what it says of its objects, not that an id of theirs is one.

    :raises Unknown: ``server.malformed``
    """
    for one in data if isinstance(data, list) else (data,):
        for member in _ID_MEMBERS if isinstance(one, dict) else ():
            found = one.get(member)
            if found is not None and not (isinstance(found, str) and _ID.fullmatch(found)):
                raise Unknown("server.malformed", f"the server's answer has an id that is none: {ascii(found)[:80]}")
    return data


def _problem(status: int, data: Any) -> VgpuctlError:
    if not isinstance(data, dict) or "code" not in data:
        return Unknown("server.malformed", f"the server answered with status {status} and no explanation")
    return error_from_dict({**data, "message": data.get("detail"), "details": data.get("operator_details")})
