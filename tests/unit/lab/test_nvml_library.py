# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.lab.fake_gpu_host import FakeGpuHost, build

UUID = "GPU-11111111-2222-4333-8444-555555555555"
PRELUDE = """
import json, sys
import pynvml as n
n.nvmlInit()
def tried(call):
    try:
        return call()
    except n.NVMLError as error:
        return type(error).__name__
h = n.nvmlDeviceGetHandleByIndex(int(sys.argv[1]))
print(json.dumps(EXPRESSION, default=str))
n.nvmlShutdown()
"""


@pytest.fixture
def host(tmp_path: Path, nvml_library: Path) -> FakeGpuHost:
    gpus: list[dict[str, Any]] = [
        {"model": "Tesla T4", "uuid": UUID, "serial": "0321", "module_id": 5},
        {"model": "L40S"},
        {"model": "H100 PCIe 80GB"},
    ]
    return build(tmp_path, nvml_library, gpus)


def ask(host: FakeGpuHost, expression: str, gpu: int = 0) -> Any:
    done = host.python(PRELUDE.replace("EXPRESSION", expression), str(gpu))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


READ: dict[str, object] = {
    "n.nvmlSystemGetDriverVersion()": "550.90.05",
    "n.nvmlSystemGetCudaDriverVersion()": 12040,
    "n.nvmlDeviceGetCount()": 3,
    "n.nvmlDeviceGetName(h)": "Tesla T4",
    "n.nvmlDeviceGetUUID(h)": UUID,
    "n.nvmlDeviceGetSerial(h)": "0321",
    "n.nvmlDeviceGetModuleId(h)": 5,
    "n.nvmlDeviceGetMinorNumber(h)": 0,
    "n.nvmlDeviceGetPciInfo(h).busId": "00000000:01:00.0",
    "hex(n.nvmlDeviceGetPciInfo(h).pciDeviceId)": "0x1eb810de",
    "n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(h)))": 0,
    "n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByPciBusId('00000000:02:00.0'))": 1,
    "n.nvmlDeviceGetMemoryInfo(h).total >> 20": 16384,
    "n.nvmlDeviceGetMemoryInfo(h, n.nvmlMemory_v2).free >> 20": 16384,
    "n.nvmlDeviceGetVirtualizationMode(h)": 3,
    "n.nvmlDeviceGetHostVgpuMode(h)": 0,
    "n.nvmlDeviceGetVgpuCapabilities(h, n.NVML_DEVICE_VGPU_CAP_DEVICE_STREAMING)": 1,
    "n.nvmlDeviceGetEccMode(h)": [1, 1],
    "n.nvmlDeviceGetComputeRunningProcesses(h)": [],
    "n.nvmlVgpuTypeGetName(231)": "GRID T4-2Q",
    "n.nvmlVgpuTypeGetClass(231)": "Quadro",
    "n.nvmlVgpuTypeGetFramebufferSize(231) >> 20": 2048,
    "n.nvmlVgpuTypeGetMaxInstances(h, 231)": 8,
    "[hex(x) for x in n.nvmlVgpuTypeGetDeviceID(231)]": ["0x1eb810de", "0x130d10de"],
    "n.nvmlVgpuTypeGetResolution(231)": [7680, 4320],
    "n.nvmlVgpuTypeGetGpuInstanceProfileId(231)": 0xFFFFFFFF,
    "len(n.nvmlDeviceGetSupportedVgpus(h))": 17,
    "tried(lambda: n.nvmlDeviceGetMigMode(h))": "NVMLError_NotSupported",
    "tried(lambda: n.nvmlDeviceGetNumaNodeId(h))": "NVMLError_NotSupported",
    "tried(lambda: n.nvmlVgpuTypeGetName(9999))": "NVMLError_InvalidArgument",
    "tried(lambda: n.nvmlDeviceGetHandleByIndex(3))": "NVMLError_InvalidArgument",
    "tried(lambda: n.nvmlDeviceGetFanSpeed(h))": "NVMLError_FunctionNotFound",
}
"""What pynvml says of the first GPU, by the expression."""


def test_pynvml_reads_what_the_configuration_says(host: FakeGpuHost) -> None:
    assert dict(zip(READ, ask(host, f"[{', '.join(READ)}]"), strict=True)) == READ


def test_a_gpu_that_can_do_mig_says_that_it_is_off(host: FakeGpuHost) -> None:
    assert ask(host, "n.nvmlDeviceGetMigMode(h)", gpu=2) == [0, 0]


def test_a_mig_backed_type_names_its_gpu_instance_profile(host: FakeGpuHost) -> None:
    assert ask(host, "[n.nvmlVgpuTypeGetGpuInstanceProfileId(t) for t in n.nvmlDeviceGetSupportedVgpus(h) "
               "if n.nvmlVgpuTypeGetName(t) == 'NVIDIA H100-3-40C']", gpu=2) == [9]  # fmt: skip


