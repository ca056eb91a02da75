# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gzip
import json
import select
import socket
from contextlib import suppress

import pytest

from orchestrator.client.location import SOCKET_NAME
from tests.hostile.site import VM, Site, problem_of

GOOD = json.dumps(VM)
POST = "POST /v1/vms HTTP/1.1\nHost: x\nContent-Type: application/json"
TWICE = (
    '{"name":"a","name":"b"}',
    GOOD[:-1] + ',"name":"b"}',
    GOOD[:-1] + ',"tenant":"default","tenant":"other"}',
    GOOD[:-1] + ',"tenant":"other","tenant":"default"}',
    GOOD[:-1] + ',"\\u006eame":"b"}',
)


@pytest.mark.parametrize("body", TWICE)
def test_a_field_that_is_there_twice_is_refused(site: Site, body: str) -> None:
    assert "twice" in site.refused("POST", "/v1/vms", body.encode(), code="request.said_twice")


def test_a_field_that_is_there_twice_further_in_is_refused(site: Site) -> None:
    body = b'{"limits":{"vms":1,"vms":2}}'
    site.refused("PATCH", "/v1/tenants/default/quota", body, code="request.said_twice")


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/v1/vms?tenant=default&tenant=default"),
        ("GET", "/v1/vms?limit=1&limit=2"),
        ("DELETE", "/v1/vms/there?tenant=default&tenant=default"),
        ("POST", "/v1/vms/there/stop?%74enant=default&tenant=default"),
    ],
)
def test_a_parameter_that_is_there_twice_is_refused(site: Site, method: str, target: str) -> None:
    site.refused(method, target, code="request.said_twice")


@pytest.mark.parametrize("depth", [100, 10**4, 10**5])
@pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ('{"name":', "}")])
def test_a_deep_body_is_refused(site: Site, depth: int, opens: str, closes: str) -> None:
    for body in (opens * depth, opens * depth + "1" + closes * depth, GOOD[:-1] + f',"x":{opens * depth}'):
        with site.untouched():
            reply = site.send("POST", "/v1/vms", body.encode())
        assert reply.status in {400, 413}, reply
        problem_of(reply)


def test_a_compressed_body_is_not_unpacked(site: Site) -> None:
    bomb = gzip.compress(b" " * 50_000_000 + GOOD.encode())
    head = f"{POST}\nContent-Encoding: gzip\nContent-Length: {len(bomb)}"
    with site.untouched():
        reply = site.raw(head, bomb)
    assert reply.status == 400, reply
    problem_of(reply)


def test_user_data_of_100_mb_is_refused_by_its_announced_length(site: Site) -> None:
    with site.untouched():
        assert site.raw(f"{POST}\nContent-Length: {100 * 10**6}").status == 413


@pytest.mark.fault("F130")
def test_a_body_without_an_end_is_cut_off_long_before_a_gigabyte(site: Site) -> None:
    chunk, sent = b"100000\r\n" + b" " * 2**20 + b"\r\n", 0
    with site.untouched(), socket.socket(socket.AF_UNIX) as connected:
        connected.settimeout(30)
        connected.connect(str(site.state / SOCKET_NAME))
        connected.sendall(f"{POST}\nTransfer-Encoding: chunked\n\n".replace("\n", "\r\n").encode())
        with suppress(OSError):
            while sent < 1000 and not select.select([connected], [], [], 0)[0]:
                connected.sendall(chunk)
                sent += 1
        reply = connected.recv(65536)
    assert reply.split()[1] == b"413", reply
    assert sent < 100


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (f"{POST}\nContent-Length: 1\nContent-Length: 2", 400),
        (f"{POST}\nContent-Length: -1", 400),
        (f"{POST}\nContent-Length: 1e3", 400),
        (f"{POST}\nTransfer-Encoding: chunked\nTransfer-Encoding: gzip", 501),
        ("GET /v1/vms HTTP/1.1\nHost: a\nHost: b", 400),
        ("GET /v1/vms HTTP/1.1\nX: a\x00b\nHost: a", 400),
        ("GET /v1/vms HTTP/1.1\nX" + ": " + "a" * 70_000, 400),
    ],
)
def test_a_head_that_can_be_read_in_two_ways_is_refused(site: Site, head: str, status: int) -> None:
    with site.untouched():
        reply = site.raw(head)
    assert reply.status in {400, status}, reply
    assert b"Traceback" not in reply.body


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1:1", "x@y", "[::1]", "a" * 300, "x\tevil.example"])
def test_the_host_that_a_request_names_is_repeated_nowhere(site: Site, host: str) -> None:
    reply = site.raw(f"GET /v1/images?limit=1 HTTP/1.1\nHost: {host}")
    assert reply.status in {200, 400}
    assert host not in str(reply.headers) + reply.body.decode()
    other = site.raw(f"GET /v1/vms/nobody HTTP/1.1\nHost: {host}\nX-Forwarded-Host: {host}\nX-Forwarded-For: 1.2.3.4")
    assert other.status in {404, 400}
    assert host not in str(other.headers) + other.body.decode()


