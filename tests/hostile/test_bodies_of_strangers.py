# SPDX-License-Identifier: Apache-2.0
"""Who has not said who it is has no body read, no record for each refusal, and no name in the metrics."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any, Final

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from starlette.types import ASGIApp

from orchestrator.api.app import create_app
from orchestrator.api.limits import MAX_BODY_BYTES, MAX_STRANGERS_BODY_BYTES, MAX_VALUES, Activity, has_too_many_values
from orchestrator.api.services import Process
from orchestrator.services.audit import MOST
from tests.contract.api.real_app import real_app
from tests.fakes.asking import ask
from tests.fakes.control_plane import ControlPlane, plane_with
from tests.unit.api.asking import Asking, asking

ROUTES: Final = [(one.method, re.sub("{[^}]*}", "x", one.path)) for one in asking().app.state.routes.routes]
OPEN: Final = ("/healthz", "/readyz", "/metrics", "/controllers/", "/v1/openapi.json")
NESTED: Final = b"[" + b"[]," * 349_000 + b"[]]"
STRANGER: Final = 54321


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with plane_with(tmp_path_factory.mktemp("plane"), "t4") as made:
        yield made


@pytest.fixture(scope="module")
def open_app(plane: ControlPlane) -> FastAPI:
    """As the network reaches it; it takes longer to make than to ask."""
    return create_app(plane.services, Process(started_at=0, idle_seconds=None, activity=Activity()))


async def _sent(app: ASGIApp, method: str, path: str, body: bytes) -> tuple[int, int]:
    """The status of a stranger's request, and how often its body was asked for before the answer began."""
    read, status = 0, 0

    async def receive() -> MutableMapping[str, Any]:
        nonlocal read
        read += status == 0
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)

    scope = {
        "type": "http", "http_version": "1.1", "method": method, "scheme": "https", "path": path,
        "raw_path": path.encode(), "query_string": b"", "root_path": "", "client": ("192.0.2.1", 1),
        "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())],
    }  # fmt: skip
    await app(scope, receive, send)
    return status, read


@pytest.mark.parametrize("route", ROUTES, ids=" ".join)
def test_nothing_of_a_body_is_read_of_who_has_not_said_who_it_is(open_app: FastAPI, route: tuple[str, str]) -> None:
    method, path = route
    status, read = asyncio.run(_sent(open_app, method, path, NESTED))
    if not path.startswith(OPEN):
        assert (status, read) == (401, 0)
    elif method == "POST":
        assert (status, read) == (413, 0)


def test_a_stranger_may_send_a_small_body_to_join_and_no_other(plane: ControlPlane) -> None:
    client = TestClient(real_app(plane, uid=STRANGER))
    for body, status in ((b"[" * 100, 400), (b" " * (MAX_STRANGERS_BODY_BYTES + 1), 413)):
        assert client.post("/controllers/join", content=body).status_code == status


def test_strangers_fill_no_audit_whatever_they_are_refused_for(tmp_path: Path) -> None:
    with plane_with(tmp_path, "t4") as plane:
        client = TestClient(real_app(plane, uid=STRANGER))
        audit = plane.services.tenancy.audit
        codes = set()
        for _ in range(2):
            for method, path in [*ROUTES, ("POST", "/nowhere"), ("M1X", "/v1/vms"), ("DELETE", "/healthz")]:
                for body in (b"", b"{}", b"{", b" " * 5000, b'{"id": "x", "secret": "y"}'):
                    answer = client.request(method, path, content=body, headers={"content-type": "application/json"})
                    codes.add(answer.json().get("code") if answer.status_code >= 400 else None)
        assert {"peer.denied", "request.method", "request.no_such_path", "request.too_large"} <= codes
        assert "controller.not_invited" in codes
        records = audit.list(limit=10_000)
        assert len([one for one in records if one.outcome.startswith("refused")]) <= 2 * (MOST + 1)
        known = TestClient(real_app(plane))
        for _ in range(MOST + 5):
            assert known.post("/v1/tenants", json={"name": "A;b"}).status_code == 400
        newest = audit.list(limit=MOST + 5)
        assert {one.outcome for one in newest} == {"refused: tenant.name_invalid"}


def test_methods_and_paths_that_strangers_make_up_are_one_line_of_the_metrics(open_app: FastAPI) -> None:
    before = len(ask(open_app, "GET", "/metrics", uid=0).body)
    for number in range(300):
        for path in ("/healthz", "/v1/vms", f"/v1/{number}"):
            ask(open_app, f"M{number}X", path, uid=None)
    assert len(ask(open_app, "GET", "/metrics", uid=0).body) < before + 20_000


@pytest.mark.parametrize(
    "body",
    [
        NESTED,
        b"[" + b"1," * 500_000 + b"1]",
        b"{" + b'"a":1,' * 150_000 + b'"b":1}',
    ],
    ids=["lists", "numbers", "members"],
)
def test_a_body_of_very_many_values_is_not_even_parsed(body: bytes) -> None:
    ask_owner: Asking = asking()
    assert len(body) <= MAX_BODY_BYTES
    began = time.process_time()
    answer = ask_owner("POST", "/v1/vms", body)
    assert (answer.status, answer.body["code"]) == (400, "request.invalid")
    assert str(MAX_VALUES) in answer.body["detail"]
    assert time.process_time() - began < 5  # naming each member that is refused took minutes


def test_texts_without_an_end_are_counted_in_no_time() -> None:
    began = time.process_time()
    for body in (b'{"a":"\\"' * 90_000, b'{,"' * 300_000, b'"' + b'{,\\"' * 200_000):
        has_too_many_values(body)
    assert time.process_time() - began < 5  # what tries again from each quotation mark takes minutes


def test_a_text_may_hold_as_many_brackets_as_it_likes() -> None:
    assert not has_too_many_values(b'{"user_data": "' + b'[{,\\"' * 13_000 + b'"}')
    assert has_too_many_values(b'{"user_data": "' + b'[{,\\"' * 13_000 + b'"' + b",1" * (MAX_VALUES + 1))


def test_a_refusal_names_the_first_mistakes_and_counts_the_others() -> None:
    answer = asking()("POST", "/v1/tenants", {f"f{number}": 1 for number in range(4000)})
    assert (answer.status, answer.body["code"]) == (400, "request.invalid")
    assert len(answer.body["reasons"]) <= 20
    assert "(and 4000 more)" in answer.body["detail"]
    twice = b"{" + b",".join(b'"f%d":1' % number for number in range(4000)) + b',"f3999":1}'
    assert asking()("POST", "/v1/tenants", twice).body["code"] == "request.said_twice"
