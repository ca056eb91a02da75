# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import struct
from typing import Any

import pytest

from tests.hostile.site import HOST, VM, Site, code_for, problem_of

BLOB = base64.b64encode(struct.pack(">I", 11) + b"ssh-ed25519" + b"\0\0\0\x20" + b"k" * 32).decode()
KEY = f"ssh-ed25519 {BLOB} me@desk"

NUMBERS: tuple[object, ...] = (
    0, -1, 2**31, 2**53, 2**63, 2**64, 10**30, 1.5, 1e9, 1e308, "1", "4GiB", "", "٤", "0x4", "01", "1_000", True,
    None, [], {},
)  # fmt: skip


@pytest.mark.parametrize("field", ["vcpus", "memory_mib", "disk_bytes", "lease_s"])
def test_a_number_that_is_none_or_too_large_makes_no_vm(site: Site, field: str) -> None:
    tiny = (0, -1) if field in {"vcpus", "lease_s"} else (0, -1, 1)
    for value in (*(one for one in NUMBERS if one is not None), *tiny):  # null: as the profile says, no lease
        if field == "disk_bytes" and value == 2**31:
            continue  # that many bytes are a disk
        site.refused("POST", "/v1/vms", {**VM, field: value}, code="request.invalid")


def test_numbers_that_are_not_json_make_no_vm(site: Site) -> None:
    for text in (b"NaN", b"Infinity", b"-Infinity", b"01", b"+1", b"1e999", b"0x4", b"1_000", b"1.", b".5", b"4GiB"):
        body = b'{"name":"good","profile":"GRID T4-2Q","image":"guest","vcpus":' + text + b"}"
        site.refused("POST", "/v1/vms", body, code="request.invalid")
    digits = b'{"name":"good","profile":"GRID T4-2Q","image":"guest","vcpus":' + b"9" * 5000 + b"}"
    site.refused("POST", "/v1/vms", digits, code="request.invalid")


PROFILES = (
    "", " ", "t4", "T4-2Q", "GRID T4-2", "GRID T4-2q", "grid t4-2q", "GRID T4-2Q ", " GRID T4-2Q", "GRID  T4-2Q",
    "GRID T4-3Q", "GRID T4-2QQ", "GRID T4-2Q\n", "nvidia-231", "nvidia-", "231", "A100-5c", "NVIDIA A100-5C",
    "NVIDIA A100-4-20C ", "1g.5gb+me+me", "1g.5gb+gfx+gfx", "9g.5gb", "MIG 1g.5gb", "1g.5gb;id", "gpu:0", "gpu:-1",
    "gpu:1.5", "gpu:2147483648", "gpu:1e9", "gpu:true", "gpu:NaN", "gpu:", "gpu:1 ", "gpu:\u0661", "../x", "a/b", "%s",
    "{{7*7}}", "$(id)", "\x1b[31m", "GRID T4-2Q,GRID T4-4Q", "GRID T4-2Q/1g.5gb", "a" * 255, "\u0422 4-2Q", "*", "[",
)  # fmt: skip


@pytest.mark.parametrize("path", ["/v1/vms", "/v1/vms/plan"])
def test_what_is_nearly_a_profile_is_none(site: Site, path: str) -> None:
    for profile in PROFILES:
        with site.untouched():
            reply = site.send("POST", path, {**VM, "profile": profile})
        problem = problem_of(reply)
        assert (reply.status, problem["code"].split(".")[0]) == (404, "profile"), f"{profile!a}: {reply}"
        assert problem["hint"]


@pytest.mark.parametrize("profile", ["NVIDIA A100-5C", "1g.5gb", "gpu:16", "NVIDIA L40S-12Q"])
def test_a_profile_of_another_card_has_no_place(site: Site, profile: str) -> None:
    with site.untouched():
        reply = site.send("POST", "/v1/vms", {**VM, "profile": profile, "host": "t4"})
    assert reply.status in {400, 404, 507}, reply
    problem_of(reply)


KEYS = (
    "", " ", "ssh-ed25519", "ssh-ed25519 !!!!", f"ssh-rsa {BLOB}", f'command="id" {KEY}', f"restrict {KEY}",
    f'from="*",no-pty {KEY}', f"environment=X=1 {KEY}", f"{KEY}\n{KEY}", f"{KEY}\r\nssh-rsa AAAA", f"{KEY}\x00",
    f"{KEY}\u2028{KEY}", f"{KEY}\u0085{KEY}", f"{KEY}\x1b[2J", f"cert-authority {KEY}", f"@revoked {KEY}", f"#{KEY}",
    "-----BEGIN OPENSSH PRIVATE KEY-----", f"ssh-ed25519\t{BLOB}", f"ssh-ed25519  {BLOB}", f"{KEY}\x0b", "no key",
    "ssh-dss AAAAB3NzaC1kc3MAAACB", f"ssh-ed25519-cert-v01@openssh.com {BLOB}", "a" * 16384,
)  # fmt: skip


