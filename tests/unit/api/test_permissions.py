# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.routing import WebSocketRoute

from orchestrator.api.permissions import RULES
from orchestrator.api.routes import console_sessions, guest_streams
from orchestrator.core.tenancy.access import EVERYWHERE, Role
from tests.fakes.services import InMemory
from tests.unit.api.asking import serving

REFUSALS = {"access.denied", "tenant.unknown", "operation.unknown", "access.no_rule"}
OWN_LISTS = {"GET /v1/tenants"}
"""Of all tenants that the caller may know of; no parameter narrows them."""
CALLERS: list[tuple[str, Role]] = [
    (EVERYWHERE, "admin"), (EVERYWHERE, "operator"), (EVERYWHERE, "read-only"),
    ("own", "tenant-admin"), ("own", "tenant-user"), ("own", "read-only"),
]  # fmt: skip


def _routes(app: FastAPI) -> Iterator[str]:
    for path, verbs in app.openapi()["paths"].items():
        yield from (f"{verb.upper()} {path}" for verb in verbs)
    for route in (*guest_streams.router.routes, *console_sessions.streams.routes):
        if isinstance(route, WebSocketRoute):
            yield f"WEBSOCKET /v1{route.path_format}"


@dataclass(frozen=True)
class Scene:
    """An application with two tenants, an operation in each, and one of the operator's own."""

    runner: asyncio.Runner
    app: FastAPI
    fake: InMemory
    operations: dict[str, str]

    def token(self, tenant: str, role: Role) -> str:
        return self.fake.tenancy.tokens.create(tenant, role, None)[1]

    def ask(self, token: str, route: str, tenant: str, *, also: str = "") -> tuple[int, dict[str, Any]]:
        """Status and problem (empty when it is none). ``also``: more of the query."""
        method, _, path = route.partition(" ")
        values = {"tenant": tenant, "wait": "0"}
        query = "&".join(f"{name}={value}" for name, value in values.items() if name in self.takes(method, path))
        path = path.replace("{tenant}", tenant).replace("{operation_id}", self.operations.get(tenant, "absent"))
        for name, value in {
            "{name}": "x",
            "{sha256}": "0" * 64,
            "{host}": "x",
            "{address}": "x",
            "{token_id}": "x",
            "{port}": "22",
            "{kind}": "serial",
        }.items():
            path = path.replace(name, value)
        return self.runner.run(_answer(self.app, method, path, tenant, token, query + also))

    def takes(self, method: str, path: str) -> set[str]:
        """Names of the parameters that it has in the query."""
        if method == "WEBSOCKET":
            return {"tenant"}
        described = self.app.openapi()["paths"][path][method.lower()].get("parameters", [])
        return {one["name"] for one in described if one["in"] == "query"}


