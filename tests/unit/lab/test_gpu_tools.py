# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.tools.gpu_tables import read_tables
from lab.tools.load import ScenarioError, config_text, cuda_version, main, mig_line
from orchestrator.catalogue.catalogue import shipped
from tests.unit.lab.fake_gpu_host import CATALOGUE

ADDRESSES = ("0000:01:00.0", "0000:02:00.0")


@pytest.fixture(scope="module")
def tables() -> dict[str, Any]:
    return read_tables(CATALOGUE)


def test_every_type_of_the_tables_has_a_number_of_its_own_on_its_gpu(tables: dict[str, Any]) -> None:
    for model in tables["models"].values():
        ids = [vgpu_type["id"] for vgpu_type in model["types"]]
        assert len(ids) == len(set(ids))


def test_the_tables_carry_the_catalogues_facts_of_a_type(tables: dict[str, Any]) -> None:
    types = {vgpu_type["name"]: vgpu_type for vgpu_type in tables["models"]["Tesla T4"]["types"]}
    assert types["GRID T4-2Q"] | {"license": ""} == {
        "id": 231, "name": "GRID T4-2Q", "framebuffer_mib": 2048, "guest_fb_mib": 1856, "max_instances": 8,
        "max_per_vm": 16, "series": "Q", "device": 0x1EB8, "subsystem": 0x130D, "heads": 4, "resolution": "7680x4320",
        "frl_fps": 60, "license": "", "bar1_mib": 256, "fb_reservation_mib": 192, "gsp_heap_mib": 0, "gi_profile": -1,
        "max_per_gi": 1, "placement_size": 0, "placements": [],
    }  # fmt: skip


def test_lab_and_product_know_the_same_gpu_instance_profiles_and_mig_backed_types(tables: dict[str, Any]) -> None:
    catalogue = shipped()
    for model in catalogue.gpu_models:
        lab = tables["models"].get(model.name, {"mig_profiles": [], "types": []})
        known = {row.name: row for row in catalogue.profiles_of_model(model)}
        for row in lab["mig_profiles"]:
            product = known[row["name"]]
            assert (row["id"], tuple(row["starts"]), row["size"], row["total"], row["max"]) == (
                product.profile_id, product.starts, product.size, product.total_slots, product.max_instances
            ), (model.name, row["name"])  # fmt: skip
        backed = {row.name: row for row in catalogue.types_of_model(model) if row.gi_profile}
        for row in (row for row in lab["types"] if row["gi_profile"] >= 0):
            product_type = backed[row["name"]]
            assert product_type.gi_profile, row
            assert row["gi_profile"] == known[product_type.gi_profile].profile_id
            assert row["max_per_gi"] == product_type.max_per_gi


def test_a_board_that_keeps_its_mig_mode_comes_up_with_it(tables: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / ADDRESSES[0]).touch()
    ampere, hopper = tables["models"]["A100 PCIe 80GB"], tables["models"]["H100 PCIe 80GB"]
    assert mig_line(ADDRESSES[0], ampere, tmp_path) == "mig 1 1"
    assert mig_line(ADDRESSES[1], ampere, tmp_path) == "mig 0 1"
    assert mig_line(ADDRESSES[0], hopper, tmp_path) == "mig 0 0"


@pytest.mark.parametrize(
    "driver, cuda", [("550.90.05", 12040), ("580.65.06", 13000), ("535.54.03", 12020), ("300.1", 0)]
)
def test_the_cuda_version_follows_the_driver(tables: dict[str, Any], driver: str, cuda: int) -> None:
    assert cuda_version(driver, tables["cuda"]) == cuda


def test_a_configuration_names_the_gpus_in_pci_order_with_their_types(tables: dict[str, Any]) -> None:
    scenario = {
        "host": "a",
        "driver_version": "550.90.05",
        "gpus": [{"model": "Tesla T4"}, {"model": "L40S", "vfs": 8}],
    }
    lines = config_text(scenario, tables, ADDRESSES).splitlines()
    assert lines[0] == "driver 550.90.05"
    assert [line for line in lines if line.startswith("gpu ")] == [
        "gpu 0000:01:00.0 mdev_pf 1eb8 12a2 0 -1",
        "gpu 0000:02:00.0 vendor_vfio 26b9 1851 8 -1",
    ]
    assert any(line.startswith("type 231 2048 8 1eb8 130d 4 60 7680x4320 -1 1 0 - ") for line in lines)


def test_two_hosts_have_gpus_with_different_uuids_and_one_host_always_the_same(tables: dict[str, Any]) -> None:
    def uuids(host: str) -> list[str]:
        scenario = {"host": host, "gpus": [{"model": "Tesla T4"}, {"model": "Tesla T4"}]}
        return [x for x in config_text(scenario, tables, ADDRESSES).splitlines() if x.startswith("fact uuid")]

    assert uuids("a") == uuids("a")
    assert len(set(uuids("a") + uuids("b"))) == 4


@pytest.mark.parametrize(
    "gpu, reason",
    [
        ({"model": "Tesla T5"}, "no model 'Tesla T5'"),
        ({}, "no model None"),
        ({"model": "L40S", "framework": "mdev"}, "framework 'mdev' is none of"),
        ({"model": "L40S", "pci": "0000:09:00.0"}, "no emulated device at 0000:09:00.0"),
    ],
)
def test_a_gpu_that_cannot_be_presented_is_refused_with_the_reason(
    tables: dict[str, Any], gpu: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ScenarioError, match=reason):
        config_text({"gpus": [gpu]}, tables, ADDRESSES)


def test_more_gpus_than_emulated_devices_are_refused(tables: dict[str, Any]) -> None:
    with pytest.raises(ScenarioError, match="GPU 2: no emulated device at any address"):
        config_text({"gpus": [{"model": "Tesla T4"}] * 3}, tables, ADDRESSES)


def test_a_missing_scenario_is_one_line_and_nothing_is_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--scenario", "/nonexistent/scenario"]) == 1
    assert capsys.readouterr().err.count("\n") == 1
