# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli.advice.explain import capacity_columns
from orchestrator.cli.commands.gpu import COLUMNS as GPU_COLUMNS
from orchestrator.cli.commands.vm_views import COLUMNS as VM_COLUMNS
from orchestrator.cli.output import GAP
from orchestrator.cli.table import MIN_CUT, Column, Fit, field, render_table, sorted_rows
from orchestrator.core.errors import InvalidInput

CELLS = st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126), max_size=60)
ROWS = st.lists(st.fixed_dictionaries({"a": CELLS, "b": CELLS, "c": CELLS}), max_size=8)
COLUMNS = [field(name.upper(), name) for name in "abc"]
NAMES = st.text(alphabet="abcdefghij-0123456789", min_size=1, max_size=63)


@given(rows=ROWS, limit=st.integers(min_value=40, max_value=200))
def test_a_table_is_never_wider_than_it_may_be(rows: list[Mapping[str, Any]], limit: int) -> None:
    lines = render_table(rows, COLUMNS, limit)
    assert len(lines) == len(rows) + 1
    assert max(len(line) for line in lines) <= limit


@given(rows=ROWS)
def test_without_a_limit_nothing_is_cut(rows: list[Mapping[str, Any]]) -> None:
    text = "\n".join(render_table(rows, COLUMNS, None))
    assert "…" not in text
    assert all(str(value) in text for row in rows for value in row.values())


def test_a_column_keeps_a_few_letters_however_narrow_the_terminal_is() -> None:
    rows = [{"a": "x" * 50, "b": "y" * 50, "c": "z" * 50}]
    assert all(len(cell) >= MIN_CUT for cell in render_table(rows, COLUMNS, 20)[1].split(GAP))


def test_a_column_shows_what_its_function_says() -> None:
    assert render_table([{"x": 2}], [Column("DOUBLE", lambda row: str(row["x"] * 2))], None) == ["DOUBLE", "4"]


@given(name=NAMES, tenant=NAMES, limit=st.integers(min_value=40, max_value=200))
def test_the_name_of_a_vm_is_never_shortened(name: str, tenant: str, limit: int) -> None:
    vm: dict[str, object] = {
        "name": name, "tenant": tenant, "state": "running", "deallocated": None, "unknown_since": None,
        "profile": "NVIDIA L40S-12Q", "suspended_bytes": None,
        "host": "gpu-host-in-a-long-row-17", "devices": [{"gpu": "0000:41:00.0"}],
        "addresses": ["192.168.122.31"], "lease_end": "2026-12-01T10:00:00Z",
        "created_at": "2026-11-01T10:00:00Z", "vcpus": 2, "memory_mib": 4096, "image": "demo", "priority": "normal",
        "labels": {},
    }  # fmt: skip
    text = "\n".join(render_table([vm], VM_COLUMNS, limit))
    assert {name, tenant, "running"} <= set(text.split())


@pytest.mark.parametrize("limit", [40, 60, 80])
def test_gpus_of_a_host_can_be_told_apart_on_a_narrow_terminal(limit: int) -> None:
    addresses = [f"0000:{bus:02x}:00.0" for bus in range(1, 9)]
    gpus = [
        {
            "host": "l40s-0", "address": address, "model": "NVIDIA L40S", "memory_mib": 49152, "numa_node": 0,
            "framework": "vendor_vfio", "managed": True, "cut": "time_sliced:12288", "vms": [],
        }
        for address in addresses
    ]  # fmt: skip
    lines = render_table(gpus, [column for column in GPU_COLUMNS if not column.wide], limit)
    assert [line.split()[:2] for line in lines[1:9]] == [["l40s-0", address] for address in addresses]
    assert max(map(len, lines)) <= limit


def test_what_was_left_out_is_said_and_spare_columns_go_first() -> None:
    columns = [
        field("NAME", "name", Fit.WHOLE),
        field("MADE", "made", Fit.WHOLE, spare=True),
        field("MODEL", "model"),
    ]
    rows = [{"name": "n" * 30, "made": "m" * 20, "model": "NVIDIA L40S"}]
    assert render_table(rows, columns, 44) == [
        "NAME" + " " * 28 + "MODEL",
        "n" * 30 + "  NVIDIA L40S",
        "no room for MADE (-o wide has all)",
    ]


def test_sentences_go_on_in_the_next_line_under_their_header() -> None:
    columns = [field("NAME", "name", Fit.WHOLE), field("WHY", "why", Fit.WRAP)]
    rows = [{"name": "gpu1", "why": "it is shut off and should run"}, {"name": "gpu2", "why": "no"}]
    assert render_table(rows, columns, 22) == [
        "NAME  WHY",
        "gpu1  it is shut off",
        "      and should run",
        "gpu2  no",
    ]


def test_capacity_says_beside_a_zero_why_none_fits() -> None:
    some = {"profile": "t4-2q", "fits_now": 3, "reason": None}
    none = {"profile": "t4-8q", "fits_now": 0, "reason": {"message": "too full"}}
    assert render_table([some, none], capacity_columns([some, none]), 60) == [
        "PROFILE  FITS NOW  WHY NONE",
        "t4-2q    3         -",
        "t4-8q    0         too full",
    ]
    assert [column.header for column in capacity_columns([some])] == ["PROFILE", "FITS NOW"]


def test_rows_are_sorted_by_several_columns_the_first_before_the_next() -> None:
    rows = [{"a": a, "b": b, "c": c} for a, b, c in ("x21", "y11", "x12", "y12", "x11")]
    for sort, expected in (
        ("a,b,-c", "x12 x11 x21 y12 y11"),
        ("-a,-b,c", "y11 y12 x21 x11 x12"),
        ("c, a,b", "x11 x21 y11 x12 y12"),
    ):
        assert ["".join(row.values()) for row in sorted_rows(rows, COLUMNS, sort)] == expected.split(), sort


@pytest.mark.parametrize("sort", ["", "a,", "a,nothing", ",a", "a,,b", "--a"])
def test_one_sort_key_that_is_no_column_is_refused(sort: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        sorted_rows([{"a": "1", "b": "2", "c": "3"}], COLUMNS, sort)
    assert caught.value.code == "cli.sort"
