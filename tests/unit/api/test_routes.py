# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
from fastapi import FastAPI
from jsonschema_rs import validator_for

from orchestrator.api.errors import problem
from orchestrator.catalogue.described import Described, docs_in
from orchestrator.core.errors import NotFound
from tests.fakes.services import InMemory, Vms
from tests.unit.api.asking import serving

STRANGER = 12345


@pytest.fixture
def app() -> FastAPI:
    return serving(InMemory().as_services())


async def _ask(app: FastAPI, method: str, path: str, uid: int, sent: list[MutableMapping[str, Any]]) -> None:
    """One request from a user of this machine; what the application sends is put into ``sent``."""

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http", "http_version": "1.1", "method": method.upper(), "scheme": "http", "path": path,
        "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": [], "client": (f"uid:{uid}", 1),
    }  # fmt: skip
    await app(scope, receive, send)


def _status_for_a_stranger(app: FastAPI, method: str, path: str) -> int:
    sent: list[MutableMapping[str, Any]] = []
    asyncio.run(_ask(app, method, path, STRANGER, sent))
    return int(sent[0]["status"])


def test_every_route_refuses_a_stranger(app: FastAPI) -> None:
    routes = [(verb, path) for path, verbs in app.openapi()["paths"].items() for verb in verbs]
    assert len(routes) > 30
    answers = {
        f"{verb} {path}": _status_for_a_stranger(app, verb, re.sub(r"{[^}]*}", "x", path)) for verb, path in routes
    }
    assert {route: status for route, status in answers.items() if status != 403} == {}


def test_every_path_is_below_the_version(app: FastAPI) -> None:
    assert {path.split("/")[1] for path in app.openapi()["paths"]} == {"v1"}


def test_every_route_says_what_it_does_and_every_body_shows_an_example(app: FastAPI) -> None:
    description = app.openapi()
    verbs = [verb for path in description["paths"].values() for verb in path.values()]
    assert [verb["operationId"] for verb in verbs if not verb.get("description")] == []
    bodies = [
        verb["requestBody"]["content"]["application/json"]["schema"]
        for verb in verbs
        if "application/json" in verb.get("requestBody", {}).get("content", {})
    ]
    choices = [choice for body in bodies for choice in body.get("anyOf", [body])]
    asked = {choice["$ref"].rpartition("/")[2] for choice in choices if choice != {"type": "null"}}
    schemas = description["components"]["schemas"]
    assert [name for name in asked if not schemas[name].get("examples")] == []
    assert [name for name in asked if schemas[name].get("additionalProperties") is not False] == []


def test_every_answer_shows_an_example_that_has_its_fields_as_they_are_now(app: FastAPI) -> None:
    description = app.openapi()
    verbs = [verb for path in description["paths"].values() for verb in path.values()]
    answers = [answer.get("content", {}) for verb in verbs for answer in verb["responses"].values()]
    told = [body["schema"] for answer in answers for body in answer.values() if body.get("schema")]
    answered = {str(one.get("items", one).get("$ref", "")).rpartition("/")[2] for one in told} - {""}
    schemas = description["components"]["schemas"]
    assert {"Vm", "Operation", "Problem", "HostCheck"} <= answered
    wrong: dict[str, list[str]] = {}
    for name in answered:
        (example,) = schemas[name].get("examples", [{}])
        whole = {**schemas[name], "components": description["components"]}
        found = [one.message for one in validator_for(whole).iter_errors(example)]
        wrong |= {name: found} if found or set(example) != set(schemas[name]["properties"]) else {}
    assert wrong == {}, "run 'make docs'"


def test_the_summary_of_every_route_says_what_it_does_with_what(app: FastAPI) -> None:
    verbs = [verb for path in app.openapi()["paths"].values() for verb in path.values()]
    told = {verb["operationId"]: verb["summary"] for verb in verbs}
    assert (told["vms_get"], told["vms_list"], told["hosts_add"]) == ("Get a VM", "List VMs", "Add a host")
    assert [one for one in told.values() if " " not in one or "_" in one] == []
    assert len(set(told.values())) == len(told)
    assert [one for one in told.values() if len(one) > 75 or "\n" in one] == []


def test_the_description_says_which_body_errors_have(app: FastAPI) -> None:
    verbs = [verb for path in app.openapi()["paths"].values() for verb in path.values()]
    errors = [answer for verb in verbs for status, answer in verb["responses"].items() if status >= "400"]
    assert {tuple(answer["content"]) for answer in errors} == {("application/problem+json",)}
    assert [
        verb["operationId"] for verb in verbs if not {"400", "403", "404", "409", "500"} <= verb["responses"].keys()
    ] == []
    assert [verb["operationId"] for verb in verbs if "422" in verb["responses"]] == []
    described = set(app.openapi()["components"]["schemas"]["Problem"]["properties"])
    assert set(json.loads(bytes(problem(NotFound("vm.unknown", "none")).body))) == described


def test_programs_can_write_a_client_from_the_description(app: FastAPI) -> None:
    description = app.openapi()
    assert description["servers"][0]["url"] == "/"
    assert description["security"] == [{"token": []}, {}]
    assert description["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    ids = [verb["operationId"] for path in description["paths"].values() for verb in path.values()]
    assert len(set(ids)) == len(ids)
    assert [one for one in ids if not re.fullmatch(r"[a-z]+(_[a-z]+)+", one)] == []
    assert {"vms_create", "vms_list", "vms_get", "vms_open_console", "hosts_add", "operations_get"} <= set(ids)
    assert [name for name in description["components"]["schemas"] if name.endswith(("Answer", "Body"))] == []


def test_every_field_and_every_parameter_is_described(app: FastAPI) -> None:
    description = app.openapi()
    schemas = description["components"]["schemas"]
    told = {f"{name}.{key}": one for name, schema in schemas.items() for key, one in schema["properties"].items()}
    for path, verbs in description["paths"].items():
        for verb, operation in verbs.items():
            told |= {f"{verb} {path} {one['name']}": one for one in operation["parameters"]}
    assert [place for place, one in told.items() if not one.get("description")] == []


def _described_models(model: type[Described] = Described) -> Iterator[type[Described]]:
    for below in model.__subclasses__():
        yield below
        yield from _described_models(below)


def test_a_field_is_described_in_one_place() -> None:
    fields = [(model, name, info) for model in set(_described_models()) for name, info in model.model_fields.items()]
    assert len(fields) > 500
    twice = [f"{model.__name__}.{name}" for model, name, info in fields if info.description and name in docs_in(model)]
    assert twice == []
    inherited = [
        f"{model.__name__}.{name}" for model, name, _ in fields
        if docs_in(model).get(name, "") in {docs_in(core).get(name) for core in model.copied_from}
    ]  # fmt: skip
    assert inherited == []


class _Broken(InMemory):
    @property
    def vms(self) -> Vms:
        raise ZeroDivisionError("a secret of the program")

    @vms.setter
    def vms(self, _: Vms) -> None:
        """Thrown away."""


def test_a_bug_is_a_problem_with_a_number_and_no_secrets(caplog: pytest.LogCaptureFixture) -> None:
    app = serving(_Broken().as_services())
    sent: list[MutableMapping[str, Any]] = []
    with pytest.raises(ZeroDivisionError):
        asyncio.run(_ask(app, "get", "/v1/vms", 0, sent))
    answer = json.loads(sent[1]["body"])
    assert answer["code"] == "bug"
    assert "secret" not in str(answer)
    assert answer["detail"].split()[-1] in caplog.text