@pytest.mark.parametrize(
    "target", ["/v1/vms/a%0d%0aX-Evil:1", "/v1/images?limit=1&x=%0d%0aX-Evil:%201", "/v1/%0d%0aX-Evil:1"]
)
def test_no_line_of_a_target_becomes_a_header(site: Site, target: str) -> None:
    assert "x-evil" not in site.send("GET", target).headers


TOKENS = (
    "", "x", "vgpuctl_", "vgpuctl_000000000000_" + "A" * 43, "vgpuctl_000000000000_" + "A" * 42, "a" * 9000,
    "eyJhbGciOiJub25lIn0.eyJzdWIiOiJyb290In0.", "eyJhbGciOiJIUzI1NiJ9.e30.x", "vgpuctl_\u0660", "null", "undefined",
)  # fmt: skip


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "Basic ", ""])
def test_a_token_that_is_none_opens_nothing_even_for_the_owner(site: Site, scheme: str) -> None:
    for token in TOKENS:
        with site.untouched():
            reply = site.raw(
                f"DELETE /v1/vms/there HTTP/1.1\nHost: x\nAuthorization: {scheme}{token}".replace("\u0660", "?")
            )
        assert reply.status in {400, 401, 403}, f"{token[:50]}: {reply}"
        if token and reply.headers.get("content-type") == "application/problem+json":
            assert token not in reply.body.decode() or len(token) < 9


def test_a_token_in_the_address_is_none(site: Site) -> None:
    made = site.send("POST", "/v1/tokens", {"role": "read-only"}).json()
    head = "GET /v1/hosts?token={0}&access_token={0} HTTP/1.1\nHost: x\nAuthorization: Bearer none"
    assert site.raw(head.format(made["token"])).status in {401, 403}
    site.send("DELETE", f"/v1/tokens/{made['about']['id']}")
    revoked = site.raw(f"GET /v1/images HTTP/1.1\nHost: x\nAuthorization: Bearer {made['token']}")
    assert revoked.status in {401, 403}


def test_the_same_name_with_other_values_is_a_conflict_and_changes_nothing(site: Site) -> None:
    body = {**VM, "name": "there", "vcpus": 2}
    site.refused("POST", "/v1/vms", body, code="vm.exists", status=409)


def test_who_stops_in_the_middle_of_a_body_disturbs_nobody(site: Site) -> None:
    with site.untouched(), socket.socket(socket.AF_UNIX) as connected:
        connected.connect(str(site.state / SOCKET_NAME))
        connected.sendall(f"{POST}\nContent-Length: 1000\n\n".replace("\n", "\r\n").encode() + b'{"name":')
        with suppress(OSError):
            connected.shutdown(socket.SHUT_WR)
        connected.settimeout(30)
        assert b"Traceback" not in connected.recv(65536)
    assert site.send("GET", "/v1/server").status == 200
