# SPDX-License-Identifier: Apache-2.0
"""Every route with every method, under headers that make a server play a request again or answer a part of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.hostile.site import Site
from tests.unit.api.asking import asking

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
READS = frozenset({"GET", "HEAD", "OPTIONS"})
HEADERS = (
    "If-Match: x", "If-Match: *", "If-None-Match: *", 'If-None-Match: "x"', "Range: bytes=0-0", "Expect: 100-continue",
    "If-Match: x\nTransfer-Encoding: chunked", "Idempotency-Key: k\nIf-Match: x", "Last-Event-ID: -1\nIf-Match: x",
)  # fmt: skip
ALL_METHODS = {"If-Match: x", "If-Match: x\nTransfer-Encoding: chunked"}
REAL = {"tenant": "default", "host": "t4", "address": "0000:41:00.0", "port": "22", "sha256": "0" * 64}
NAMES = {"vms": "there", "hosts": "t4", "images": "guest", "networks": "default", "profiles": "t4-small"}
ROUTES = {(route.path, route.method) for route in asking().app.state.routes.routes}
PATHS = sorted({path for path, _ in ROUTES})


def _real(path: str, operation: str) -> str:
    """The path with names of things that are there, so that its route goes as far as it can."""
    name = NAMES.get(path.split("/")[2] if path.count("/") > 1 else "", "none")
    known = {**REAL, "name": name, "operation_id": operation}
    return re.sub(r"{([^}]*)}", lambda found: known.get(found[1], "none"), path)


def _absent(path: str) -> str:
    return re.sub(r"{[^}]*}", "none", path)


def _asked(path: str, header: str, operation: str) -> Iterator[tuple[str, str]]:
    """What may carry out a change is asked of nothing that is there, unless its tag is none. A method that a path does
    not have is refused before any condition is looked at: once is enough, and once with a body to be skipped."""
    stale = "If-Match: x" in header
    for method in METHODS if header in ALL_METHODS else (its for its in METHODS if (path, its) in ROUTES):
        harmless = method in READS or stale
        waits = path.startswith("/v1/operations/{operation_id}") or path == "/v1/events"
        wait = "?wait=0.1" if waits and method in READS else ""
        yield method, (_real(path, operation) if harmless else _absent(path)) + wait


def _names(site: Site) -> list[tuple[str, str]]:
    nouns = ("vms", "hosts", "tenants", "images", "networks", "volumes")
    return [(noun, thing["name"]) for noun in nouns for thing in site.send("GET", f"/v1/{noun}").json()]


@pytest.mark.parametrize("header", HEADERS)
def test_the_server_answers_everybody_after_a_request_under_any_condition(site: Site, header: str) -> None:
    operation = site.send("GET", "/v1/operations?limit=1").json()[0]["id"]
    before = _names(site)
    for path in PATHS:
        for method, target in _asked(path, header, operation):
            body = b"0\r\n\r\n" if "chunked" in header else b""
            reply = site.raw(f"{method} {target} HTTP/1.1\nHost: x\n{header}", body)
            assert reply.status < 500 or reply.status in {502, 507}, (method, target, reply)
        assert site.send("GET", "/healthz").status == 200, path
    assert _names(site) == before


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_method_that_a_stream_of_events_does_not_have_is_refused_as_such(site: Site, method: str) -> None:
    operation = site.send("GET", "/v1/operations?limit=1").json()[0]["id"]
    reply = site.raw(f"{method} /v1/operations/{operation}/events HTTP/1.1\nHost: x\nIf-Match: x")
    assert (reply.status, reply.json()["code"]) == (405, "request.method")


def test_the_head_of_a_stream_of_events_is_answered_at_once(site: Site) -> None:
    started = site.send("POST", "/v1/vms/there/restart").json()["operation"]
    reply = site.raw(f"HEAD /v1/operations/{started}/events?wait=3600 HTTP/1.1\nHost: x")
    assert (reply.status, reply.headers["content-type"], reply.body) == (200, "text/event-stream; charset=utf-8", b"")
