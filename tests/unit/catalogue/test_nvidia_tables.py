# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
from pathlib import Path

import pytest

from orchestrator.catalogue.catalogue import near_names, shipped
from orchestrator.catalogue.geometries import mig_rows
from orchestrator.catalogue.nvidia_rows import GpuModelRow, XidActionRow
from orchestrator.catalogue.tables import read_table
from orchestrator.core.gpu.vgpu_type import parse_vgpu_type_name
from tests.unit.catalogue.consistency import find_gaps, known_gaps

CATALOGUE = shipped()
TABLES = sorted(CATALOGUE.directory.glob("*.csv"))


@pytest.mark.parametrize("name, rows", [("gpu_models", 85), ("vgpu_types", 1237), ("mig_profiles", 176),
                                        ("fabric_partitions", 30)])  # fmt: skip
def test_no_row_of_a_table_is_lost(name: str, rows: int) -> None:
    assert len(getattr(CATALOGUE, name)) == rows


def test_no_row_about_what_a_driver_logs_is_lost() -> None:
    assert len(read_table(CATALOGUE.directory / "xid_actions.csv", XidActionRow)) == 176


def test_no_row_of_the_driver_matrix_is_lost() -> None:
    matrix = CATALOGUE.driver_matrix
    counts = [len(part) for part in (matrix.releases, matrix.branches, matrix.toolkits)]
    assert [*counts, len(matrix.cuda_min_branch), len(matrix.host_systems)] == [70, 10, 51, 3, 8]


@pytest.mark.parametrize("table", [t for t in TABLES if t.name != "known_gaps.csv"], ids=lambda t: t.name)
def test_every_row_names_its_source(table: Path) -> None:
    with table.open(encoding="utf-8", newline="") as file:
        assert all(row["source"] for row in csv.DictReader(file))


def test_the_gaps_found_are_the_gaps_that_are_known() -> None:
    assert [gap.to_gap() for gap in known_gaps(CATALOGUE)] == list(find_gaps(CATALOGUE))


def test_every_known_gap_has_a_reason() -> None:
    assert all(gap.reason for gap in known_gaps(CATALOGUE))


def test_every_vgpu_type_name_in_the_table_reads_and_prints_back() -> None:
    for vgpu_type in CATALOGUE.vgpu_types:
        assert str(parse_vgpu_type_name(vgpu_type.name)) == vgpu_type.name


def test_inferred_type_ids_are_not_taken_for_facts() -> None:
    with (CATALOGUE.directory / "vgpu_types.csv").open(encoding="utf-8", newline="") as file:
        inferred = {row["type_name"] for row in csv.DictReader(file) if not row["type_id"]}
    assert inferred
    assert all(t.type_id_hint is None for t in CATALOGUE.vgpu_types if t.name in inferred)


@pytest.mark.parametrize(
    "device, subsystem, model",
    [
        ("1eb8", "12a2", "Tesla T4"),
        ("1eb8", "ffff", "Tesla T4"),
        ("25b6", "14a9", "A16"),
        ("25b6", "157e", "A2"),
        ("25b6", "ffff", None),
        ("1e30", "129e", "Quadro RTX 8000"),
        ("1e30", "12ba", "Quadro RTX 6000"),
        ("2bb3", "227a", "RTX PRO 5000 72GB Blackwell"),
        ("20b8", "1581", "A100X"),
        ("2336", "16c2", "H100 SXM5 80GB"),
        ("2336", "ffff", "H100 SXM5 80GB (2336)"),
        ("20b1", "ffff", "A100 40GB (20B1)"),
        ("233d", "ffff", "H100 96GB (233D)"),
        ("20b6", "1492", "PG506-232 96GB"),
        ("2c3a", "21f4", "RTX PRO 4500 Blackwell Server Edition"),
        ("27b0", "16fa", "RTX 4000 SFF Ada Generation"),
        ("31c2", "21f1", "GB300"),
        ("26b9", "1851", "L40S"),
        ("ffff", "ffff", None),
    ],
)
def test_pci_ids_tell_the_model_or_nothing(device: str, subsystem: str, model: str | None) -> None:
    found = CATALOGUE.model_of_pci(device, subsystem)
    assert (found.name if found else None) == model


@pytest.mark.parametrize(
    "device, subsystem, memory_mib, model",
    [
        ("26b9", "1851", 46068, "L40S"),
        ("26b9", "1851", 23034, None),
        ("26b9", "1851", 0, "L40S"),
        ("2bb3", "ffff", 48935, "RTX PRO 5000 Blackwell 48GB"),
        ("2bb3", "ffff", 73280, "RTX PRO 5000 72GB Blackwell"),
        ("2bb3", "204d", 73280, "RTX PRO 5000 72GB Blackwell"),
        ("20b8", "1581", 40960, None),
        ("2336", "16c2", 65247, None),
        ("31c2", "21f1", 284208, "GB300"),
        ("230e", "20df", 97871, "H20 NVL16"),
        ("1b38", "11d9", 22919, "Tesla P40"),
    ],
)
def test_no_row_is_taken_for_a_card_of_another_size(
    device: str, subsystem: str, memory_mib: int, model: str | None
) -> None:
    found = CATALOGUE.model_of_pci(device, subsystem, memory_mib)
    assert (found.name if found else None) == model


