# SPDX-License-Identifier: Apache-2.0
"""May a vGPU go on on a GPU: what the driver says of each, and what it says to both together.

pynvml gives the driver room of a fixed size, whatever size it asks for, so that the two are read without it.
"""

from __future__ import annotations

import base64
import ctypes
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import pynvml

from orchestrator.agent.nvml.asking import answer_of
from orchestrator.core.errors import Fatal, InvalidInput
from orchestrator.core.gpu.vgpu_metadata import (
    MAX_METADATA_BYTES,
    MAX_QUESTIONS,
    Answers,
    Compatibility,
    RunningVgpu,
    VgpuQuestion,
)

_NO_CALL: Final = (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_NOT_SUPPORTED)
_OTHER: Final = Compatibility(states=0, limits=pynvml.NVML_VGPU_COMPATIBILITY_LIMIT_OTHER)


class GpuMetadata(NamedTuple):
    """``moves``: the bit of NVML_VGPU_PGPU_VIRTUALIZATION_CAP_MIGRATION (nvml.h)."""

    moves: bool
    text: str


def gpu_metadata(device: Any) -> GpuMetadata:
    """:raises pynvml.NVMLError: NOT_SUPPORTED where the GPU has no vGPUs, FUNCTION_NOT_FOUND of an older driver"""
    metadata = _read("nvmlDeviceGetVgpuMetadata", device)
    known = _laid_out(pynvml.c_nvmlVgpuPgpuMetadata_t, metadata)
    return GpuMetadata(bool(known.pgpuVirtualizationCaps & 1), base64.b64encode(metadata).decode())


def open_vgpus(device: Any) -> Iterator[RunningVgpu]:
    """Of those that say whose they are, and what their state is; those whose VM has just ended say nothing."""
    for vgpu in answer_of(lambda: pynvml.nvmlDeviceGetActiveVgpus(device)) or ():
        vm = answer_of(partial(pynvml.nvmlVgpuInstanceGetVmID, vgpu))
        metadata = answer_of(partial(_read, "nvmlVgpuInstanceGetMetadata", vgpu))
        if vm and metadata:
            yield RunningVgpu(vm=_uuid(vm[0]), metadata=base64.b64encode(metadata).decode())


def state_of_vgpus(vm: str) -> int | None:
    """Bytes of a VM's (UUID) that run, which NVML is open for; None: the driver tells of none of them."""
    sizes = []
    for number in range(pynvml.nvmlDeviceGetCount()):
        device = pynvml.nvmlDeviceGetHandleByIndex(number)
        for vgpu in answer_of(partial(pynvml.nvmlDeviceGetActiveVgpus, device)) or ():
            owner = answer_of(partial(pynvml.nvmlVgpuInstanceGetVmID, vgpu))
            state = answer_of(partial(pynvml.nvmlVgpuInstanceGetRuntimeStateSize, vgpu))
            if owner and state and _uuid(owner[0]) == vm:
                sizes.append(int(state.size))
    return sum(sizes) if sizes else None


def _uuid(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _read(function: str, of: Any) -> bytes:
    """:raises pynvml.NVMLError: as that function, and NOT_SUPPORTED where the driver has more than is kept"""
    ask = getattr(pynvml.nvmlLib, function, None)
    size, buffer = ctypes.c_uint(0), ctypes.create_string_buffer(MAX_METADATA_BYTES)
    result = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND if ask is None else ask(of, buffer, ctypes.byref(size))
    if result == pynvml.NVML_ERROR_INSUFFICIENT_SIZE and ask is not None:
        if size.value > MAX_METADATA_BYTES:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        result = ask(of, buffer, ctypes.byref(size))
    if result != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(result)
    return buffer.raw[: size.value]


def compatibilities(questions: object, change: Callable[[Callable[[], Answers]], Answers]) -> Answers:
    """To each of the questions that a controller asks. ``change``: opens the driver for a call.

    :raises InvalidInput: ``agent.request_invalid``: it is none; :raises Fatal: ``host.failed``: no driver answers
    :raises Unknown: ``gpu.mig_hung``"""
    pairs = [tuple(map(_bytes, question)) for question in _questions(questions)]
    try:
        return change(lambda: tuple(_compatibility(vgpu, gpu) for vgpu, gpu in pairs))
    except pynvml.NVMLError as error:
        raise Fatal(
            "host.failed", "the NVIDIA driver does not answer", hint="nvidia-smi on the host", details=str(error)
        ) from error


def _questions(questions: object) -> Sequence[VgpuQuestion]:
    if not isinstance(questions, list) or not 0 < len(questions) <= MAX_QUESTIONS:
        raise InvalidInput("agent.request_invalid", f"1 to {MAX_QUESTIONS} pairs of a vGPU and a GPU can be asked of")
    if not all(
        isinstance(pair, list) and len(pair) == 2 and all(isinstance(text, str) for text in pair) for pair in questions
    ):
        raise InvalidInput("agent.request_invalid", "a pair is the metadata of a vGPU and of a GPU")
    return [VgpuQuestion(*pair) for pair in questions]


def _bytes(text: str) -> bytes:
    try:
        metadata = base64.b64decode(text, validate=True)
    except ValueError:
        metadata = b""
    if not 0 < len(metadata) <= MAX_METADATA_BYTES:
        raise InvalidInput("agent.request_invalid", f"metadata are 1 to {MAX_METADATA_BYTES} bytes in base64")
    return metadata


def _compatibility(vgpu: bytes, gpu: bytes) -> Compatibility | None:
    """Metadata that the driver cannot read, as of another version, are of a vGPU that it cannot take."""
    both = _laid_out(pynvml.c_nvmlVgpuMetadata_t, vgpu), _laid_out(pynvml.c_nvmlVgpuPgpuMetadata_t, gpu)
    try:
        answer = pynvml.nvmlGetVgpuCompatibility(*both)
    except pynvml.NVMLError as error:
        return None if error.value in _NO_CALL else _OTHER
    return Compatibility(states=int(answer.vgpuVmCompatibility), limits=int(answer.compatibilityLimitCode))


def _laid_out(kind: Any, metadata: bytes) -> Any:
    """In memory of ours behind which as much again is zero: the driver believes the size that is written in it.

    :raises InvalidInput: ``agent.request_invalid``: that size is not the rest of it"""
    known = kind.from_buffer(ctypes.create_string_buffer(metadata, 2 * MAX_METADATA_BYTES))
    if known.opaqueDataSize > max(0, len(metadata) - kind.opaqueData.offset):
        raise InvalidInput("agent.request_invalid", "metadata that say of themselves to be longer than they are")
    return known
