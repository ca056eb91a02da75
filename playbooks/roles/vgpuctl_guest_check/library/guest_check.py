# SPDX-License-Identifier: Apache-2.0
"""Asks a guest what it has of NVIDIA's: driver, nvidia-smi, CUDA by writing memory of each device and reading it back,
NCCL by adding up numbers of all devices, cuDNN for its version and a handle.

Runs in the guest, under any Python that Ansible supports there, and changes nothing. CUDA is asked through the driver's
own library (CUDA Driver API: cuInit, cuDeviceGet, cuCtxCreate, cuMemAlloc, cuMemcpy), so no toolkit is needed. NCCL is
asked through its own (NCCL API: ncclCommInitAll, ncclAllReduce) in each device's primary context, which it uses itself.
cuDNN is asked through its own (cuDNN API: cudnnGetVersion, cudnnCreate), on the first device.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: guest_check
short_description: Says what a guest has of NVIDIA's
description: Fails where no driver is loaded, or where it does not answer; what was found is returned all the same.
author: vgpuctl
options:
  root: {description: Below which the kernel's files are looked for., type: path, default: /}
"""

SMI = ("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
PROBED_BYTES = 1 << 20
MAX_DEVICES = 64
LONGEST = 400
CUDNN_RELEASES = (9, 8)
"""Of which cuDNN's library carries the number in its name, the newest first."""


class CudaFailed(Exception):
    """A call of CUDA's gave an error."""


class Library:
    """One of NVIDIA's; each call is checked."""

    def __init__(self, name: str) -> None:
        """:raises OSError: there is none"""
        self.library = ctypes.CDLL(name)

    def call(self, name: str, *arguments: object) -> None:
        """:raises CudaFailed: with the call and its error's number"""
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            raise CudaFailed(f"{name} gave error {code}")


class Cuda(Library):
    """The driver's own."""

    def __init__(self) -> None:
        super().__init__("libcuda.so.1")
        self.call("cuInit", 0)

    def version(self) -> str:
        """Newest CUDA that the driver runs: 12080 is 12.8."""
        number = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}"

    def devices(self) -> list[str]:
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        return [self.probed(number) for number in range(min(count.value, MAX_DEVICES))]

    def probed(self, number: int) -> str:
        """Its name and memory, once a pattern was written to its memory and read back."""
        device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
        name, size = ctypes.create_string_buffer(100), ctypes.c_size_t()
        self.call("cuDeviceGet", ctypes.byref(device), number)
        self.call("cuDeviceGetName", name, len(name), device)
        self.call("cuDeviceTotalMem_v2", ctypes.byref(size), device)
        self.call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
        try:
            self.call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(PROBED_BYTES))
            self.compare(memory)
            self.call("cuMemFree_v2", memory)
        finally:
            self.call("cuCtxDestroy_v2", context)
        return f"{name.value.decode(errors='replace')}, {size.value >> 20} MiB"

    def primary(self, number: int) -> ctypes.c_void_p:
        """The device's primary context. It ends with this process."""
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), number)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        return context

    def numbers(self, context: ctypes.c_void_p, value: int, count: int) -> ctypes.c_uint64:
        """Memory of the context's device with so many of it, four bytes each."""
        memory, there = ctypes.c_uint64(), (ctypes.c_int32 * count)(*([value] * count))
        self.call("cuCtxSetCurrent", context)
        self.call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(ctypes.sizeof(there)))
        self.call("cuMemcpyHtoD_v2", memory, there, ctypes.c_size_t(ctypes.sizeof(there)))
        return memory

    def compare_numbers(self, context: ctypes.c_void_p, memory: ctypes.c_uint64, value: int, count: int) -> None:
        """Once all that was begun in the context is over."""
        back = (ctypes.c_int32 * count)()
        self.call("cuCtxSetCurrent", context)
        self.call("cuCtxSynchronize")
        self.call("cuMemcpyDtoH_v2", back, memory, ctypes.c_size_t(ctypes.sizeof(back)))
        if any(one != value for one in back):
            raise CudaFailed("NCCL's sum is wrong")

    def compare(self, memory: ctypes.c_uint64) -> None:
        there, back = os.urandom(PROBED_BYTES), ctypes.create_string_buffer(PROBED_BYTES)
        self.call("cuMemcpyHtoD_v2", memory, there, ctypes.c_size_t(PROBED_BYTES))
        self.call("cuMemcpyDtoH_v2", back, memory, ctypes.c_size_t(PROBED_BYTES))
        if back.raw != there:
            raise CudaFailed("memory reads back other than it was written")


