# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from lab.errors import LabError
from lab.image.cpio import Archive
from lab.image.initramfs import overlay_archive
from lab.image.payload import DRIVER
from lab.scenario import NO_DRIVER, model_names, read_scenario, read_scenarios

MODELS = frozenset({"Tesla T4", "L40S"})
GOOD = """\
hosts:
  - name: one
    driver_version: "550.163.02"
    gpus:
      - model: L40S
        framework: vendor_vfio
        vfs: 32
      - model: Tesla T4
        framework: mdev_pf
"""


def written(directory: Path, text: str) -> Path:
    file = directory / "scenario.yaml"
    file.write_text(text)
    return file


def test_a_scenario_says_what_its_hosts_are(tmp_path: Path) -> None:
    (host,) = read_scenario(written(tmp_path, GOOD), MODELS)
    assert (host.name, host.memory_mib, host.vcpus, host.ssh_port) == ("one", 6144, 2, 0)
    assert [(gpu.model, gpu.vfs, gpu.module_id) for gpu in host.gpus] == [("L40S", 32, 0), ("Tesla T4", 0, 0)]


def test_network_cards_are_beside_gpus_or_alone(tmp_path: Path) -> None:
    (host,) = read_scenario(written(tmp_path, GOOD + "    nics: [{beside: 2}, {}]\n"), MODELS)
    assert [nic.beside for nic in host.nics] == [2, 0]
    for wrong, reason in (("beside: 3", "beside"), ("vfs: 2", "unknown field vfs")):
        with pytest.raises(LabError, match=reason):
            read_scenario(written(tmp_path, f"{GOOD}    nics: [{{{wrong}}}]\n"), MODELS)
    switched = GOOD.replace("vfs: 32", "vfs: 32\n        switch: 1")
    with pytest.raises(LabError, match="behind a switch without ACS"):
        read_scenario(written(tmp_path, switched + "    nics: [{beside: 1}]\n"), MODELS)


def test_a_host_may_have_no_driver_and_then_only_the_driver_is_missing_in_what_it_boots_from(tmp_path: Path) -> None:
    (host,) = read_scenario(written(tmp_path, GOOD.replace('"550.163.02"', "none")), MODELS)
    assert host.payload()["driver_version"] == NO_DRIVER
    for name in ("usr/lib/modules/6/updates/nvidia.ko", "usr/bin/nvidia-smi", "usr/lib/vgpu-lab/board.ko"):
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_text("x")
    whole = overlay_archive([tmp_path / "tree"], Archive())
    bare = overlay_archive([tmp_path / "tree"], Archive(), DRIVER)
    assert (b"nvidia.ko\0" in whole, b"bin/nvidia-smi\0" in whole) == (True, True)
    assert (b"nvidia.ko\0" in bare, b"bin/nvidia-smi\0" in bare, b"board.ko\0" in bare) == (False, False, True)


def test_uuids_that_are_not_given_differ_and_stay_the_same(tmp_path: Path) -> None:
    first, again = (read_scenario(written(tmp_path, GOOD), MODELS)[0] for _ in range(2))
    assert first == again
    assert len({gpu.uuid for gpu in first.gpus}) == 2


def test_extra_fields_reach_the_host_as_they_are(tmp_path: Path) -> None:
    text = GOOD.replace("vfs: 32", "vfs: 32\n        extra: {serial: '17', subsystem: 6225}")
    gpu = read_scenario(written(tmp_path, text), MODELS)[0].payload()["gpus"][0]
    assert (gpu["serial"], gpu["subsystem"]) == ("17", 6225)
    assert "extra" not in gpu


BAD = [
    ("", 1, "the file is empty"),
    ("- 1\n", 1, "a mapping (name: value) is wanted here"),
    ("hosts: [\n", 2, "expected the node content, but found '<stream end>'"),
    ("hosts: []\n", 1, "the list has 0 entries, 1 to 8 are possible"),
    ("hosts: 7\n", 1, "a list is wanted here"),
    ("host: []\n", 1, "unknown field host; known: hosts"),
    ("hosts: []\nhosts: []\n", 2, "hosts is there twice"),
    (
        GOOD.replace("name: one", "name: one\n    numa_nodes: 4"),
        2,
        "2 vcpus cannot be divided among 4 numa_nodes evenly",
    ),
    (GOOD.replace("name: one", "name: One"), 2, "'One' is not a host name"),
    (GOOD.replace("name: one", "name: ../one"), 2, "'../one' is not a host name"),
    (GOOD.replace("name: one", "names: one"), 2, "unknown field names"),
    (GOOD.replace("name: one\n    ", ""), 2, "name is missing"),
    (GOOD.replace('"550.163.02"', "550.163"), 3, "text is wanted here (a number needs quotes)"),
    (GOOD.replace("550.163.02", "new"), 3, "'new' is not a driver version"),
    (GOOD.replace("model: L40S", "model: L41S"), 5, 'no GPU model "L41S"'),
    (GOOD.replace("vendor_vfio", "sriov"), 6, "'sriov' is not one of mdev_pf, mdev_vf, vendor_vfio"),
    (GOOD.replace("vfs: 32", "vfs: 320"), 7, "320 is out of range: 0 to 48"),
    (GOOD.replace("vfs: 32", "vfs: true"), 7, "a whole number is wanted here"),
    (GOOD.replace("vfs: 32", "vfs: 0"), 5, "vfs is 0: vendor_vfio has at least one"),
    (GOOD.replace("vfs: 32", "uuid: GPU-1"), 7, "'GPU-1' is not GPU-<uuid>"),
    (GOOD.replace("vfs: 32", "vfs: 32\n        color: red"), 8, "unknown field color"),
    (GOOD.replace("    gpus:", "    memory_mib: 12\n    gpus:"), 4, "12 is out of range: 2048 to 262144"),
    (GOOD + GOOD.removeprefix("hosts:\n"), 10, "host one is there twice"),
    ("hosts: [!!python/name:os.system x]\n", 1, "a mapping (name: value) is wanted here"),
    (GOOD.replace("vfs: 32", "extra: {a: !!python/name:os.system x}"), 7, "plain values only"),
]


@pytest.mark.parametrize(("text", "line", "reason"), BAD, ids=[reason for _, _, reason in BAD])
def test_a_mistake_is_told_with_file_line_and_reason(tmp_path: Path, text: str, line: int, reason: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(LabError) as caught:
        read_scenario(file, MODELS)
    assert caught.value.message.startswith(f"{file}:{line}: {reason}")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_or_not_text_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="No such file"):
        read_scenario(tmp_path / "none.yaml", MODELS)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LabError, match="not a text file"):
        read_scenario(tmp_path / "binary.yaml", MODELS)


def test_the_same_host_name_in_two_files_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, GOOD)
    with pytest.raises(LabError, match="host one is in another scenario too"):
        read_scenarios([file, file], MODELS)


@pytest.mark.parametrize("file", sorted(Path("lab/scenarios").glob("*.yaml")), ids=str)
def test_every_scenario_of_the_project_is_good(file: Path) -> None:
    assert read_scenario(file, model_names())
