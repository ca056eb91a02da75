# SPDX-License-Identifier: Apache-2.0
"""One HTTP connection to the server, and the server's problems as errors of core/errors.py."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import count
from typing import Any, Final
from urllib.parse import quote, urlencode

from orchestrator.client.content import Content
from orchestrator.client.event_reader import EventReader
from orchestrator.client.http import Http, HttpAnswer, NotConnected
from orchestrator.client.shapes import misfit, shape_of
from orchestrator.core.errors import InvalidInput, Retryable, Unknown, VgpuctlError, error_from_dict
from orchestrator.core.foreign_json import parse_json

Json = Mapping[str, Any]
"""An object of the API, as generated/models.py describes it."""

CALL_TIMEOUT_S: Final = 120.0
PAGE: Final = 10_000
"""Objects of a list in one answer; the server allows no more."""
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
"""What an id may be: it becomes a file name here and a word of the commands that hints name."""
_ID_MEMBERS: Final = ("id", "operation")
_DATE: Final = re.compile(r"[A-Z][a-z]{2}, ([0-9]{2}) ([A-Z][a-z]{2}) ([0-9]{4}) ([0-9:]{8}) GMT")
_MONTHS: Final = "JanFebMarAprMayJunJulAugSepOctNovDec"
_SAME_S: Final = 2.0
_PAUSE_S: Final = 0.2
_TOTAL: Final = "x-total-count"
_NEXT: Final = re.compile(r'<(?P<target>/[!-=?-~]*)>; rel="next"')


def path_of(*parts: str) -> str:
    """``/v1/…`` with every part quoted: a name never becomes syntax of a URL.

    :raises InvalidInput: a part is empty
    """
    if not all(parts):
        raise InvalidInput("request.empty_name", "a name must not be empty", hint="give a name")
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


@dataclass(frozen=True)
class Request:
    """One request, ready to be sent."""

    method: str
    target: str
    data: bytes | None
    key: str | None
    repeatable: bool
    """Sent twice it does what it does once."""
    content: Content | None = None
    """A file that is its body."""

    def repeats(self, allowed: int) -> int:
        """How often it is sent again at most."""
        return allowed if self.repeatable else 0


def request_of(
    method: str,
    path: str,
    body: Mapping[str, object] | None,
    query: Mapping[str, object] | None,
    *,
    keyed: bool,
) -> Request:
    """``keyed``: under a key of its own."""
    wanted = {key: value for key, value in (query or {}).items() if value is not None}
    target = path + ("?" + urlencode(wanted) if wanted else "")
    data = None if body is None else json.dumps(body).encode()
    repeatable = keyed or method in {"GET", "PUT", "PATCH"}
    return Request(method, target, data, os.urandom(16).hex() if keyed else None, repeatable)


def request_of_file(path: str, content: Content, query: Mapping[str, object]) -> Request:
    """A PUT of a file."""
    return replace(request_of("PUT", path, None, query, keyed=False), content=content)


@dataclass
class Pages:
    """A list that is read page after page. ``member``: of each answer that is the list."""

    path: str
    query: Mapping[str, object]
    at_most: int | None = None
    member: str | None = None
    members: list[Any] = field(default_factory=list)
    first_answer: Any = None
    """As the server sent it."""
    total: int | None = None
    """Of all pages together, as the server says it; None: it does not, or there is one page only."""

    def first(self) -> Request:
        limit = PAGE if self.at_most is None else min(PAGE, self.at_most)
        return request_of("GET", self.path, None, {"limit": limit, **self.query}, keyed=False)

    def add(self, answer: HttpAnswer) -> Request | None:
        """What to ask next; None: that was all."""
        page = decoded(answer, self.first())
        self.first_answer = page if self.first_answer is None else self.first_answer
        self.members += page if self.member is None else page[self.member]
        if (total := answer.headers.get(_TOTAL, "")).isdecimal():
            self.total = int(total)
        following = _NEXT.fullmatch(answer.headers.get("link", ""))
        if following is None or (self.at_most is not None and len(self.members) >= self.at_most):
            return None
        return Request("GET", following["target"], None, None, repeatable=True)


class Connection:
    """Sends requests one after the other over one kept-open connection.

    ``retries``: how often a request is sent again whose answer did not come; POSTs go under a key then, so that they
    are carried out once.
    """

    def __init__(self, http: Http, retries: int = 0) -> None:
        self._http = http
        self.retries = retries
        self._ahead_s = 0.0
        self.total: int | None = None
        """How many the list has that was read last and cut at ``at_most``; None: it was not cut."""
        self.server_is_new = False
        """This process started the server, where none ever was."""

    def server_time(self) -> float:
        """Seconds since the epoch, by the server's clock as its last answer told it."""
        return time.time() + self._ahead_s

    def close(self) -> None:
        self._http.close()

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        query: Mapping[str, object] | None = None,
        *,
        keyed: bool = False,
    ) -> Any:
        """The answer's JSON, None when it has no body.

        ``keyed``: the route takes a key, under which sending it again is harmless.

        :raises VgpuctlError: the server's own error; ``server.unreachable`` (Retryable) when nothing was sent,
            ``server.lost`` (Unknown) when the answer did not come
        """
        request = request_of(method, path, body, query, keyed=keyed and self.retries > 0)
        return decoded(self._exchange(request), request)

    def pages(
        self, path: str, query: Mapping[str, object], *, at_most: int | None = None, member: str | None = None
    ) -> list[Any]:
        """All objects of a list, or the first so many, page after page. ``member``: of each answer that is the list.

        Raises as :meth:`call` does."""
        pages = Pages(path, query, at_most, member)
        following: Request | None = pages.first()
        while following is not None:
            following = pages.add(self._exchange(following))
        self.total = pages.total if at_most is not None and len(pages.members) >= at_most else None
        return pages.members[:at_most]

    def whole(self, path: str, query: Mapping[str, object], member: str) -> Any:
        """The first answer with all that its list ``member`` has on further pages. Raises as :meth:`call` does."""
        pages = Pages(path, query, None, member)
        following: Request | None = pages.first()
        while following is not None:
            following = pages.add(self._exchange(following))
        return {**pages.first_answer, member: pages.members}

    def digest_of(self, content: Content) -> str:
        """SHA-256 of a file. Raises as :meth:`Content.digest` does."""
        return content.digest()

    def upload(self, path: str, content: Content, query: Mapping[str, object]) -> Any:
        """Send a file. The answer and what is raised are those of :meth:`call`, and of reading the file."""
        request = request_of_file(path, content, query)
        return decoded(self._exchange(request), request)

    def open_events(self, query: Mapping[str, object], after: str | None) -> EventReader:
        """What happens in the fleet, on a connection of its own. ``after``: the id to go on after.

        Raises as :meth:`call` does."""
        wanted = [(key, value) for key, value in query.items() if value is not None]
        headers = {} if after is None else {"Last-Event-ID": after}
        try:
            target = path_of("events") + "?" + urlencode(wanted, doseq=True)
            reader = EventReader(self._http.open_stream(target, headers), after)
        except NotConnected as error:
            raise unreachable(self._http.place, self._http.way_out, error) from error
        except OSError as error:
            raise lost_answer(error) from error
        if reader.stream.status >= 400:
            self.close_events(reader)
            raise problem_of(reader.stream.status, reader.stream.problem)
        return reader

    def next_event(self, reader: EventReader) -> Any:
        """As the API describes events and gaps; without a noun one only says where the stream is. None: it has ended.
        Raises as :meth:`call` does."""
        while True:
            if reader.events:
                return reader.take()
            try:
                part = self._http.next_part(reader.stream)
                reader.feed(part)
            except OSError as error:
                raise lost_answer(error) from error
            except ValueError as error:
                raise malformed("the server's answer is no stream of events", str(error)) from error
            if not part:
                return None

    def close_events(self, reader: EventReader) -> None:
        self._http.close_stream(reader.stream)

    def _exchange(self, request: Request) -> HttpAnswer:
        first: VgpuctlError | None = None
        for turn in count():
            try:
                return self._sent(request)
            except (Retryable, Unknown) as error:
                first = first or error
                if turn == request.repeats(self.retries):
                    raise first from error
            time.sleep(pause_s(turn))
        raise AssertionError

    def _sent(self, request: Request) -> HttpAnswer:
        try:
            answer = self._answer(request)
        except NotConnected as error:
            raise unreachable(self._http.place, self._http.way_out, error) from error
        except OSError as error:
            raise lost_answer(error) from error
        self._ahead_s = ahead_s(answer.headers.get("date", ""), time.time())
        return answer

    def _answer(self, request: Request) -> HttpAnswer:
        if request.content is not None:
            return self._http.upload(request.method, request.target, request.content)
        return self._http.request(request.method, request.target, request.data, request.key)


