# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.client.location import SOCKET_NAME
from tests.contract.api.conftest import Send, exchange

GOOD = {"name": "good", "profile": "t4-small", "image": "guest"}


def _inventory(send: Send) -> bytes:
    return b"".join(send("GET", f"/v1/{noun}").body for noun in ("vms", "hosts", "images", "networks", "operations"))


@pytest.mark.parametrize(
    "change",
    [
        {"name": None}, {"name": 7}, {"name": ["a"]}, {"name": "a" * 256}, {"name": "A;b"}, {"name": "\ud800"},
        {"vcpus": "2"}, {"vcpus": 0}, {"vcpus": 1025}, {"vcpus": 1.5}, {"vcpus": True}, {"vcpus": 2**63},
        {"memory_mib": -1}, {"memory_mib": 0}, {"memory_mib": 1e30}, {"disk_bytes": 0}, {"disk_bytes": "20GiB"},
        {"start": "yes"}, {"start": 1}, {"ssh_keys": "key"}, {"ssh_keys": [1]}, {"ssh_keys": ["k"] * 65},
        {"user_data": "a" * 65537}, {"user_data": {}}, {"owner": "root"}, {"state": "running"}, {"id": "x"},
        {"profile": "a" * 256}, {"tenant": "../x"}, {"host": 1},
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_field_is_refused_and_nothing_changes(send: Send, change: dict[str, Any]) -> None:
    before = _inventory(send)
    reply = send("POST", "/v1/vms", {**GOOD, **change})
    assert reply.status == 400
    assert reply.headers["content-type"] == "application/problem+json"
    problem = reply.json()
    assert problem["code"]
    assert "\n" not in problem["detail"]
    assert problem["status"] == 400
    assert _inventory(send) == before


@pytest.mark.parametrize(
    "change", [{"profile": ""}, {"profile": "nothing"}, {"image": "nothing"}, {"network": "nothing"}], ids=str
)
def test_a_name_of_nothing_is_not_found_in_a_body_as_in_a_path(send: Send, change: dict[str, str]) -> None:
    before = _inventory(send)
    reply = send("POST", "/v1/vms", {**GOOD, **change})
    assert reply.status == reply.json()["status"] == 404
    assert reply.json()["code"].endswith(".unknown")
    assert _inventory(send) == before


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"1", b'"x"', b"\xff\xfe", b"[" * 100_000, b'{"name":' * 50_000, b'{"name": NaN}',
     b"{'name': 'a'}", b"name=a"],
    ids=lambda body: ascii(body[:12]),
)  # fmt: skip
def test_a_body_that_is_no_vm_is_refused(send: Send, body: bytes) -> None:
    reply = send("POST", "/v1/vms", body)
    assert reply.status == 400
    assert reply.json()["code"].startswith("request.")


def test_another_content_type_is_refused(send: Send) -> None:
    assert send("POST", "/v1/vms", b"name=a", "application/x-www-form-urlencoded").status == 415


def test_a_body_over_the_bound_is_refused_before_it_is_read(state: Path) -> None:
    head = b"POST /v1/vms HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000000000\r\n\r\n"
    assert b" 413 " in exchange(state / SOCKET_NAME, head).split(b"\r\n")[0]


def test_a_body_that_never_ends_is_cut(state: Path) -> None:
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    head = b"POST /v1/vms HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = exchange(state / SOCKET_NAME, head + chunk * 20)
    assert b" 413 " in answer.split(b"\r\n")[0]
    assert b"request.too_large" in answer


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v1", 404),
        ("GET", "/v1/", 404),
        ("GET", "/v1/vms/", 404),
        ("GET", "//v1/vms", 404),
        ("GET", "/v2/vms", 404),
        ("GET", "/v1/vms/..", 404),
        ("GET", "/v1/vms/%2e%2e", 404),
        ("GET", "/v1/vms/%00", 404),
        ("GET", "/v1/vms/nobody", 404),
        ("GET", "/docs", 404),
        ("PUT", "/v1/vms/good", 405),
        ("PUT", "/v1/vms", 405),
        ("TRACE", "/v1/vms", 405),
        ("GET", "/v1/operations/x?wait=-1", 404),
        ("GET", "/v1/operations/x?wait=1e9", 404),
        ("GET", "/v1/operations/x?wait=nan", 404),
        ("GET", "/v1/operations/x?since=x", 404),
        ("GET", "/v1/operations?limit=0", 400),
        ("GET", "/v1/operations?limit=1000000000", 400),
        ("GET", "/v1/operations?active=perhaps", 400),
        ("GET", "/v1/gpus/gpu1/0000:41:00.9", 400),
        ("GET", "/v1/profiles/nothing", 404),
        ("GET", "/v1/profiles/a%2Fb", 404),
        ("DELETE", "/v1/images/nobody", 404),
    ],
)
def test_every_wrong_request_has_a_status_and_a_problem(send: Send, method: str, target: str, status: int) -> None:
    reply = send(method, target)
    assert reply.status == status
    assert reply.json()["code"]
    assert reply.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("junk", [b"\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00", b"GET / HTTP/9\r\n\r\n"])
def test_what_is_not_http_does_not_disturb_the_server(state: Path, send: Send, junk: bytes) -> None:
    exchange(state / SOCKET_NAME, junk + b"GET /\r\n\r\n")
    assert send("GET", "/v1/server").status == 200