@pytest.mark.parametrize("path", ["/v1/vms", "/v1/vms/plan"])
def test_a_key_line_that_says_more_than_a_key_is_refused(site: Site, path: str) -> None:
    for line in KEYS:
        for keys in ([line], [KEY, line]):
            said = site.refused("POST", path, {**VM, "ssh_keys": keys}, code=code_for(line, "ssh_key.invalid"))
            assert ("NUL" if "\0" in line else ".pub") in said


USER_DATA = (
    "", " ", "password: x", "#include http://x/y", "#include-once\nhttp://x", "# template: jinja\n#cloud-config\n",
    "## template: mako\n#cloud-config\n", "## template: jinja x\n#cloud-config\n", "## template: jinja\n\x1b[2J",
    "## template: jinja\u2028#cloud-config\n", "## template: jinja\x00\n#cloud-config\n",
    "Content-Type: text/x-include-url\n\nhttp://x",
    "Subject: x\nContent-Type: multipart/mixed; boundary=x\n\n--x", "MIME-Version: 1.0\nContent-Type: text/html\n",
    "Content-Type: multipart/mixed; boundary=x\n\n\x00--x", "MIME-Version: 1.0\n", "#cloud-config-archive\n- x",
    "#cloud-boothook\n", "#part-handler\n", "#upstart-job\n", "#cloud-config-jsonp\n", " #cloud-config\n",
    "\ufeff#cloud-config\n", "#cloud-configs\n", "#cloud-config\x00\n", "#cloud-config\n\x1b[2J", "#Cloud-config\n",
    "#cloud-config\x0bpassword: x", "#cloud-config\u2028x: 1", "!!python/object/apply:os.system",
    "---\n#cloud-config\n", "<?xml version='1.0'?>", "\x1f\x8b\x08", "H4sIAAAAAAAA", "#cloud-config\u0085x: 1",
)  # fmt: skip


@pytest.mark.parametrize("path", ["/v1/vms", "/v1/vms/plan"])
def test_user_data_that_is_something_else_is_refused(site: Site, path: str) -> None:
    for text in USER_DATA:
        said = site.refused("POST", path, {**VM, "user_data": text}, code=code_for(text, "user_data.unsupported"))
        assert len(said) > 20


def test_user_data_has_a_bound_in_bytes_not_in_letters(site: Site) -> None:
    for text in ("#!" + "x" * 65535, "#cloud-config\n" + "\u20ac" * 30000):
        reply = site.send("POST", "/v1/vms", {**VM, "user_data": text})
        assert reply.status == 400, reply
        problem_of(reply)


SUBNETS = (
    "", "x", "10.0.0.0", "10.0.0.0/8", "10.88.1.1/24", "10.88.1.0/33", "10.88.1.0/-1", "8.8.8.0/24", "0.0.0.0/0",
    "fd00::/64", "10.88.1.0/24\n", " 10.88.1.0/24", "010.88.1.0/24", "10.88.1.0/255.255.255.0/24", "10.88.1.0/٢٤",
    "169.254.0.0/16", "127.0.0.0/16", "<ip/>", "10.88.1.0/024",
)  # fmt: skip


def test_what_is_no_private_network_becomes_none(site: Site) -> None:
    for subnet in SUBNETS:
        site.refused("POST", "/v1/networks", {"name": "bad", "subnet": subnet}, code="network.subnet_invalid")


ADDRESSES = (
    "-oProxyCommand=x", "a b", "a;b", "a\nb", "$(id)", "http://x/", "h\u00f6st", "x'y", "a|b", "[::1", "fe80::1%eth0;x",
    "fe80::1%$(id)", "\x00", "a@b", "user@host:22", "..", "a..b", "-", "%00", "a,b", "{{x}}", "\u202ea",
)  # fmt: skip


@pytest.mark.parametrize("path", ["/v1/hosts", "/v1/hosts/scan"])
def test_what_is_no_address_is_not_asked(site: Site, path: str) -> None:
    rest: dict[str, Any] = HOST if path == "/v1/hosts" else {}
    for address in ADDRESSES:
        site.refused("POST", path, {**rest, "address": address}, code=code_for(address, "host.address_invalid"))


PCI = (
    "", " ", "0000:41:00", "0000:41:00.8", "0000:41:20.0", "0000:1ff:00.0", "/sys/bus/pci", "0000:41:00.0\n",
    "0000:41:00.0;x", "1:2:3.4", "0000:41:00.0 ", "gpu0", "0000:41:00.\u0660", "00010000:41:00.0", "41:00.0,,42:00.0",
    "some", "ALL", "all,unused", ",", "0000:41:00.0,../x", "0000-41-00.0", "pci@0000:41:00.0",
)  # fmt: skip