class Nccl(Library):
    INT32, SUM = 2, 0
    NUMBERS = 1 << 16

    def __init__(self) -> None:
        super().__init__("libnccl.so.2")

    def version(self) -> str:
        """22304 is 2.23.4."""
        number = ctypes.c_int()
        self.call("ncclGetVersion", ctypes.byref(number))
        return f"{number.value // 10000}.{number.value % 10000 // 100}.{number.value % 100}"

    def summed(self, cuda: Cuda, devices: int) -> int:
        """Over how many devices: the first one has ones, the next one twos, and each has to get the sum of all.

        :raises CudaFailed: a call failed, or the sum is wrong"""
        contexts = [cuda.primary(number) for number in range(devices)]
        buffers = [cuda.numbers(context, number + 1, self.NUMBERS) for number, context in enumerate(contexts)]
        communicators = (ctypes.c_void_p * devices)()
        self.call("ncclCommInitAll", communicators, devices, None)
        self.call("ncclGroupStart")
        for number, buffer in enumerate(buffers):
            cuda.call("cuCtxSetCurrent", contexts[number])
            there, stream = ctypes.c_void_p(buffer.value), ctypes.c_void_p()
            how = (ctypes.c_size_t(self.NUMBERS), self.INT32, self.SUM)
            self.call("ncclAllReduce", there, there, *how, ctypes.c_void_p(communicators[number]), stream)
        self.call("ncclGroupEnd")
        for number, buffer in enumerate(buffers):
            cuda.compare_numbers(contexts[number], buffer, devices * (devices + 1) // 2, self.NUMBERS)
        for communicator in communicators:
            self.call("ncclCommDestroy", ctypes.c_void_p(communicator))
        return devices


class Cudnn(Library):
    def __init__(self) -> None:
        """:raises OSError: there is none of :data:`CUDNN_RELEASES`"""
        for release in CUDNN_RELEASES:
            try:
                super().__init__(f"libcudnn.so.{release}")
            except OSError:
                if release == CUDNN_RELEASES[-1]:
                    raise
            else:
                return

    def version(self) -> str:
        """91301 is 9.13.1, and 8907 is 8.9.7."""
        told = self.library.cudnnGetVersion
        told.restype = ctypes.c_size_t
        number = int(told())
        unit = 10000 if number >= 90000 else 1000
        return f"{number // unit}.{number % unit // 100}.{number % 100}"

    def open(self) -> None:
        """A handle on the first device, given back."""
        handle = ctypes.c_void_p()
        self.call("cudnnCreate", ctypes.byref(handle))
        self.call("cudnnDestroy", handle)


class Check:
    """``wrong``: what keeps the guest from using its GPU, with the error's code."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.root = Path(module.params["root"])
        self.wrong: str | None = None

    def fail(self, text: str) -> None:
        """The first cause is the one to mend."""
        self.wrong = self.wrong or text

    def driver(self) -> str | None:
        """Version of the module that is loaded; None: it is not."""
        version = _text(self.root / "sys/module/nvidia/version")
        if version:
            return version
        found = re.search(r"Module(?: for \S+)?\s+(\d{3}[\d.]+)", _text(self.root / "proc/driver/nvidia/version"))
        return found[1] if found else None

    def gpus(self) -> list[str]:
        if self.module.get_bin_path(SMI[0]) is None:
            self.fail("[guest.check_failed] there is no nvidia-smi")
            return []
        code, out, err = self.module.run_command(list(SMI))
        if code != 0:
            self.fail(f"[guest.check_failed] nvidia-smi ended with {code}: {(out + err).strip()[:LONGEST]}")
            return []
        return [line.strip()[:LONGEST] for line in out.splitlines() if line.strip()][:MAX_DEVICES]

    def cuda(self) -> tuple[str | None, list[str]]:
        """Newest CUDA that the driver runs, and the devices that answered."""
        try:
            cuda = Cuda()
            version, devices = cuda.version(), cuda.devices()
        except (OSError, AttributeError, CudaFailed) as error:
            self.fail(f"[guest.check_failed] CUDA does not work: {error}"[:LONGEST])
            return None, []
        if not devices:
            self.fail("[guest.check_failed] CUDA has no device")
        return version, devices

    def nccl(self, devices: int) -> tuple[str | None, int | None]:
        """Its version, and over how many devices it added up; None: there is none, or there are no devices."""
        try:
            nccl = Nccl()
        except OSError:
            return None, None
        version = None
        try:
            version = nccl.version()
            return version, nccl.summed(Cuda(), devices) if devices else None
        except (OSError, AttributeError, CudaFailed) as error:
            self.fail(f"[guest.check_failed] NCCL does not work: {error}"[:LONGEST])
            return version, None

    def cudnn(self, devices: int) -> str | None:
        """Its version; None: there is none."""
        try:
            cudnn = Cudnn()
        except OSError:
            return None
        version = None
        try:
            version = cudnn.version()
            if devices:
                cudnn.open()
        except (AttributeError, CudaFailed) as error:
            self.fail(f"[guest.check_failed] cuDNN does not work: {error}"[:LONGEST])
        return version

    def toolkit(self) -> str | None:
        nvcc = self.module.get_bin_path("nvcc", opt_dirs=["/usr/local/cuda/bin"])
        if nvcc is None:
            return None
        found = re.search(r"release (\d+\.\d+)", self.module.run_command([nvcc, "--version"])[1])
        return found[1] if found else None

    def run(self) -> dict[str, object]:
        driver = self.driver()
        if driver is None:
            self.fail("[guest.no_driver] no driver of NVIDIA's is loaded in the guest")
        gpus = [] if driver is None else self.gpus()
        cuda, devices = (None, []) if driver is None else self.cuda()
        nccl, summed = self.nccl(len(devices))
        return {
            "system": _system(self.root),
            "kernel": platform.release(),
            "driver": driver,
            "gpus": gpus,
            "cuda_driver": cuda,
            "cuda_devices": devices,
            "cuda_toolkit": self.toolkit(),
            "cudnn": self.cudnn(len(devices)),
            "nccl": nccl,
            "nccl_devices": summed,
        }


def _system(root: Path) -> str | None:
    found = re.search(r'^PRETTY_NAME="?([^"\n]*)', _text(root / "etc/os-release"), re.MULTILINE)
    return found[1][:LONGEST] if found else None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def main() -> None:
    """Ansible's entry point."""
    module = AnsibleModule(argument_spec={"root": {"type": "path", "default": "/"}}, supports_check_mode=True)
    check = Check(module)
    facts = check.run()
    if check.wrong is not None:
        module.fail_json(msg=check.wrong, guest_facts=facts)
    module.exit_json(changed=False, guest_facts=facts)


if __name__ == "__main__":
    main()
