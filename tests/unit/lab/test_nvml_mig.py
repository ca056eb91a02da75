# SPDX-License-Identifier: Apache-2.0
"""The lab's NVML library on MIG, against files as the module writes them; pynvml calls it as on a real host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.lab.fake_gpu_host import FakeGpuHost, build
from tests.unit.lab.test_nvml_library import PRELUDE

UUIDS = [f"11111111-2222-4333-8444-55555555550{number}" for number in range(3)]
STATE = f"""mode 1 1
made 5
left 19 3
left 15 1
gi 5 15 0
gi 11 19 2
ci 5 0 0 0 {UUIDS[0]}
ci 11 0 0 0 {UUIDS[1]}
"""
HELPERS = """
def places(id):
    count, out = n.c_uint(), (n.c_nvmlGpuInstancePlacement_t * 16)()
    n.nvmlDeviceGetGpuInstancePossiblePlacements(h, id, out, n.byref(count))
    return [[place.start, place.size] for place in out[:count.value]]
def instances(id):
    count, out = n.c_uint(), (n.c_nvmlGpuInstance_t * 16)()
    n.nvmlDeviceGetGpuInstances(h, id, out, n.byref(count))
    return [n.nvmlGpuInstanceGetInfo(out[i]).id for i in range(count.value)]
def gi(id):
    return n.nvmlDeviceGetGpuInstanceById(h, id)
def where(info):
    return [info.id, info.profileId, info.placement.start, info.placement.size]
def mig(index):
    return n.nvmlDeviceGetMigDeviceHandleByIndex(h, index)
