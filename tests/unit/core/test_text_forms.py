# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import InvalidInput
from orchestrator.core.gpu.pci import parse_pci_address, split_pci_address
from orchestrator.core.names import check_name, name_or_id
from orchestrator.core.units import GIB, MIB, TIB, parse_duration, parse_size, show_size

ROOT = Path(__file__).parents[3]

HOSTILE_NAMES = [
    "", "\x00", "a" * 64, "..", ".", "/etc/x", "a/b", "-rf", "--config=x", "$(id)", "`id`", ";reboot", "|x", "&&",
    "%s%n", "{{7*7}}", "{% include %}", "${jndi}", "a\n", "a\rb", "a\tb", "\x1b[31m", "\u202eevil", "\u0430dmin",
    "caf\u00e9", "cafe\u0301", "Upper", "\U0001f600", "\ud800", "trailing ", "' OR 1=1--", "=cmd|", "a.b", "a_b",
    "</name><devices>", "]]>", "&xxe;", "x-",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_hostile_name_is_refused_in_one_printable_line(name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_name(name, what="vm")
    assert caught.value.code == "vm.name_invalid"
    assert caught.value.message.isascii()
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 120


def test_a_code_has_no_blank_where_the_kind_has_one() -> None:
    with pytest.raises(InvalidInput, match="backup target name 'NAS'") as caught:
        check_name("NAS", what="backup target")
    assert caught.value.code == "backup_target.name_invalid"


def test_an_id_in_capital_letters_is_that_id_and_any_other_name_with_them_is_refused() -> None:
    vm = "edb955c6-2a04-4843-9fde-ac1136f98ace"
    assert name_or_id(vm.upper(), what="vm") == name_or_id(vm, what="vm") == vm
    for text in ("Upper", vm.upper() + "0", vm.upper()[:-1]):
        with pytest.raises(InvalidInput):
            name_or_id(text, what="vm")


@pytest.mark.parametrize("name", ["a", "train-1", "0", "a" * 63])
def test_a_plain_name_is_itself(name: str) -> None:
    assert check_name(name, what="vm") == name


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64MiB", 64 * MIB),
        ("4GiB", 4 * GIB),
        ("1TiB", TIB),
        ("1024MiB", GIB),
        ("1536MiB", 1536 * MIB),
        ("4G", 4 * GIB),
        ("4.5GiB", 4608 * MIB),
        ("0.5Ti", 512 * GIB),
        ("4.3G", 4404 * MIB),
        ("40GB", 40 * GIB),
        ("20g", 20 * GIB),
        ("500mb", 500 * MIB),
        ("4 GiB", 4 * GIB),
        ("1tb", TIB),
        ("1048576KB", GIB),
        ("1kib", MIB),
    ],
)
def test_a_size_is_read_as_people_type_it_and_units_are_binary(text: str, size: int) -> None:
    assert parse_size(text, field="memory", at_least=MIB, at_most=4 * TIB) == size


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("0", "invalid"), ("1B", "invalid"), ("16EiB", "invalid"), ("4", "invalid"), ("4GBs", "invalid"),
        ("-4GiB", "invalid"), ("4e3GiB", "invalid"), ("04GiB", "invalid"), ("\u0664GiB", "invalid"),
        ("4  GiB", "invalid"), (" 4GiB", "invalid"), ("\u212aB", "invalid"), ("4\u212aB", "invalid"),
        ("4GiB\n", "invalid"), ("", "invalid"), ("1.GiB", "invalid"), ("NaN", "invalid"),
        ("0GiB", "out_of_range"), ("99999999999GiB", "invalid"), ("1MiB", "out_of_range"),
        ("9999999999TiB", "out_of_range"),
    ],
)  # fmt: skip
def test_a_bad_size_is_refused(text: str, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_size(text, field="memory", at_least=64 * MIB, at_most=TIB)
    assert caught.value.code == f"memory.{code}"


def test_a_size_without_its_unit_gets_it_from_the_hint() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_size("20", field="disk", at_least=MIB, at_most=TIB)
    assert caught.value.hint == "say the unit: 20GiB or 20MiB"


@given(st.integers(min_value=1, max_value=2**20).map(lambda n: n * MIB))
def test_a_shown_size_reads_back(size: int) -> None:
    assert parse_size(show_size(size), field="disk", at_least=MIB, at_most=2 * TIB) == size


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0000:41:00.4", "0000:41:00.4"), ("41:00.4", "0000:41:00.4"), ("00000000:41:00.0", "0000:41:00.0"),
        ("0000:AF:1F.7", "0000:af:1f.7"), ("10de:01:00.0", "10de:01:00.0"),
    ],
)  # fmt: skip
def test_a_pci_address_becomes_the_kernels_form(text: str, address: str) -> None:
    assert parse_pci_address(text) == address


@pytest.mark.parametrize(
    "text",
    ["", " 0000:08:00.0", "0000:08:00.0\n", "0000:08:00.8", "0000:08:20.0", "0000:1ff:00.0", "0000:08:00",
     "/sys/bus/pci/devices/0000:08:00.0", "00010000:08:00.0", "0000:08:00.\u0660"],
)  # fmt: skip
def test_what_is_no_pci_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_pci_address(text)


def test_a_pci_address_splits_into_numbers() -> None:
    assert split_pci_address("0001:af:1f.7") == (1, 0xAF, 0x1F, 7)


def test_the_collection_reads_sizes_and_durations_as_the_command_line() -> None:
    amounts = runpy.run_path(
        str(ROOT / "collections/ansible_collections/vgpuctl/cloud/plugins/module_utils/amounts.py")
    )
    texts = [
        "4",
        "4GB",
        "20g",
        "4.3 mib",
        "1tb",
        "4 GB ",
        "1EB",
        "8h",
        "1day",
        "1M",
        "2 weeks",
        "1y",
        "1s",
        "1hs",
        "\u212aB",
    ]
    for ours, theirs in (
        (lambda text: parse_size(text, field="disk", at_least=MIB, at_most=9 * TIB), amounts["bytes_of"]),
        (lambda text: parse_duration(text, field="lease", at_most_s=10**12), amounts["seconds_of"]),
    ):
        assert [_or_refused(ours, text) for text in texts] == [_or_refused(theirs, text) for text in texts]


def _or_refused(read: Callable[[str], int], text: str) -> int | None:
    try:
        return read(text)
    except (InvalidInput, ValueError):
        return None