def test_placements_are_the_lists_of_the_catalogue_less_what_is_taken(host: FakeGpuHost) -> None:
    places = "(lambda p: p.placementIds[:p.count])(n.nvmlDeviceGetVgpuType{}Placements(h, 1153, version=2))"
    host.vgpus(1, "7 1153 0000:02:00.4 11111111-2222-4333-8444-555555555501 0 12 0 -1")
    assert ask(host, places.format("Supported"), gpu=1) == [0, 12, 24, 36]
    assert ask(host, places.format("Creatable"), gpu=1) == [0, 24, 36]


def test_only_a_vgpu_that_a_vm_has_open_is_active_and_takes_memory(host: FakeGpuHost) -> None:
    first, second = "11111111-2222-4333-8444-555555555501", "11111111-2222-4333-8444-555555555502"
    host.vgpus(0, f"7 231 0000:01:00.0 {first} 1 65535 4242 -1", f"8 231 0000:01:00.0 {second} 0 65535 0 -1")
    (host.root / "proc/4242").mkdir(parents=True)
    (host.root / "proc/4242/cmdline").write_bytes(b"qemu\0-name\0guest=vm\0-uuid\0some-vm-uuid\0")
    assert ask(host, "n.nvmlDeviceGetActiveVgpus(h)") == [7]
    assert ask(host, "[n.nvmlVgpuInstanceGetUUID(7), n.nvmlVgpuInstanceGetMdevUUID(7)]") == [first, first]
    assert ask(host, "n.nvmlVgpuInstanceGetType(7)") == 231
    assert "some-vm-uuid" in str(ask(host, "n.nvmlVgpuInstanceGetVmID(7)"))
    assert ask(host, "n.nvmlDeviceGetMemoryInfo(h).used >> 20") == 2048
    assert ask(host, "tried(lambda: n.nvmlVgpuInstanceGetType(8))") == "NVMLError_NotFound"


LICENCE = (
    "(lambda i: [i.isLicensed, i.currentState, i.licenseExpiry.status, i.licenseExpiry.year, i.licenseExpiry.sec])"
    "(n.nvmlVgpuInstanceGetLicenseInfo_v2(7))"
)


def test_a_guest_has_the_licence_that_was_written_down_for_its_vm(host: FakeGpuHost) -> None:
    host.vgpus(0, "7 231 0000:01:00.0 11111111-2222-4333-8444-555555555501 1 65535 4242 -1")
    (host.root / "proc/4242").mkdir(parents=True)
    (host.root / "proc/4242/cmdline").write_bytes(b"qemu\0-uuid\0some-vm-uuid\0")
    assert ask(host, LICENCE) == [0, 4, 0, 0, 0]
    assert "License Status                : Unlicensed" in host.smi("vgpu", "-q").stdout
    (host.root / "run/vgpu-lab/licences").write_text("other 2030 1 1 0 0 0\nsome-vm-uuid 2027 1 31 12 30 59\n")
    assert ask(host, LICENCE) == [1, 5, 2, 2027, 59]
    assert "Licensed (Expiry: 2027-1-31 12:30:59 GMT)" in host.smi("vgpu", "-q").stdout
    (host.root / "run/vgpu-lab/licences").write_text("some-vm-uuid 0 0 0 0 0 0\n")
    assert ask(host, LICENCE) == [1, 5, 4, 0, 0]


def test_persistence_mode_is_the_modules_and_is_switched_there(host: FakeGpuHost) -> None:
    file = host.root / "sys/kernel/vgpu_lab/gpus/0/persistence"
    file.touch()
    assert ask(host, "[n.nvmlDeviceSetPersistenceMode(h, 1), n.nvmlDeviceGetPersistenceMode(h)]") == [None, 0]
    assert file.read_text() == "1"
    host.state(0, persistence=1)
    assert ask(host, "n.nvmlDeviceGetPersistenceMode(h)") == 1
    assert ask(host, "tried(lambda: n.nvmlDeviceSetPersistenceMode(h, 2))") == "NVMLError_InvalidArgument"
    assert "Disabled persistence mode for GPU 00000000:01:00.0" in host.smi("-i", "0", "-pm", "0").stdout
    assert host.smi("-i", "0", "-pm", "2").returncode == 2


def test_creatable_types_are_the_modules(host: FakeGpuHost) -> None:
    host.vgpus(0, creatable="231 7\n226 7\n")
    assert ask(host, "n.nvmlDeviceGetCreatableVgpus(h)") == [231, 226]


def test_sensors_go_before_the_values_at_rest(host: FakeGpuHost) -> None:
    readings = (
        "[n.nvmlDeviceGetTemperature(h, 0), n.nvmlDeviceGetPowerUsage(h), n.nvmlDeviceGetTotalEccErrors(h, 1, 0)]"
    )
    host.state(0, temperature_c=91, power_mw=69000, ecc_uncorrected=2)
    assert ask(host, readings) == [91, 69000, 2]


def test_a_lost_gpu_says_so(host: FakeGpuHost) -> None:
    host.state(0, lost=1)
    assert "NVMLError_GpuIsLost" in host.python(PRELUDE.replace("EXPRESSION", "0"), "0").stderr