def test_gpus_of_a_new_host_are_addresses_or_a_word(site: Site) -> None:
    for gpus in PCI:
        site.refused("POST", "/v1/hosts", {**HOST, "gpus": gpus}, code="pci.address_invalid")


CPUS = (
    " ",
    "\t",
    "\n",
    "\u00a0",
    "4-15, ",
    ",",
    "none",
    "null",
    "all",
    "15-4",
    "4--15",
    "\u0664",
    "4-15\x00",
    "9" * 900,
)


def test_cpus_that_are_kept_for_vms_are_numbers(site: Site) -> None:
    for cpus in CPUS:
        site.refused("PATCH", "/v1/hosts/t4", {"pinnable_cpus": cpus}, code=code_for(cpus, "host.cpus_invalid"))


USERS = (
    "-x", "--config=x", "a b", "$(id)", "a;b", "a\nb", "\x00", "a:b", "{{x}}", "\u0430", "\u0661", "Root ", "root ",
    ".a", "a@b", "DOMAIN\\a", "a/b", "root\n", "%u", "a" * 33,
)  # fmt: skip


def test_who_logs_in_at_a_host_is_a_user_and_no_option(site: Site) -> None:
    for user in USERS:
        site.refused("POST", "/v1/hosts", {**HOST, "user": user}, code=code_for(user, "host.user_invalid"))


def test_a_fingerprint_that_is_not_the_hosts_enrols_nothing(site: Site) -> None:
    for fingerprint in ("", "SHA256:", "SHA256:t4.test", "SHA256:l40s.test\n", "MD5:00", "-x", "{{x}}"):
        body = {**HOST, "fingerprint": fingerprint}
        site.refused("POST", "/v1/hosts", body, code="host.key_differs", status=502)
    site.refused("POST", "/v1/hosts", {**HOST, "fingerprint": "\x00"}, code="request.text_invalid")


SUBJECTS = (
    "", "root", "uid:", "uid:-1", "uid:01", "uid:1.5", "uid:\u0661", "uid:0x0", "uid:0\n", "uid: 0", "UID:0", "gid:0",
    "oidc:", "oidc:a b", "oidc:\u0430", "oidc:" + "a" * 191, "*", "uid:12345678901", "uid:0,uid:1", "oidc:a\x00",
)  # fmt: skip


def test_a_member_is_somebody(site: Site) -> None:
    for subject in SUBJECTS:
        body = {"subject": subject, "role": "tenant-user"}
        code = code_for(subject, "member.subject_invalid")
        site.refused("PUT", "/v1/tenants/default/members", body, code=code)


@pytest.mark.parametrize("role", ["root", "Admin", "admin", "operator", "", "tenant-admin ", "*", None, 1, True])
def test_a_tenants_role_is_one_of_three(site: Site, role: object) -> None:
    for method, path, body in (
        ("PUT", "/v1/tenants/default/members", {"subject": "uid:7"}),
        ("POST", "/v1/tokens", {}),
    ):
        code = "role.invalid" if role in {"admin", "operator"} else "request.invalid"
        site.refused(method, path, {**body, "role": role}, code=code)


def test_a_limit_is_a_number_of_a_resource_that_there_is(site: Site) -> None:
    wrong: tuple[object, ...] = (
        {"vms": -1}, {"vms": 1.5}, {"vms": "1"}, {"vms": True}, {"vms": 2**63}, {"nothing": 1}, {"": 1},
        {"devices:": 1}, {"gpus": 1}, {"../x": 1}, [], "x", None, {"vms": [1]}, {},
    )  # fmt: skip
    for limits in wrong:
        with site.untouched():
            reply = site.send("PATCH", "/v1/tenants/default/quota", {"limits": limits})
        assert reply.status == 400, f"{limits}: {reply}"
        problem_of(reply)


MOMENTS = (
    "", "soon", "2026-13-01T00:00Z", "2026-02-30T00:00Z", "2026-11-20", "2026-11-20T00:00",
    "2026-11-20T00:00Z\n", "2026-11-20T25:00Z", "\u0662026-11-20T00:00Z", "9999-99-99T00:00Z", "1e9", "now",
    "0000-00-00T00:00Z", "2026-11-20T00:00+99:00",
)  # fmt: skip


def test_the_end_of_a_lease_is_a_moment_with_a_zone(site: Site) -> None:
    for until in MOMENTS:
        site.refused("POST", "/v1/vms", {**VM, "until": until}, code="until.invalid")