def ahead_s(date: str, now: float) -> float:
    """How far ahead the server's clock is. The header has whole seconds and is a little old: so much is no difference.

    Read by hand, as the standard library reads it with its e-mail package, which takes long to load."""
    matched = _DATE.fullmatch(date)
    if matched is None:
        return 0.0
    try:
        day, month, year, clock = matched.groups()
        number = _MONTHS.index(month) // 3 + 1
        server_time = datetime.fromisoformat(f"{year}-{number:02}-{day}T{clock}+00:00").timestamp()
    except ValueError:
        return 0.0
    return server_time - now if abs(server_time - now) > _SAME_S else 0.0


def pause_s(turn: int) -> float:
    """Seconds before it is sent again: twice as long each time."""
    return _PAUSE_S * float(2**turn)


def unreachable(place: str, way_out: str, error: OSError) -> Retryable:
    """Nobody answers there; nothing was sent."""
    return Retryable("server.unreachable", f"no server answers at {place}: {error.strerror or error}", hint=way_out)


def lost_answer(error: OSError) -> Unknown:
    """It was sent, and the answer did not come."""
    late = isinstance(error, TimeoutError)
    return Unknown(
        "server.lost",
        f"the server {'did not answer in time' if late else 'went away before it answered'}",
        hint="run the command again; an operation that was started goes on",
        details=str(error),
    )


