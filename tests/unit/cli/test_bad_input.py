# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from orchestrator.client.autostart import connect
from orchestrator.client.client import Client
from orchestrator.client.location import state_directory
from tests.fakes.typed import Cli

HOSTILE_NAMES = (
    "", " ", ".", "..", "/etc/x", "a/b/c", "$(id)", "`id`", ";reboot", "|x", "&&", "%s%n", "{{7*7}}", "${jndi}",
    "a\nb", "a\rb", "a\tb", "\x1b[2J", "\u202eabc", "\u0430bc", "caf\u00e9", "cafe\u0301", "ABC", "\U0001f600",
    "a ", "' OR 1=1--", "=cmd|", "a" * 64, "a" * 300, "-", "a-", "</name>", "]]>", "&xxe;", "a_b", "a.b", "\ud800",
    "%2e%2e", "%00", "a%2Fb", "nvidia,id=x", "a:b", "2026-11-20T00", "١٢",
)  # fmt: skip

BAD_SIZES = (
    "0", "1", "4  GiB", " 4GiB", "4gibs", "-4GiB", "4.GiB", ".5GiB", "1e3MiB", "0x10MiB", "٤GiB", "04GiB", "GiB", "",
    "4GiB\n", "99999999999GiB", "1MiB", "nan", "4EB", "4KiB", "1_000MiB", "16384PiB",
)  # fmt: skip

BAD_COUNTS = ("0", "-1", "1025", "1e3", "1.5", "", "true", "NaN", "1000000", "0x4", "2147483648")

BAD_PCI = (
    "", "0000:41:00", "0000:41:00.8", "0000:41:20.0", "0000:1ff:00.0", "/sys/bus", "0000:41:00.0\n", "41:00.0,",
    "0000:41:00.0;x", "1:2:3.4", "0000:41:00.0 ", "gpu0",
)  # fmt: skip

BAD_ADDRESSES = ("", "-oProxyCommand=x", "a b", "a;b", "a\nb", "$(id)", "http://x/", "h\u00f6st", "x'y")


def _inventory() -> list[object]:
    client = Client(connect(state_directory()))
    return [client.vms(), client.hosts(), client.images(), client.networks(), client.operations()]


def _refused(cli: Cli, code: int, *arguments: str) -> str:
    before = _inventory()
    outcome = cli(*arguments)
    assert outcome.code == code, f"{arguments}: {outcome}"
    lines = outcome.err.splitlines()
    assert lines[0].startswith("error: ")
    assert outcome.err.count("error: ") == 1
    assert all(line.startswith(("hint: ", "  ")) for line in lines[1:])
    assert all(line.isprintable() for line in lines)
    assert "Traceback" not in outcome.err
    assert outcome.out == ""
    assert _inventory() == before
    return outcome.err


def _create(name: str = "ok", profile: str = "t4-small", *more: str) -> tuple[str, ...]:
    return ("create-vm", "--profile", profile, *more, "--", name)


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=ascii)
def test_a_hostile_name_of_a_new_vm_is_refused_in_one_line(cli: Cli, name: str) -> None:
    assert "name_invalid" in _refused(cli, 2, *_create(name))


@pytest.mark.parametrize("name", ["", "../x", "a\nb", "\x1b[2J", "%2e%2e"], ids=ascii)
@pytest.mark.parametrize("words", ["show-vm", "delete-vm", "start-vm", "stop-vm", "console", "ssh", "host show"])
def test_every_verb_refuses_a_hostile_name(cli: Cli, words: str, name: str) -> None:
    assert "name_invalid" in _refused(cli, 2, *words.split(), "--", name)


@pytest.mark.parametrize("name", ["", "../x", "a\nb", "\x1b[2J"], ids=ascii)
@pytest.mark.parametrize("option", ["--tenant", "--image", "--network", "--host"])
def test_a_hostile_name_in_an_option_is_refused(cli: Cli, option: str, name: str) -> None:
    assert "name_invalid" in _refused(cli, 2, *_create("ok", "t4-small", f"{option}={name}"))


@pytest.mark.parametrize("size", BAD_SIZES, ids=ascii)
@pytest.mark.parametrize("option", ["memory", "disk"])
def test_what_is_not_a_sensible_size_is_refused(cli: Cli, option: str, size: str) -> None:
    assert f"[{option}." in _refused(cli, 2, *_create("ok", "t4-small", f"--{option}={size}"))


@pytest.mark.parametrize("count", BAD_COUNTS, ids=ascii)
def test_what_is_not_a_sensible_number_of_vcpus_is_refused(cli: Cli, count: str) -> None:
    assert "cli.usage" in _refused(cli, 2, *_create("ok", "t4-small", f"--vcpus={count}"))


