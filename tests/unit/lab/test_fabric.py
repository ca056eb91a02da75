# SPDX-License-Identifier: Apache-2.0
"""The lab's fabric manager and fmpm, talking over a unix socket."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from lab.tools.fabric import nv_fabricmanager
from lab.tools.gpu_tables import read_tables
from lab.tools.load import ScenarioError, config_text, fabric_text
from tests.fakes.fmpm_program import fmpm
from tests.unit.lab.fake_gpu_host import CATALOGUE

MODULE_IDS = (7, 5, 6, 8, 1, 3, 4, 2)
ADDRESSES = tuple(f"0000:0{number}:00.0" for number in range(1, 9))


def fabric(gpus: int = 8, board: str = "HGX H100/H200 8-GPU") -> dict[str, Any]:
    tables = read_tables(CATALOGUE)
    models = [{"model": "H100 SXM5 80GB", "module_id": number} for number in MODULE_IDS[:gpus]]
    scenario = {"host": "h", "driver_version": "580.105.06", "baseboard": board, "gpus": models}
    found: dict[str, Any] = json.loads(fabric_text(scenario, tables, config_text(scenario, tables, ADDRESSES)))
    return found


@contextmanager
def serving(root: Path, known: dict[str, Any], **config: str) -> Iterator[Path]:
    """A service whose GPUs are all bound to nvidia, at a socket."""
    for address in ADDRESSES:
        (root / address).mkdir(exist_ok=True)
        if not (root / address / "driver").exists():
            (root / address / "driver").symlink_to("/sys/bus/pci/drivers/nvidia")
    path = root / "socket"
    settings = {"FABRIC_MODE": "1", "FM_CMD_UNIX_SOCKET_PATH": str(path)} | config
    with nv_fabricmanager.server(settings, known, root) as bound:
        thread = Thread(target=bound.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield path
        bound.shutdown()
        thread.join()


def said(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [fmpm(), "--unix-domain-socket", path, *arguments], capture_output=True, text=True, timeout=60
    )


def run(path: Path, *arguments: str) -> int:
    return said(path, *arguments).returncode


def listed(path: Path) -> dict[int, dict[str, Any]]:
    answer = said(path, "-l")
    assert answer.returncode == 0
    return {row["partitionId"]: row for row in json.loads(answer.stdout)["partitionInfo"]}


def test_partitions_are_those_of_the_catalogue_by_module_id(tmp_path: Path) -> None:
    with serving(tmp_path, fabric()) as path:
        partitions = listed(path)
    assert {number: row["numGpus"] for number, row in partitions.items()} == {
        0: 8, 1: 4, 2: 4, 3: 2, 4: 2, 5: 2, 6: 2, **dict.fromkeys(range(7, 15), 1),
    }  # fmt: skip
    first = partitions[7]["gpuInfo"][0]
    assert (first["physicalId"], first["pciBusId"], first["numNvLinksAvailable"]) == (1, "00000000:05:00.0", 0)


def test_overlapping_partitions_exclude_each_other(tmp_path: Path) -> None:
    with serving(tmp_path, fabric()) as path:
        assert [run(path, "-a", number) for number in ("1", "3", "1", "5")] == [0, 249, 249, 0]
        assert "Failed to activate partition. fmReturn: -7" in said(path, "-a", "3").stdout
        assert {number for number, row in listed(path).items() if row["isActive"]} == {1, 5}
        assert [run(path, "-d", "1"), run(path, "-d", "1"), run(path, "-a", "3")] == [0, 255, 0]


def test_a_gpu_of_another_driver_has_no_name(tmp_path: Path) -> None:
    with serving(tmp_path, fabric()) as path:
        driver = tmp_path / ADDRESSES[0] / "driver"
        driver.unlink()
        driver.symlink_to("/sys/bus/pci/drivers/vfio-pci")
        seventh = listed(path)[13]["gpuInfo"][0]
    assert (seventh["physicalId"], seventh["uuid"], seventh["pciBusId"]) == (7, "", "")


def test_partitions_with_a_missing_gpu_are_unsupported(tmp_path: Path) -> None:
    with serving(tmp_path, fabric(7)) as path:
        assert not {0, 1, 4, 8} & set(listed(path))
        rows = json.loads(said(path, "--list-unsupported-partitions").stdout)["partitionInfo"]
        assert {row["partitionId"] for row in rows} == {0, 1, 4, 8}
        assert run(path, "--get-nvlink-failed-devices") == 0


def test_after_a_restart_in_the_resilient_mode_the_activated_list_comes_first(tmp_path: Path) -> None:
    with serving(tmp_path, fabric(), FABRIC_MODE_RESTART="1") as path:
        assert run(path, "-a", "5") == 248
        assert run(path, "--set-activated-list", "1,3") == 255
        assert [run(path, "--set-activated-list", "1"), run(path, "-a", "3"), run(path, "-a", "5")] == [0, 249, 0]


def test_without_sharing_there_are_no_partitions(tmp_path: Path) -> None:
    with serving(tmp_path, fabric(), FABRIC_MODE="0") as path:
        answer = said(path, "-l")
    assert (answer.returncode, answer.stdout) == (253, "Failed to get partition list. fmReturn: -3\n")


def test_without_the_service_nothing_can_be_asked(tmp_path: Path) -> None:
    answer = said(tmp_path / "none", "-l")
    assert (answer.returncode, answer.stdout) == (247, "Failed to connect to Fabric Manager instance.\n")


@pytest.mark.parametrize(
    "arguments, code", [(["-x"], 255), (["-a"], 1), (["-a", "64"], 255), (["-h"], 0), (["-v"], 0), ([], 0)]
)
def test_arguments_are_those_of_nvidias_fmpm(arguments: list[str], code: int) -> None:
    assert subprocess.run([fmpm(), *arguments], capture_output=True, timeout=60).returncode == code


def test_the_service_wants_the_drivers_version() -> None:
    driver = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.105.06\n"
    assert nv_fabricmanager.mismatch(driver, "580.105.06") == ""
    assert "don't match with driver version 580.105.06" in nv_fabricmanager.mismatch(driver, "570.172.07")


def test_a_board_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ScenarioError, match="no baseboard 'HGX X'"):
        fabric(board="HGX X")
