# SPDX-License-Identifier: Apache-2.0
"""Texts that not every database keeps, in each place of each route where a request has one."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

import pytest

from tests.hostile.spoiling import spoilt
from tests.unit.api.asking import Answer, Asking, asking

NUL: Final = "a\0b"
HALVES: Final = ("\ud800", "a\udfff", "\udc80b")
DESCRIBED: Final = asking().app.openapi()
ROUTES: Final = [(verb.upper(), path) for path, verbs in DESCRIBED["paths"].items() for verb in verbs]


@pytest.fixture(scope="module")
def ask() -> Asking:
    return asking()


def _asked(ask: Asking, method: str, target: str, body: object = None) -> Answer:
    answer = ask(method, target, body)
    assert answer.status == 400, (method, target, body, answer)
    return answer


def _example(method: str, path: str) -> dict[str, Any] | None:
    content = DESCRIBED["paths"][path][method.lower()].get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {}).get("$ref", "").rpartition("/")[2]
    examples: list[dict[str, Any]] = DESCRIBED["components"]["schemas"].get(schema, {}).get("examples", [])
    return examples[0] if examples else None


@pytest.mark.parametrize("route", ROUTES, ids=" ".join)
def test_no_text_that_a_database_may_not_keep_comes_further_than_the_border(
    ask: Asking, route: tuple[str, str]
) -> None:
    method, path = route
    if "{" in path:
        answer = ask(method, path.replace("{", NUL).replace("}", ""))
        assert (answer.status, answer.body["code"]) == (404, "request.no_such_path")
    plain = path.replace("{", "").replace("}", "")
    for one in DESCRIBED["paths"][path][method.lower()]["parameters"]:
        if one["in"] == "query":
            answer = _asked(ask, method, f"{plain}?{one['name']}=a%00b")
            assert answer.body["code"] == "request.text_invalid"
    example = _example(method, path)
    for text in (NUL, *HALVES):
        for body in spoilt(example, text) if example is not None else ():
            assert _asked(ask, method, plain, body).body["code"] == "request.text_invalid", body


def test_half_a_character_may_not_come_as_bytes_either(ask: Asking) -> None:
    for body in (b'{"name": "\xed\xa0\x80"}', '{"name": "a\\u0000"}'.encode("utf-16"), b'{"\xed\xb0\x80": 1}'):
        assert _asked(ask, "POST", "/v1/tenants", body).body["code"] == "request.text_invalid"
    assert ask("POST", "/v1/tenants", b'{"name": "\xff"}').status == 400


def test_a_whole_character_of_two_halves_is_a_text_as_any_other(ask: Asking) -> None:
    body = b'{"labels": {"note": "\\ud83d\\ude00"}}'
    assert ask("PATCH", "/v1/vms/none", body).body.get("code") != "request.text_invalid"


@pytest.mark.parametrize("text", [NUL, *HALVES])
def test_strangers_join_with_no_such_text_and_cursors_hold_none(ask: Asking, text: str) -> None:
    for body in ({"id": text, "secret": "s"}, {"id": "a", "secret": text}):
        assert _asked(ask, "POST", "/controllers/join", body).body["code"] == "request.text_invalid"
    cursor = base64.urlsafe_b64encode(json.dumps(["default", text]).encode()).decode().rstrip("=")
    for noun in ("vms", "operations", "images", "audit", "hosts"):
        assert ask("GET", f"/v1/{noun}?after={cursor}").status == 400, noun
