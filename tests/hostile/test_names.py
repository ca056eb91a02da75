# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from tests.hostile.site import HOST, VM, Site, code_for, problem_of

HOSTILE = (
    "", " ", "\x00", "a\x00", "a" * 64, "a" * 255, "..", ".", "/etc/x", "a/b", "-rf", "--config=x", "$(id)", "`id`",
    ";reboot", "|x", "&&", "%s%n", "{{7*7}}", "{% include %}", "${jndi}", "a\nb", "a\rb", "a\tb", "\x1b[31m", "a\n",
    "\u202eevil", "\u0430dmin", "caf\u00e9", "cafe\u0301", "Upper", "\U0001f600", "a ", "' OR 1=1--",
    "=cmd|", "</name><devices>", "]]>", "<!--", "&xxe;", "a_b", "a.b", "a-", "nvidia,id=x", "a:b", "%2e%2e", "%00",
    "\u0661\u0662", "a\u0085b", "a\u2028b", "<!DOCTYPE x [<!ENTITY a 'b'>]>", "json:{}", "urn:uuid:", "*",
)  # fmt: skip
NO_TEXT: tuple[object, ...] = ("\ud800", "a\udfff", "a" * 256, 7, True, ["a"], {})

DOORS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "a VM's name": ("/v1/vms", "name", VM, "vm.name_invalid"),
    "a VM's host": ("/v1/vms", "host", VM, "host.name_invalid"),
    "a VM's image": ("/v1/vms", "image", VM, "image.name_invalid"),
    "a VM's network": ("/v1/vms", "network", VM, "network.name_invalid"),
    "a VM's label": ("/v1/vms", "label", VM, "label.name_invalid"),
    "a planned VM's name": ("/v1/vms/plan", "name", VM, "vm.name_invalid"),
    "an adopted VM's name": ("/v1/vms/adopt", "name", {"host": "t4", "domain": "x"}, "vm.name_invalid"),
    "a host's name": ("/v1/hosts", "name", HOST, "host.name_invalid"),
    "an image's name": ("/v1/images", "name", {"source": "/srv/x"}, "image.name_invalid"),
    "a network's name": ("/v1/networks", "name", {}, "network.name_invalid"),
    "a tenant's name": ("/v1/tenants", "name", {}, "tenant.name_invalid"),
}


@pytest.mark.fault("F126")
@pytest.mark.parametrize("door", DOORS)
def test_a_hostile_name_is_refused_at_every_door_of_a_body(site: Site, door: str) -> None:
    path, field, rest, code = DOORS[door]
    for name in HOSTILE:
        if name == "a/b" and door == "a VM's image":
            continue  # the image b that the tenant a shares
        said = site.refused("POST", path, {**rest, field: name}, code=code_for(name, code))
        assert ("NUL" if "\0" in name else "letters") in said
    for value in NO_TEXT:
        site.refused("POST", path, {**rest, field: value}, code=code_for(value, "request.invalid"))


@pytest.mark.parametrize("path", ["/v1/vms", "/v1/vms/plan", "/v1/tokens", "/v1/vms/adopt"])
def test_a_hostile_tenant_is_one_that_nobody_knows(site: Site, path: str) -> None:
    bodies = {
        "/v1/vms": VM, "/v1/vms/plan": VM, "/v1/tokens": {"role": "tenant-user"},
        "/v1/vms/adopt": {"host": "t4", "domain": "x"},
    }  # fmt: skip
    for name in (one for one in HOSTILE if one != "*"):
        with site.untouched():
            reply = site.send("POST", path, {**bodies[path], "tenant": name})
        assert reply.status in {400, 404}, f"{name!a}: {reply}"
        problem_of(reply)


