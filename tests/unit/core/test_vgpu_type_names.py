# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import InvalidInput
from orchestrator.core.gpu.vgpu_type import VgpuTypeName, is_vgpu_type_name, parse_vgpu_type_name

BOARDS = st.sampled_from(["T4", "A100DX", "RTX6000-Ada", "RTX Pro 6000 Blackwell DC", "RTX 6000D", "L40S", "RTXA6000"])


@pytest.mark.parametrize(
    "text, brand, board, gi_slices, size_gb, series, suffix",
    [
        ("GRID T4-2Q", "GRID", "T4", None, 2, "Q", ""),
        ("GRID M10-0B", "GRID", "M10", None, 0, "B", ""),
        ("GRID T4-1B4", "GRID", "T4", None, 1, "B", "4"),
        ("NVIDIA L40S-12Q", "NVIDIA", "L40S", None, 12, "Q", ""),
        ("NVIDIA RTX6000-Ada-48C", "NVIDIA", "RTX6000-Ada", None, 48, "C", ""),
        ("NVIDIA A100-1-5C", "NVIDIA", "A100", 1, 5, "C", ""),
        ("NVIDIA H100XM-1-10CME", "NVIDIA", "H100XM", 1, 10, "C", "ME"),
        ("NVIDIA RTX 6000D-2-84Q", "NVIDIA", "RTX 6000D", 2, 84, "Q", ""),
        (
            "NVIDIA RTX Pro 6000 Blackwell DC-4-96A",
            "NVIDIA",
            "RTX Pro 6000 Blackwell DC",
            4,
            96,
            "A",
            "",
        ),
    ],
)
def test_a_vgpu_type_name_is_read_into_its_parts(
    text: str, brand: str, board: str, gi_slices: int | None, size_gb: int, series: str, suffix: str
) -> None:
    name = parse_vgpu_type_name(text)
    parts = (name.brand, name.board, name.gi_slices, name.size_gb, name.series, name.suffix)
    assert parts == (brand, board, gi_slices, size_gb, series, suffix)


@given(
    name=st.builds(
        VgpuTypeName,
        brand=st.sampled_from(["GRID", "NVIDIA"]),
        board=BOARDS,
        gi_slices=st.none() | st.integers(1, 7),
        size_gb=st.integers(0, 9999),
        series=st.sampled_from(["A", "B", "C", "Q"]),
        suffix=st.sampled_from(["", "ME", "4"]),
    )
)
def test_every_vgpu_type_name_prints_and_reads_back(name: VgpuTypeName) -> None:
    assert parse_vgpu_type_name(str(name)) == name


def test_a_zero_in_the_name_means_512_mib() -> None:
    assert parse_vgpu_type_name("GRID M10-0Q").framebuffer_mib == 512


@pytest.mark.parametrize(
    "text",
    [
        "",
        "T4-2Q",
        "NVIDIA",
        "NVIDIA L40S",
        "NVIDIA L40S-12",
        "NVIDIA L40S-12X",
        "NVIDIA L40S-012Q",
        "NVIDIA L40S-12Q ",
        " NVIDIA L40S-12Q",
        "NVIDIA  L40S-12Q",
        "nvidia L40S-12Q",
        "NVIDIA L40S-12Q\n",
        "NVIDIA L40S-١٢Q",
        "NVIDIA ../x-1Q",
        "GRID T4-2Q; rm -rf /",
    ],
)
def test_what_is_no_vgpu_type_name_is_refused(text: str) -> None:
    assert not is_vgpu_type_name(text)
    with pytest.raises(InvalidInput) as caught:
        parse_vgpu_type_name(text)
    assert caught.value.code == "vgpu_type.name_invalid"
    assert "\n" not in caught.value.message


@given(text=st.text(max_size=60))
def test_no_text_makes_the_parser_fail_otherwise(text: str) -> None:
    if is_vgpu_type_name(text):
        assert str(parse_vgpu_type_name(text)) == text
