# SPDX-License-Identifier: Apache-2.0
"""The role that asks a guest for CUDA and NCCL, with the real Ansible and libraries that stand in for NVIDIA's.

They keep device memory in the process's own, and add up what NCCL is given."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orchestrator.adapters.ansible.connection import GUEST
from orchestrator.adapters.ansible.guest_outcome import guest_error_of, guest_facts_of
from orchestrator.core.drivers.guest_facts import GuestFacts
from tests.playbooks.guest_with_packages import PackagedGuest

CUDA = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static uintptr_t current;
int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *version) { *version = 12080; return 0; }
int cuDeviceGetCount(int *count) { *count = atoi(getenv("DEVICES")); return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDeviceGetName(char *name, int size, int device) { snprintf(name, size, "GRID T4-8C"); return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = 8ul << 30; return 0; }
int cuCtxCreate_v2(uintptr_t *context, unsigned flags, int device) { *context = current = device + 1; return 0; }
int cuCtxDestroy_v2(uintptr_t context) { return 0; }
int cuDevicePrimaryCtxRetain(uintptr_t *context, int device) { *context = device + 1; return 0; }
int cuCtxSetCurrent(uintptr_t context) { current = context; return 0; }
int cuCtxSynchronize(void) { return current == 0 ? 201 : 0; }
int cuMemAlloc_v2(void **memory, size_t bytes) { *memory = malloc(bytes); return 0; }
int cuMemFree_v2(void *memory) { free(memory); return 0; }
int cuMemcpyHtoD_v2(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); return 0; }
int cuMemcpyDtoH_v2(void *to, const void *from, size_t bytes) {
    memcpy(to, from, bytes);
    if (getenv("FORGETS")) *(char *)to ^= 1;
    return 0;
}
"""
NCCL = r"""
#include <stdint.h>
#include <stdlib.h>
static struct { const int32_t *from; int32_t *to; size_t count; } asked[64];
static int grouped, begun, members;
int ncclGetVersion(int *version) { *version = 22304; return 0; }
int ncclCommInitAll(uintptr_t *all, int count, const int *devices) {
    if (getenv("NO_NCCL")) return 2;
    members = count;
    for (int i = 0; i < count; i++) all[i] = 100 + i;
    return 0;
}
int ncclGroupStart(void) { grouped = 1; begun = 0; return 0; }
int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, uintptr_t comm, void *stream) {
    if (!grouped || type != 2 || op != 0 || comm != (uintptr_t)(100 + begun)) return 4;
    asked[begun].from = from; asked[begun].to = to; asked[begun++].count = count;
    return 0;
}
int ncclGroupEnd(void) {
    if (begun != members) return 5;
    for (size_t i = 0; i < asked[0].count; i++) {
        int32_t sum = getenv("MISCOUNTS") && i == 7 ? 1 : 0;
        for (int m = 0; m < members; m++) sum += asked[m].from[i];
        for (int m = 0; m < members; m++) asked[m].to[i] = sum;
    }
    return 0;
}
int ncclCommDestroy(uintptr_t comm) { return 0; }
"""
CUDNN = r"""
#include <stddef.h>
#include <stdlib.h>
size_t cudnnGetVersion(void) { return VERSION; }
int cudnnCreate(void **handle) { *handle = (void *)cudnnGetVersion; return getenv("NO_HANDLE") ? 1001 : 0; }
int cudnnDestroy(void *handle) { return 0; }
"""


def _library(root: Path, name: str, source: str) -> None:
    (root / "lib").mkdir(exist_ok=True)
    (root / f"{name}.c").write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", root / "lib" / name, root / f"{name}.c"], check=True)


def _guest(root: Path, **environment: str) -> PackagedGuest:
    made = PackagedGuest.made(root, **{"nvidia-smi": 'echo "GRID T4-8C, 570.172.08, 8192 MiB"'})
    made.environment.update({"LD_LIBRARY_PATH": str(root / "lib"), **environment})
    made.put("sys/module/nvidia/version", "570.172.08\n")
    _library(root, "libcuda.so.1", CUDA)
    return made


def _checked(guest: PackagedGuest) -> tuple[tuple[str, str] | None, GuestFacts]:
    report = guest.run("vgpuctl_guest_check", "check", {"vgpuctl_guest_check_root": str(guest.root)})
    error, facts = guest_error_of(report, "default/train", GUEST), guest_facts_of(report)
    assert facts is not None, report.output
    return (None if error is None else (error.code, error.message)), facts


def test_memory_of_each_device_is_tried_and_nccl_adds_up_over_all_of_them(tmp_path: Path) -> None:
    guest = _guest(tmp_path, DEVICES="3")
    _library(tmp_path, "libnccl.so.2", NCCL)
    error, facts = _checked(guest)
    assert error is None
    assert (facts.cuda_driver, facts.cuda_devices) == ("12.8", ("GRID T4-8C, 8192 MiB",) * 3)
    assert (facts.nccl, facts.nccl_devices) == ("2.23.4", 3)


@pytest.mark.parametrize(("release", "number", "version"), [(9, 91301, "9.13.1"), (8, 8907, "8.9.7")])
def test_cudnn_is_asked_for_its_version_and_a_handle(tmp_path: Path, release: int, number: int, version: str) -> None:
    guest = _guest(tmp_path, DEVICES="1")
    _library(tmp_path, f"libcudnn.so.{release}", CUDNN.replace("VERSION", str(number)))
    error, facts = _checked(guest)
    assert (error, facts.cudnn) == (None, version)


def test_a_cudnn_that_makes_no_handle_is_said_and_its_version_is_kept(tmp_path: Path) -> None:
    guest = _guest(tmp_path, DEVICES="1", NO_HANDLE="1")
    _library(tmp_path, "libcudnn.so.9", CUDNN.replace("VERSION", "91301"))
    error, facts = _checked(guest)
    assert error == ("guest.check_failed", "default/train: cuDNN does not work: cudnnCreate gave error 1001")
    assert facts.cudnn == "9.13.1"


def test_a_guest_without_nccl_is_as_good(tmp_path: Path) -> None:
    error, facts = _checked(_guest(tmp_path, DEVICES="1"))
    assert (error, facts.nccl, facts.nccl_devices, facts.cudnn) == (None, None, None, None)


@pytest.mark.parametrize(("breaks", "said"), [
    ("NO_NCCL", "NCCL does not work: ncclCommInitAll gave error 2"),
    ("MISCOUNTS", "NCCL does not work: NCCL's sum is wrong"),
    ("FORGETS", "CUDA does not work: memory reads back other than it was written"),
])  # fmt: skip
def test_what_does_not_work_is_said_and_what_was_found_is_kept(tmp_path: Path, breaks: str, said: str) -> None:
    guest = _guest(tmp_path, DEVICES="2", **{breaks: "1"})
    _library(tmp_path, "libnccl.so.2", NCCL)
    error, facts = _checked(guest)
    assert error == ("guest.check_failed", f"default/train: {said}")
    assert (facts.driver, facts.nccl, facts.nccl_devices) == ("570.172.08", "2.23.4", None)


def test_devices_that_are_not_there_are_said_to_be_missing(tmp_path: Path) -> None:
    guest = _guest(tmp_path, DEVICES="0")
    _library(tmp_path, "libnccl.so.2", NCCL)
    error, facts = _checked(guest)
    assert error == ("guest.check_failed", "default/train: CUDA has no device")
    assert (facts.nccl, facts.nccl_devices) == ("2.23.4", None)
