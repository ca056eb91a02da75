# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import InvalidInput
from orchestrator.core.gpu.mig_profile import (
    MigProfileName,
    is_mig_profile_name,
    parse_mig_profile_name,
    parse_placements,
)


@pytest.mark.parametrize(
    "text, ci, slices, memory, attribute",
    [
        ("1g.5gb", None, 1, 5, ""),
        ("1g.5gb+me", None, 1, 5, "+me"),
        ("1g.24gb+me.all", None, 1, 24, "+me.all"),
        ("1g.24gb-me", None, 1, 24, "-me"),
        ("4g.96gb+gfx", None, 4, 96, "+gfx"),
        ("7g.269gb", None, 7, 269, ""),
        ("1c.3g.20gb", 1, 3, 20, ""),
    ],
)
def test_a_mig_profile_name_is_read_into_its_parts(
    text: str, ci: int | None, slices: int, memory: int, attribute: str
) -> None:
    name = parse_mig_profile_name(text)
    assert (name.ci_slices, name.compute_slices, name.memory_gb, name.attribute) == (ci, slices, memory, attribute)


@given(
    slices=st.integers(1, 7),
    memory=st.integers(1, 9999),
    attribute=st.sampled_from(["", "+me", "+me.all", "-me", "+gfx"]),
    data=st.data(),
)
def test_every_mig_profile_name_prints_and_reads_back(
    slices: int, memory: int, attribute: str, data: st.DataObject
) -> None:
    ci = data.draw(st.none() | st.integers(1, slices))
    text = str(parse_mig_profile_name(f"{f'{ci}c.' if ci else ''}{slices}g.{memory}gb{attribute}"))
    name = parse_mig_profile_name(text)
    assert parse_mig_profile_name(str(name)) == name
    assert isinstance(name, MigProfileName)


@pytest.mark.parametrize("text", ["", "1g", "1g.5", "0g.5gb", "8g.80gb", "1g.05gb", "1G.5GB", "1g.5gb+xx", "1g.5gb "])
def test_what_is_no_mig_profile_name_is_refused(text: str) -> None:
    assert not is_mig_profile_name(text)
    with pytest.raises(InvalidInput, match="not the name of a MIG profile"):
        parse_mig_profile_name(text)


def test_a_compute_instance_larger_than_its_gpu_instance_is_refused() -> None:
    with pytest.raises(InvalidInput):
        parse_mig_profile_name("4c.3g.20gb")


def test_placements_are_starts_and_a_size() -> None:
    assert parse_placements("{0,2,4}:2") == ((0, 2, 4), 2)
    assert parse_placements("{0}:12") == ((0,), 12)


@pytest.mark.parametrize("text", ["", "{}:1", "{0,}:1", "{0}:0", "{0}", "0:1", "{a}:1"])
def test_malformed_placements_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="not a list of placements"):
        parse_placements(text)