@pytest.mark.parametrize(
    "model, largest",
    [
        ("RTX PRO 5000 Blackwell 48GB", "2g.48gb"),
        ("RTX PRO 5000 72GB Blackwell", None),
        ("H100 96GB (233D)", "7g.96gb"),
        ("PG506-232 96GB", "7g.96gb"),
        ("RTX PRO 4500 Blackwell Server Edition", "2g.32gb"),
        ("GB300", "7g.278gb"),
    ],
)
def test_gpu_instance_profiles_are_those_of_boards_with_the_models_memory(model: str, largest: str | None) -> None:
    known = CATALOGUE.model(model)
    assert known is not None
    names = {profile.name for profile in CATALOGUE.profiles_of_model(known)}
    assert largest in names if largest else not names


def test_a_balanced_layout_of_nvidias_fits_an_h100_with_96_gb() -> None:
    model = CATALOGUE.model("H100 96GB (233D)")
    assert model is not None
    layout = dict.fromkeys(("1g.12gb", "2g.24gb", "3g.48gb"), 1) | {"1g.12gb": 2}
    starts = {row.name: (row.starts, row.size) for row in mig_rows(CATALOGUE, model, 97871) if row.name in layout}
    assert starts == {"1g.12gb": (tuple(range(7)), 1), "2g.24gb": ((0, 2, 4), 2), "3g.48gb": ((0, 4), 4)}


@pytest.mark.parametrize(
    "name, most",
    [
        ("NVIDIA RTX 6000D-1-42C", 2),
        ("NVIDIA RTX 6000D-1-42Q", 2),
        ("NVIDIA RTX 6000D-2-84C", 1),
        ("NVIDIA RTX 6000D-2-84Q", 1),
        ("NVIDIA RTX Pro 4500 Blackwell DC-1-8C", 4),
        ("NVIDIA RTX Pro 4500 Blackwell DC-1-16C", 2),
        ("NVIDIA RTX Pro 4500 Blackwell DC-1-16Q", 2),
        ("NVIDIA RTX Pro 4500 Blackwell DC-2-8Q", 4),
        ("NVIDIA RTX Pro 4500 Blackwell DC-2-32Q", 1),
        ("NVIDIA RTX Pro 4500 Blackwell DC-2-8C", 4),
        ("NVIDIA RTX Pro 4500 Blackwell DC-2-32C", 1),
    ],
)
def test_a_type_in_a_gpu_instance_has_its_maximum(name: str, most: int) -> None:
    found = CATALOGUE.vgpu_type(name)
    assert found is not None
    assert (found.mode, found.max_per_gpu) == ("mig_backed", most)


def test_a_power_limit_is_known_with_its_source_or_left_empty() -> None:
    rows = read_table(CATALOGUE.directory / "gpu_models.csv", GpuModelRow)
    known = {row.gpu_model: row.power_limit_max_w for row in rows if row.power_limit_max_w}
    assert known == {
        "A100 SXM4 40GB": 400, "A100 SXM4 80GB": 500, "A10G": 300, "B200 SXM 180GB": 1200, "GB200": 1200, "GB300": 1600,
        "H100 NVL (PCIe 94GB)": 400, "H100 SXM5 80GB": 700, "H200 SXM5 141GB": 700, "L4": 72, "L40S": 350,
        "RTX PRO 4500 Blackwell Server Edition": 165, "Tesla T4": 70,
    }  # fmt: skip


def test_a_board_that_carries_another_models_types_offers_them() -> None:
    a100x = CATALOGUE.model("A100X")
    assert a100x is not None
    assert "GRID A100D-80C" in {t.name for t in CATALOGUE.types_of_model(a100x)}


def test_facts_of_a_well_known_type_are_those_of_its_row() -> None:
    t = CATALOGUE.vgpu_type("NVIDIA L40S-12Q")
    assert t is not None
    assert (t.gpu_model, t.mode, t.framebuffer_mib, t.max_per_gpu) == ("L40S", "time_sliced", 12288, 4)
    assert (t.placement_size, t.placement_region, len(t.placement_ids)) == (12, 48, 4)


def test_a_mig_profile_knows_its_legal_starts() -> None:
    h100 = CATALOGUE.model("H100 SXM5 80GB")
    assert h100 is not None
    table = {p.name: (p.size, p.starts, p.profile_id) for p in CATALOGUE.profiles_of_model(h100)}
    assert table["1g.10gb"] == (1, (0, 1, 2, 3, 4, 5, 6), 19)
    assert table["3g.40gb"] == (4, (0, 4), 9)
    assert table["7g.80gb"] == (8, (0,), 0)


@pytest.mark.parametrize(
    "baseboard, partitions", [("HGX H100", 15), ("HGX H200", 15), ("HGX B200", 15), ("HGX A100", 0), ("HGX B300", 0)]
)
def test_partitions_are_known_for_the_boards_that_were_seen(baseboard: str, partitions: int) -> None:
    assert len(CATALOGUE.partitions_of(baseboard)) == partitions


def test_near_names_ignore_case_and_the_brand() -> None:
    assert near_names("l40s-12q", CATALOGUE.type_names)[0] == "NVIDIA L40S-12Q"
    assert near_names("no such thing at all", CATALOGUE.type_names) == ()
    assert near_names("x" * 1_000_000, CATALOGUE.type_names) == ()


@pytest.mark.parametrize(
    "typed, meant",
    [
        ("3g.41gb", "3g.40gb"),
        ("3g.39gb", "3g.40gb"),
        ("3g40gb", "3g.40gb"),
        ("l40s-11q", "NVIDIA L40S-12Q"),
        ("NVIDIA L4-9Q", "NVIDIA L4-8Q"),
    ],
)
def test_of_names_that_differ_in_a_number_the_nearest_number_comes_first(typed: str, meant: str) -> None:
    assert near_names(typed, [*CATALOGUE.type_names, *CATALOGUE.profile_names])[0] == meant