def decoded(answer: HttpAnswer, request: Request) -> Any:
    """The JSON of a good answer. :raises VgpuctlError: what the server says went wrong; ``server.malformed``"""
    data = _parsed(answer.body)
    if answer.status >= 400:
        raise problem_of(answer.status, answer.body)
    shape = shape_of(request.method, request.target)
    why = None if shape is None else misfit(data, shape)
    if why is not None:
        raise malformed(f"the server's answer to {request.method} {request.target.partition('?')[0]} is none: {why}")
    return _with_good_ids(data)


def _parsed(body: bytes | None) -> Any:
    try:
        return parse_json(body) if body else None
    except ValueError as error:
        raise malformed("the server's answer is not JSON", str(error)) from error


def problem_of(status: int, body: bytes | None) -> VgpuctlError:
    """What the server says went wrong; ``server.malformed`` where it does not say it as the API does."""
    data = _parsed(body)
    if not isinstance(data, dict) or "code" not in data:
        return malformed(f"the server answered with status {status} and no explanation")
    return error_from_dict({**data, "message": data.get("detail"), "details": data.get("operator_details")})


def malformed(what: str, details: str | None = None) -> Unknown:
    return Unknown(
        "server.malformed",
        what,
        hint="is that a vgpuctl server, and of this version? 'vgpuctl version'",
        details=details,
    )


def _with_good_ids(data: Any) -> Any:
    """The server is believed what it says of its objects, not that an id of theirs is one.

    :raises Unknown: ``server.malformed``
    """
    for entry in data if isinstance(data, list) else (data,):
        for member in _ID_MEMBERS if isinstance(entry, dict) else ():
            value = entry.get(member)
            if type(value) is int and value >= 0:
                continue  # the number of a row: it names nothing anywhere
            if value is not None and not (isinstance(value, str) and _ID.fullmatch(value)):
                raise malformed(f"the server's answer has an id that is none: {ascii(value)[:80]}")
    return data