@pytest.mark.parametrize(
    ("code", "profile"),
    [
        *((2, name) for name in ("", " ", "a" * 300)),
        *((4, name) for name in ("GRID T4-1", "t4", "A100-5c", "1g.5gb+me+me", "../x", "\x1b[m")),
    ],
)
def test_an_unknown_profile_is_refused(cli: Cli, code: int, profile: str) -> None:
    _refused(cli, code, *_create("ok", profile))


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("creat-vm a", "did you mean create-vm"),
        ("hosts list", "did you mean host"),
        ("host lst", "did you mean list?"),
        ("create-vm a --profil x", "--profile"),
        ("frobnicate", "run 'vgpuctl --help'"),
    ],
)
def test_a_misspelt_word_is_answered_with_those_near_it(cli: Cli, words: str, hint: str) -> None:
    assert hint in _refused(cli, 2, *words.split())


@pytest.mark.parametrize("address", BAD_PCI, ids=ascii)
def test_what_is_not_a_pci_address_is_refused(cli: Cli, address: str) -> None:
    assert "pci.address_invalid" in _refused(cli, 2, "gpu", "show", "gpu1", "--", address)


@pytest.mark.parametrize("address", BAD_ADDRESSES, ids=ascii)
def test_what_is_not_a_host_address_is_refused(cli: Cli, address: str) -> None:
    assert "host.address_invalid" in _refused(cli, 2, "host", "add", "new", f"--address={address}")


@pytest.mark.parametrize("gpus", [*BAD_PCI, "some", "ALL", "41:00.0,,42:00.0"], ids=ascii)
def test_gpus_are_all_unused_or_addresses(cli: Cli, gpus: str) -> None:
    assert "pci.address_invalid" in _refused(cli, 2, "host", "add", "new", "--address=192.0.2.1", f"--gpus={gpus}")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (4, "show-vm nobody"),
        (4, "delete-vm nobody"),
        (4, "ssh nobody"),
        (4, "host show nobody"),
        (4, "host remove nobody"),
        (4, "gpu show gpu1 0000:42:00.0"),
        (4, "image remove nobody"),
        (4, "operation show nothing"),
        (4, "profile show nothing"),
        (2, "create-vm"),
        (2, "create-vm a"),
        (2, "create-vm a --profile"),
        (2, "create-vm a b --profile t4-small --count 2"),
        (2, "create-vm a --profile t4-small --colour red"),
        (2, "create-vm a --profile t4-small -o xml"),
        (2, "no-such-verb"),
        (2, "vm no-such-verb"),
        (2, "host add"),
        (2, "host add new --address 192.0.2.1 --port 0"),
        (2, "host add new --address 192.0.2.1 --port 65536"),
        (2, "host add new --address 192.0.2.1 --user -x"),
        (2, "image add new file:///etc/shadow"),
        (2, "image add new ftp://example.org/x"),
        (2, "image add new nbd://example.org/x"),
        (2, "image add new /srv/x --sha256 12"),
        (2, "profile validate /nonexistent/offering.yaml"),
    ],
)
def test_each_mistake_has_its_exit_code_and_one_line(cli: Cli, code: int, words: str) -> None:
    if words.startswith("profile validate"):
        outcome = cli(*words.split())
        assert (outcome.code, outcome.out.count("\n")) == (2, 1)
        return
    _refused(cli, code, *words.split())


def test_files_that_cannot_be_user_data_are_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "big").write_bytes(b"a" * (64 * 1024 + 1))
    (tmp_path / "bomb").write_bytes(gzip.compress(b"#!" + bytes(2**24)))
    (tmp_path / "cut").write_bytes(gzip.compress(b"#!/bin/sh\n")[:-4])
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "missing", tmp_path, tmp_path / "binary", tmp_path / "big", tmp_path / "fifo",
                 tmp_path / "bomb", tmp_path / "cut",
                 Path("/dev/zero"), Path("/dev/null")):  # fmt: skip
        assert "user_data." in _refused(cli, 2, *_create("ok", "t4-small", f"--user-data={path}"))


def test_a_private_key_never_leaves_as_a_public_one(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "id").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nsecret\n")
    said = _refused(cli, 2, *_create("ok", "t4-small", f"--ssh-key={tmp_path / 'id'}"))
    assert "ssh_key.private" in said
    assert "secret" not in said


def test_a_public_key_is_not_taken_for_provisioning(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "id.pub").write_text("ssh-ed25519 AAAA me\n")
    said = _refused(cli, 2, "host", "add", "new", "--address=192.0.2.1", f"--provisioning-key={tmp_path / 'id.pub'}")
    assert "provisioning_key.invalid" in said


@pytest.mark.parametrize(
    ("words", "command"),
    [("capacity --vcpus=x", "capacity"), ("vm nope", "vm"), ("host show", "host show")],
)
def test_the_hint_names_the_command_whose_help_says_more(cli: Cli, words: str, command: str) -> None:
    assert f"run 'vgpuctl {command} --help'" in _refused(cli, 2, *words.split())


def test_a_mistake_is_json_when_json_was_asked_for(cli: Cli) -> None:
    for words, code in (("show-vm nobody -o json", "vm.unknown"), ("show-vm -o json", "cli.usage")):
        assert json.loads(cli(*words.split()).err)["error"]["code"] == code


def test_the_server_is_not_asked_to_believe_the_command_line(cli: Cli) -> None:
    outcome = cli("host", "add", "new", "--address=192.0.2.1", "--provisioning-key=/dev/null")
    assert outcome.code == 2
