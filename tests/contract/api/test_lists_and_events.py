# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from orchestrator.client.autostart import connect
from orchestrator.client.connection import path_of
from orchestrator.client.location import SOCKET_NAME
from tests.contract.api.conftest import Send, exchange, next_page

NETWORKS = ("aa", "bb", "cc", "dd", "ee")


@pytest.fixture(scope="module", autouse=True)
def _networks(send: Send) -> None:
    for name in NETWORKS:
        assert send("POST", "/v1/networks", {"name": name}).status == 201


def test_following_the_links_gives_every_object_once(send: Send) -> None:
    target: str | None = "/v1/networks?limit=2"
    names: list[str] = []
    while target is not None:
        reply = send("GET", target)
        page = [network["name"] for network in reply.json()]
        assert len(page) <= 2
        names += page
        target = next_page(reply.headers)
    assert names == [network["name"] for network in send("GET", "/v1/networks").json()]
    assert set(names) >= {*NETWORKS, "default"}


def test_the_client_follows_them_too(state: Path) -> None:
    connection = connect(state)
    assert connection.pages(path_of("networks"), {"limit": 2}) == connection.pages(path_of("networks"), {})
    connection.close()


@pytest.mark.parametrize("noun", ["vms", "hosts", "gpus", "profiles", "images", "networks", "operations"])
@pytest.mark.parametrize("wrong", ["limit=0", "limit=-1", "limit=1e9", "limit=10001", "limit=x", "after=" + "a" * 1025])
def test_a_page_has_a_bound(send: Send, noun: str, wrong: str) -> None:
    reply = send("GET", f"/v1/{noun}?{wrong}")
    assert (reply.status, reply.json()["code"]) == (400, "request.invalid")


def test_a_forged_cursor_is_refused(send: Send) -> None:
    assert send("GET", "/v1/networks?after=bm9uZQ").json()["code"] == "request.cursor"


def _get(state: Path, target: str, *headers: str) -> tuple[str, dict[str, str], bytes]:
    lines = [f"GET {target} HTTP/1.1", "Host: x", "Connection: close", *headers, "", ""]
    head, _, body = exchange(state / SOCKET_NAME, "\r\n".join(lines).encode()).partition(b"\r\n\r\n")
    status, *fields = head.decode().split("\r\n")
    return status.split(" ", 1)[1], {k.lower(): v.strip() for k, _, v in (f.partition(":") for f in fields)}, body


def test_an_answer_that_is_known_already_is_not_sent_again(state: Path, send: Send) -> None:
    _, headers, body = _get(state, "/v1/networks")
    tag = headers["etag"]
    assert body
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        status, again, nothing = _get(state, "/v1/networks", f"If-None-Match: {known}")
        assert (status[:3], again["etag"], nothing) == ("304", tag, b"")
    send("POST", "/v1/networks", {"name": "zz"})
    status, changed, body = _get(state, "/v1/networks", f"If-None-Match: {tag}")
    assert status[:3] == "200"
    assert changed["etag"] != tag
    assert b'"zz"' in body


def test_errors_have_no_tag(state: Path) -> None:
    status, headers, _ = _get(state, "/v1/vms/nobody", "If-None-Match: *")
    assert status[:3] == "404"
    assert "etag" not in headers


def _events(body: bytes) -> list[tuple[int, dict[str, object]]]:
    text = re.sub(r"(?m)^[0-9a-f]+\r\n|\r\n", "", body.decode())
    told = []
    for block in text.split("\n\n"):
        fields = dict(line.partition(": ")[::2] for line in block.splitlines())
        if "data" in fields:
            assert fields["event"] == "operation"
            told.append((int(fields["id"]), json.loads(fields["data"])))
    return told


def _started(send: Send, name: str) -> str:
    body = {"name": name, "profile": "t4-small", "image": "guest"}
    return str(send("POST", "/v1/vms", body).json()["operation"])


def test_events_tell_every_change_of_an_operation_until_it_is_finished(state: Path, send: Send) -> None:
    operation = _started(send, "streamed")
    status, headers, body = _get(state, f"/v1/operations/{operation}/events")
    told = _events(body)
    assert status[:3] == "200"
    assert headers["content-type"].startswith("text/event-stream")
    assert [revision for revision, _ in told] == sorted({revision for revision, _ in told})
    assert [told[0][1]["state"], told[-1][1]["state"]] == ["queued", "done"]
    assert {"running"} == {data["state"] for _, data in told[1:-1]}


def test_who_comes_back_is_told_only_what_is_new(state: Path, send: Send) -> None:
    operation = _started(send, "come-back")
    _, _, body = _get(state, f"/v1/operations/{operation}/events?wait=0", "Last-Event-ID: -1")
    ((revision, _),) = _events(body)
    _, _, body = _get(state, f"/v1/operations/{operation}/events", f"Last-Event-ID: {revision}")
    assert _events(body)[0][0] == revision + 1


def test_there_are_no_events_of_an_operation_that_is_none(state: Path) -> None:
    status, headers, _ = _get(state, "/v1/operations/none/events")
    assert (status[:3], headers["content-type"]) == ("404", "application/problem+json")