PATHS = (
    ("GET", "/v1/vms/{}"), ("DELETE", "/v1/vms/{}"), ("POST", "/v1/vms/{}/start"), ("POST", "/v1/vms/{}/stop"),
    ("GET", "/v1/hosts/{}"), ("DELETE", "/v1/hosts/{}"), ("POST", "/v1/hosts/{}/cordon"), ("GET", "/v1/images/{}"),
    ("DELETE", "/v1/images/{}"), ("GET", "/v1/gpus/{}/0000:41:00.0"), ("GET", "/v1/tenants/{}"),
    ("DELETE", "/v1/tenants/{}"), ("GET", "/v1/tenants/{}/members"), ("PATCH", "/v1/tenants/{}/quota"),
    ("GET", "/v1/operations/{}"), ("POST", "/v1/operations/{}/cancel"), ("DELETE", "/v1/tokens/{}"),
    ("GET", "/v1/vms/there?tenant={}"), ("DELETE", "/v1/vms/there?tenant={}"), ("GET", "/v1/vms?tenant={}"),
    ("GET", "/v1/profiles/{}"), ("GET", "/v1/gpus?host={}"), ("GET", "/v1/findings?host={}"),
    ("DELETE", "/v1/offerings/{}"),
)  # fmt: skip
EMPTY_LISTS = ("/v1/vms?tenant={}", "/v1/gpus?host={}", "/v1/findings?host={}", "/v1/tenants/{}/members")


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_a_hostile_name_in_a_path_or_a_query_finds_nothing(site: Site, method: str, path: str) -> None:
    for name in (one for one in HOSTILE if one):
        body = {"limits": {"vms": 1}} if method == "PATCH" else None
        if method == "PATCH" and name == "*":
            continue  # the pool that all share
        with site.untouched():
            reply = site.send(method, path.format(quote(name, safe="")), body)
        if reply.status == 200 and path in EMPTY_LISTS:
            assert reply.json() == []
            continue
        assert reply.status in {400, 404, 405, 409}, f"{name!a}: {reply}"
        problem_of(reply)


def test_an_id_is_known_in_its_one_spelling_only(site: Site) -> None:
    known = site.send("GET", "/v1/operations").json()[0]["id"]
    assert site.send("GET", f"/v1/operations/{known}").status == 200
    arabic = known.translate({ord("0") + digit: 0x0660 + digit for digit in range(10)})
    others = (known.upper(), f"{{{known}}}", f"urn:uuid:{known}", known.replace("-", ""), known[:-1], known + "0",
              "00000000-0000-0000-0000-000000000000", arabic)  # fmt: skip
    for other in others:
        for method, path in (
            ("GET", "/v1/operations/{}"),
            ("POST", "/v1/operations/{}/abandon"),
            ("GET", "/v1/vms/{}"),
        ):
            with site.untouched():
                reply = site.send(method, path.format(quote(other, safe="")))
            assert reply.status in {400, 404}, f"{other!a}: {reply}"
            problem_of(reply)


@pytest.mark.parametrize("junk", ["%ff", "%c0%af", "%ed%a0%80", "%80"])
@pytest.mark.parametrize(("method", "path"), PATHS)
def test_bytes_that_are_no_text_find_nothing(site: Site, method: str, path: str, junk: str) -> None:
    with site.untouched():
        reply = site.send(method, path.format(junk), {"limits": {}} if method == "PATCH" else None)
    assert (reply.status in {400, 404}) or (reply.status == 200 and reply.json() == []), reply


def test_a_hostile_offering_is_refused_and_none_is_kept(site: Site) -> None:
    good: dict[str, Any] = {"name": "mine", "kind": "time_sliced", "vgpu_type": "GRID T4-2Q"}
    for name in (*HOSTILE, *NO_TEXT):
        site.refused("PUT", "/v1/offerings", {**good, "name": name}, code=code_for(name, "request.invalid"))
    for text in ("\x00", "\x1b[31m", "a\nb", "a\u0085b", "\ud800", "a" * 201):
        code = code_for(text, "request.invalid")
        site.refused("PUT", "/v1/offerings", {**good, "description": text}, code=code)
        site.refused("PUT", "/v1/offerings", {**good, "vgpu_type": text, "unlisted": True}, code=code)
    for taken in ("t4-2q", "m10-1q"):
        site.refused("PUT", "/v1/offerings", {**good, "name": taken}, code="offering.name_taken", status=409)
    for field, number in (("version", 2**70), ("gpu_count", -1), ("vgpu_count", 17), ("vcpus", 0)):
        site.refused("PUT", "/v1/offerings", {**good, field: number}, code="request.invalid")