def test_a_gpu_without_our_driver_is_not_listed(host: FakeGpuHost) -> None:
    host.state(0, bound=0)
    assert ask(host, "[n.nvmlDeviceGetCount(), n.nvmlDeviceGetName(h)]") == [2, "NVIDIA L40S"]


def test_without_the_module_the_driver_is_not_loaded(host: FakeGpuHost) -> None:
    (host.root / "sys/kernel/vgpu_lab/config").unlink()
    assert "NVMLError_DriverNotLoaded" in host.python("import pynvml; pynvml.nvmlInit()").stderr


def test_a_mode_that_the_driver_refuses_is_in_use_or_not_supported(host: FakeGpuHost) -> None:
    assert ask(host, "tried(lambda: n.nvmlDeviceSetVgpuHeterogeneousMode(h, 1))") == "NVMLError_NotSupported"
    (host.root / "sys/kernel/vgpu_lab/gpus/1/heterogeneous").touch()
    assert ask(host, "n.nvmlDeviceSetVgpuHeterogeneousMode(h, 1)", gpu=1) == 0
    assert (host.root / "sys/kernel/vgpu_lab/gpus/1/heterogeneous").read_text() == "1"


def test_an_ecc_mode_that_a_guest_has_set_is_set_back_and_takes_a_reset(host: FakeGpuHost) -> None:
    module = "__import__('importlib').import_module('orchestrator.agent.nvml.modes')"
    put_back = f"{module}.set_modes('0000:01:00.0', ecc=%s, mig=False)"
    file = host.root / "sys/kernel/vgpu_lab/gpus/0/ecc_mode"
    file.touch()
    assert ask(host, put_back % "None") is ask(host, put_back % "True") is False
    host.state(0, ecc_off=1, ecc_off_pending=1)
    assert ask(host, "n.nvmlDeviceGetEccMode(h)") == [0, 0]
    assert ask(host, put_back % "True") is True
    assert file.read_text() == "1"
    assert ask(host, "tried(lambda: n.nvmlDeviceSetEccMode(h, 2))") == "NVMLError_InvalidArgument"


def test_a_limit_of_power_is_taken_within_the_boards_own_bounds(host: FakeGpuHost) -> None:
    told = host.root / "sys/kernel/vgpu_lab/gpus/0/power_limit"
    told.touch()
    outside = "tried(lambda: n.nvmlDeviceSetPowerManagementLimit(h, {}))"
    assert ask(host, "n.nvmlDeviceGetPowerManagementLimitConstraints(h)") == [35_000, 70_000]
    assert ask(host, f"[{outside.format(34_999)}, {outside.format(70_001)}]") == ["NVMLError_InvalidArgument"] * 2
    assert ask(host, "n.nvmlDeviceSetPowerManagementLimit(h, 50000)") is None
    assert told.read_text() == "50000"
    host.state(0, power_limit_set_mw=50_000)
    limits = "[n.nvmlDeviceGetPowerManagementLimit(h), n.nvmlDeviceGetEnforcedPowerLimit(h)]"
    assert ask(host, limits) == [50_000, 50_000]
    assert ask(host, "n.nvmlDeviceGetPowerManagementDefaultLimit(h)") == 70_000


@pytest.mark.parametrize(
    "arguments, code, part",
    [
        (["-L"], 0, f"GPU 0: Tesla T4 (UUID: {UUID})\nGPU 1: NVIDIA L40S"),
        (["--query-gpu=index,memory.total", "--format=csv"], 0, "index, memory.total [MiB]\n0, 16384 MiB\n"),
        (["-i", "1", "--query-gpu=index,mig.mode.current", "--format=csv,noheader"], 0, "1, [N/A]\n"),
        (["--query-gpu=memory.total", "--format=csv,noheader,nounits", "-i", UUID], 0, "16384\n"),
        (["-q", "-x"], 0, "<vgpu_heterogeneous_mode>Disabled</vgpu_heterogeneous_mode>"),
        (["-q", "-x"], 0, "<pci_device_id>1EB810DE</pci_device_id>"),
        ([], 0, "CUDA Version: 12.4"),
        (["vgpu", "-s", "-i", "0"], 0, "GPU 00000000:01:00.0\n    GRID T4-1B\n"),
        (["vgpu", "-s", "-v", "-i", "0"], 0, "vGPU Type ID                      : 0xe7\n"),
        (["vgpu", "-q", "-i", "0"], 0, "Active vGPUs                      : 0"),
        (["vgpu", "-i", "0", "-shm", "1"], 3, "Not Supported"),
        (["--nonsense"], 2, "Invalid combination of input arguments: --nonsense"),
        (["vgpu", "--nonsense"], 2, "Option --nonsense is not recognized"),
        (["--query-gpu=nonsense", "--format=csv"], 2, 'Field "nonsense" is not a valid field to query.'),
        (["-i", "9", "-L"], 2, "No devices were found"),
    ],
)  # fmt: skip
def test_nvidia_smi_answers_as_the_real_one(host: FakeGpuHost, arguments: list[str], code: int, part: str) -> None:
    done = host.smi(*arguments)
    assert (done.returncode, done.stderr) == (code, "")
    assert part in done.stdout
