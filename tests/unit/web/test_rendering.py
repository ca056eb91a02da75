# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.core.tenancy.access import EVERYWHERE, Caller, Grant
from orchestrator.web.callers import NAVIGATION, Reader
from orchestrator.web.rendering import _COMMANDS, address, mib, moment, pages_of, size, words


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2026-12-01T10:00:05.123456Z", "2026-12-01 10:00:05 UTC"),
        ("2026-12-01T12:00:05+02:00", "2026-12-01 10:00:05 UTC"),
        (None, "never"),
    ],
)
def test_a_moment_is_told_in_utc(text: str | None, shown: str) -> None:
    told = moment(text)
    assert re.sub("<[^>]*>", "", told) == shown
    assert ("T10:00:05" in told) is (text is not None)


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0 MiB"), (512, "512 MiB"), (4096, "4 GiB"), (261632, "255.5 GiB"), (None, "unknown")]
)
def test_memory_has_a_unit_that_people_read(number: int | None, shown: str) -> None:
    assert mib(number) == shown


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (20 * 2**30, "20 GiB"), (4 * 2**40, "4 TiB"), (5000 * 2**40, "5000 TiB")],
)
def test_bytes_have_a_unit_that_people_read(number: int, shown: str) -> None:
    assert size(number) == shown


def test_a_name_never_becomes_syntax_of_an_address() -> None:
    assert address("vms", "a/../b", "c?d#e") == "/web/vms/a%2F..%2Fb/c%3Fd%23e"
    assert address("vms", tenant="a&b=c", host=None, state="") == "/web/vms?tenant=a%26b%3Dc"


def test_stored_names_are_told_in_words() -> None:
    assert words("create_vm") == "create vm"


def test_a_hint_leads_to_the_pages_that_do_what_its_commands_do() -> None:
    operator = Reader(Caller(actor="uid:0", grants=(Grant(tenant=EVERYWHERE, role="admin"),)))
    tenant = Reader(Caller(actor="token:1", grants=(Grant(tenant="vision", role="tenant-user"),)))
    assert pages_of("'vgpuctl gpu list' shows what is free", operator) == [("Map", "/web/map")]
    assert pages_of("'vgpuctl host uncordon h1' when it shall get new VMs", operator) == [("Hosts", "/web/hosts")]
    assert pages_of("'vgpuctl host uncordon h1' when it shall get new VMs", tenant) == []
    assert pages_of("'vgpuctl extend-vm a' or 'vgpuctl delete-vm a'", tenant) == [("VMs", "/web/vms")]
    assert pages_of("'vgpuctl host upgrade-agent h1'", operator) == []


def test_commands_that_pages_stand_for_are_commands_and_the_pages_are_there() -> None:
    assert set(_COMMANDS) <= {name for name, _, _ in NAVIGATION}
    reference = (Path(__file__).parents[3] / "docs/reference/cli.md").read_text()
    commands = frozenset().union(*_COMMANDS.values())
    assert {command for command in commands if not re.search(rf"vgpuctl {command}\b", reference)} == set()