async def _answer(
    app: FastAPI, method: str, path: str, tenant: str, token: str, query: str
) -> tuple[int, dict[str, Any]]:
    sent: list[MutableMapping[str, Any]] = []
    websocket = method == "WEBSOCKET"
    said: list[MutableMapping[str, Any]] = [{"type": "http.disconnect"}]
    if websocket:
        said.append({"type": "websocket.connect"})
    else:
        said.append({"type": "http.request", "body": json.dumps({"tenant": tenant}).encode(), "more_body": False})

    async def receive() -> MutableMapping[str, Any]:
        return said.pop() if len(said) > 1 else said[0]

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope: dict[str, Any] = {
        "type": "websocket" if websocket else "http", "http_version": "1.1", "path": path, "raw_path": path.encode(),
        "scheme": "http", "query_string": query.encode(), "root_path": "", "client": ("192.0.2.1", 5),
        "headers": [(b"authorization", f"Bearer {token}".encode()), (b"content-type", b"application/json")],
        "extensions": {"websocket.http.response": {}}, "subprotocols": [],
    }  # fmt: skip
    if not websocket:
        scope["method"] = method
    await app(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in sent)
    problem = json.loads(body) if body.startswith(b'{"type"') else {}
    return int(sent[0].get("status", 200)), problem


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    """A loop keeps the threads that routes run in."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def scene(runner: asyncio.Runner) -> Scene:
    fake = InMemory()
    for name in ("own", "foreign"):
        fake.tenancy.tenants.create(name)
    operations = {name: fake.world.begin("create_vm", name, name, lambda: None) for name in ("own", "foreign")}
    return Scene(runner, serving(fake.as_services()), fake, operations)


def test_every_route_has_a_row_and_every_row_a_route(scene: Scene) -> None:
    assert sorted(_routes(scene.app)) == sorted(RULES)


def _expected(route: str, tenant: str, caller: tuple[str, Role]) -> str | None:
    """The code of the refusal; None: may pass."""
    rule, (place, role) = RULES[route], caller
    knows = place in {EVERYWHERE, tenant}
    if rule.scope == "pool":
        return None if place == EVERYWHERE and role in rule.roles else "access.denied"
    if rule.scope != "anybody" and not knows:
        by_id = rule.scope == "operation"
        return None if route in OWN_LISTS else "operation.unknown" if by_id else "tenant.unknown"
    return None if role in rule.roles else "access.denied"


@pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: f"{caller[1]} in {caller[0]}")
def test_every_route_lets_exactly_those_pass_who_may(scene: Scene, caller: tuple[str, Role]) -> None:
    token = scene.token(*caller)
    wrong = {}
    for tenant in ("own", "foreign"):
        for route in sorted(RULES, key=lambda route: (route.startswith("DELETE"), route.count("/") * -1, route)):
            _, problem = scene.ask(token, route, tenant)
            refused = problem["code"] if problem.get("code") in REFUSALS else None
            if refused != _expected(route, tenant, caller):
                wrong[f"{route} of {tenant}"] = refused
    assert wrong == {}


def test_no_route_ignores_a_parameter_that_it_does_not_have(scene: Scene) -> None:
    token = scene.token(EVERYWHERE, "admin")
    for route in RULES:
        problem = scene.ask(token, route, "own", also="&limt=5")[1]
        assert problem["code"] == "request.unknown_parameter", route
        assert problem["status"] == 400
        assert "'limt'" in problem["detail"]
    lists = [route for route in RULES if "limit" in scene.takes(*route.split(" "))]
    assert len(lists) > 10
    assert {scene.ask(token, route, "own", also="&limt=5")[1]["hint"] for route in lists} == {"did you mean limit?"}
    assert scene.ask(token, "GET /v1/server", "own", also="&%01" + "x" * 99)[1]["hint"] == "it takes none"


@pytest.mark.fault("F127")
def test_a_foreign_thing_and_an_absent_one_are_answered_with_the_same_words(scene: Scene) -> None:
    token = scene.token("own", "tenant-admin")
    for route in RULES:
        foreign, absent = scene.ask(token, route, "foreign"), scene.ask(token, route, "absentx")
        ids = {scene.operations["foreign"]: "X", "absent": "X", "foreign": "X", "absentx": "X"}
        texts = []
        for answer in (foreign, absent):
            text = json.dumps(answer)
            for name in sorted(ids, key=len, reverse=True):
                text = text.replace(f"'{name}'", "'X'")
            texts.append(text)
        assert texts[0] == texts[1], route


def test_nobody_who_only_reads_and_no_tenant_reaches_what_changes_the_pool() -> None:
    for route, rule in RULES.items():
        if not route.startswith("GET"):
            assert "read-only" not in rule.roles, route
        if rule.scope == "pool":
            assert not rule.roles & {"tenant-admin", "tenant-user"}, route


@pytest.mark.parametrize("role", ["tenant-admin", "tenant-user"])
def test_no_tenant_takes_over_what_runs_on_a_host(scene: Scene, role: Role) -> None:
    assert scene.ask(scene.token("own", role), "POST /v1/vms/adopt", "own")[0] == 403


@pytest.mark.parametrize("spoilt", ["", "vgpuctl_", "x", "vgpuctl_0123456789ab_" + "A" * 43])
def test_a_token_that_is_none_of_ours_opens_nothing(scene: Scene, spoilt: str) -> None:
    for route in RULES:
        assert scene.ask(spoilt, route, "own")[1]["code"] == "token.refused"


def test_a_token_of_ours_with_another_secret_opens_nothing(scene: Scene) -> None:
    good = scene.token("own", "tenant-user")
    spoilt = good[:-1] + ("A" if good[-1] != "A" else "B")
    assert scene.ask(good, "GET /v1/vms", "own")[0] == 200
    assert scene.ask(spoilt, "GET /v1/vms", "own")[1]["code"] == "token.refused"


@pytest.mark.fault("F130")
def test_a_revoked_and_an_expired_token_are_refused_with_the_same_words(scene: Scene) -> None:
    tokens = scene.fake.tenancy.tokens
    record, revoked = tokens.create("own", "tenant-user", None)
    assert scene.ask(revoked, "GET /v1/vms", "own")[0] == 200
    tokens.revoke("own", record.id)
    expired = tokens.create("own", "tenant-user", 1e-9)[1]
    answers = [scene.ask(text, "GET /v1/vms", "own") for text in (revoked, expired, "vgpuctl_nothing")]
    assert answers[0][0] == 401
    assert answers[0] == answers[1] == answers[2]