"""


@pytest.fixture
def host(tmp_path: Path, nvml_library: Path) -> FakeGpuHost:
    host = build(tmp_path, nvml_library, [{"model": "A100 PCIe 80GB"}, {"model": "Tesla T4"}])
    directory = tmp_path / "sys/kernel/vgpu_lab/gpus/0"
    (directory / "mig").write_text(STATE)
    (directory / "mig_command").touch()
    return host


def ask(host: FakeGpuHost, expression: str, gpu: int = 0) -> Any:
    head, tail = PRELUDE.split("print(")
    done = host.python(head + HELPERS + "print(" + tail.replace("EXPRESSION", expression), str(gpu))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def command(host: FakeGpuHost) -> str:
    return (host.root / "sys/kernel/vgpu_lab/gpus/0/mig_command").read_text()


READ: dict[str, object] = {
    "n.nvmlDeviceGetMigMode(h)": [1, 1],
    "n.nvmlDeviceGetMaxMigDeviceCount(h)": 7,
    "places(15)": [[0, 2], [2, 2], [4, 2], [6, 2]],
    "[n.nvmlDeviceGetGpuInstanceProfileInfoById(h, 9).name, places(9)]": ["MIG 3g.40gb", [[0, 4], [4, 4]]],
    "n.nvmlDeviceGetGpuInstanceProfileInfo(h, 9).id": 15,
    "n.nvmlDeviceGetGpuInstanceProfileInfo(h, 9, version=1).memorySizeMB": 19968,
    "n.nvmlDeviceGetGpuInstanceProfileInfo(h, 0).sliceCount": 1,
    "tried(lambda: n.nvmlDeviceGetGpuInstanceProfileInfo(h, 0xA))": "NVMLError_NotSupported",
    "tried(lambda: n.nvmlDeviceGetGpuInstanceProfileInfo(h, 0x12))": "NVMLError_InvalidArgument",
    "n.nvmlDeviceGetGpuInstanceRemainingCapacity(h, 19)": 3,
    "[instances(15), instances(19), instances(9)]": [[5], [11], []],
    "tried(lambda: instances(99))": "NVMLError_InvalidArgument",
    "tried(lambda: n.nvmlDeviceGetGpuInstanceById(h, 6))": "NVMLError_NotFound",
    "where(n.nvmlGpuInstanceGetInfo(gi(11)))": [11, 19, 2, 1],
    "where(n.nvmlComputeInstanceGetInfo(n.nvmlGpuInstanceGetComputeInstanceById(gi(5), 0)))": [0, 0, 0, 1],
    "n.nvmlGpuInstanceGetComputeInstanceProfileInfo(gi(5), 0, 0).name": "MIG 1g.20gb",
    "tried(lambda: n.nvmlGpuInstanceGetComputeInstanceProfileInfo(gi(5), 1, 0))": "NVMLError_NotSupported",
    "n.nvmlGpuInstanceGetComputeInstanceRemainingCapacity(gi(5), 0)": 0,
    "n.nvmlDeviceGetUUID(mig(1))": f"MIG-{UUIDS[1]}",
    "n.nvmlDeviceGetName(mig(0))": "NVIDIA A100 80GB PCIe MIG 1g.20gb",
    "n.nvmlDeviceGetMemoryInfo(mig(0)).total >> 20": 19968,
    "tried(lambda: mig(2))": "NVMLError_NotFound",
    "[n.nvmlDeviceIsMigDeviceHandle(x).value for x in (h, mig(0))]": [0, 1],
    "[n.nvmlDeviceGetGpuInstanceId(mig(0)), n.nvmlDeviceGetComputeInstanceId(mig(0))]": [5, 0],
    "n.nvmlDeviceGetIndex(n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig(0)))": 0,
    f"n.nvmlDeviceGetGpuInstanceId(n.nvmlDeviceGetHandleByUUID('MIG-{UUIDS[1]}'))": 11,
    "n.nvmlDeviceGetAttributes(mig(0)).gpuInstanceSliceCount": 1,
    "n.nvmlVgpuTypeGetMaxInstancesPerGpuInstance(1054)": 1,
}  # fmt: skip
"""What pynvml says of the first GPU, by the expression."""


def test_pynvml_reads_the_modules_instances(host: FakeGpuHost) -> None:
    assert dict(zip(READ, ask(host, f"[{', '.join(READ)}]"), strict=True)) == READ


def test_a_gpu_without_mig_supports_none_of_it(host: FakeGpuHost) -> None:
    calls = ("n.nvmlDeviceGetMigMode(h)", "n.nvmlDeviceSetMigMode(h, 1)", "places(19)", "instances(19)")
    said = ask(host, "[" + ", ".join(f"tried(lambda: {call})" for call in calls) + "]", gpu=1)
    assert said == ["NVMLError_NotSupported"] * len(calls)
    assert ask(host, "n.nvmlDeviceGetMaxMigDeviceCount(h)", gpu=1) == 0


def test_instances_are_asked_for_with_their_place_and_the_answer_is_the_one_made(host: FakeGpuHost) -> None:
    place = "n.byref(n.c_nvmlGpuInstancePlacement_t(0, 2))"
    made = f"n.nvmlGpuInstanceGetInfo(n.nvmlDeviceCreateGpuInstanceWithPlacement(h, 15, {place})).id"
    assert ask(host, made) == 5
    assert command(host) == "gi 15 0"
    wrong_size = place.replace("0, 2", "0, 1")
    assert ask(host, f"tried(lambda: n.nvmlDeviceCreateGpuInstanceWithPlacement(h, 15, {wrong_size}))") == (
        "NVMLError_InvalidArgument"
    )


def test_the_module_is_told_of_the_mode(host: FakeGpuHost) -> None:
    (host.root / "var/lib/vgpu-lab/mig").mkdir(parents=True)
    assert ask(host, "n.nvmlDeviceSetMigMode(h, 0)") == 0
    assert command(host) == "mode 0"


def test_nvidia_smi_lists_makes_and_destroys_instances(host: FakeGpuHost) -> None:
    def said(words: str) -> list[list[str]]:
        done = host.smi("mig", "-i", "0", *words.split())
        assert done.returncode == 0, done.stdout + done.stderr
        return [line.split() for line in done.stdout.splitlines()]

    state = STATE + "".join(f"left {profile} 0\n" for profile in (0, 5, 9, 14, 20))
    state += f"ci 5 5 0 0 {UUIDS[2]}\nci 11 5 0 0 {UUIDS[2]}\n"  # what creating answers is 'made 5'
    (host.root / "sys/kernel/vgpu_lab/gpus/0/mig").write_text(state)
    assert ["0", "MIG", "1g.10gb", "19", "3/7", "9856"] in said("-lgip")
    assert said("-lgi")[1:] == [["0", "MIG", "1g.10gb", "19", "11", "2:1"], ["0", "MIG", "1g.20gb", "15", "5", "0:2"]]
    assert [row[1:4] for row in said("-lci")[1:]] == [[gi, "0", ci] for gi in ("11", "5") for ci in ("0", "5")]
    did = {
        "-cgi 15:0": "gi 15 0", "-cgi 15": "gi 15 -1", "-cci -gi 5": "ci 5 0 -1", "-cci 0 -gi 11": "ci 11 0 -1",
        "-dgi -gi 11": "destroy 11", "-dci -gi 5 -ci 0": "destroy 5 0",
    }  # fmt: skip
    for words, asked in did.items():
        assert said(words)[0][0] == "Successfully", words
        assert command(host) == asked


def test_nvidia_smi_refuses_what_it_cannot_do_to_instances(host: FakeGpuHost) -> None:
    for words, code in (("-dgi -gi 77", 6), ("-cgi large", 2), ("-lgi -lci", 2)):
        done = host.smi("mig", "-i", "0", *words.split())
        assert (done.returncode, done.stderr) == (code, ""), (words, done.stdout)
    assert host.smi("mig", "-i", "1", "-cgi", "19").returncode == 3
    assert command(host) == ""
