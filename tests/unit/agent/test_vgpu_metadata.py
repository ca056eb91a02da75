# SPDX-License-Identifier: Apache-2.0
"""What the agent takes for a question of a controller, and for an answer of the driver."""

from __future__ import annotations

import base64
from typing import Any

import pynvml
import pytest

from orchestrator.agent.nvml.reading import Nvml
from orchestrator.agent.nvml.vgpu_metadata import compatibilities, gpu_metadata
from orchestrator.core.errors import Fatal, InvalidInput
from orchestrator.core.gpu.vgpu_metadata import MAX_METADATA_BYTES, MAX_QUESTIONS


def no_call(_function: object) -> Any:
    raise AssertionError("the driver was asked")


def text(of: bytes) -> str:
    return base64.b64encode(of).decode()


_GOOD = text(bytes(300))
_LONGER = bytearray(300)
_LONGER[pynvml.c_nvmlVgpuPgpuMetadata_t.opaqueDataSize.offset] = 255


@pytest.mark.parametrize(
    "asked",
    [
        None, [], {}, "x", [[_GOOD, _GOOD]] * (MAX_QUESTIONS + 1), [[_GOOD]], [[_GOOD, 7]], [_GOOD], [["", _GOOD]],
        [["no base64!", _GOOD]], [["ä", _GOOD]], [[text(bytes(MAX_METADATA_BYTES + 1)), _GOOD]],
    ],
)  # fmt: skip
def test_a_question_that_is_none_never_comes_to_the_driver(asked: object) -> None:
    with pytest.raises(InvalidInput, match=r"pair|metadata"):
        compatibilities(asked, no_call)


def test_metadata_that_are_shorter_than_they_say_never_come_to_the_driver() -> None:
    with pytest.raises(InvalidInput, match="longer than they are"):
        compatibilities([[_GOOD, text(bytes(_LONGER))]], lambda call: call())


def test_a_host_without_a_driver_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", absent)
    with pytest.raises(Fatal, match="does not answer"):
        compatibilities([[_GOOD, _GOOD]], Nvml().change)


@pytest.mark.parametrize("wanted", [MAX_METADATA_BYTES + 1, 2**32 - 1])
def test_a_driver_that_has_more_to_say_is_as_one_that_says_nothing(
    monkeypatch: pytest.MonkeyPatch, wanted: int
) -> None:
    calls: list[int] = []

    class Driver:
        def nvmlErrorString(self, _result: int) -> bytes:  # noqa: N802 - as in NVML
            return b"Error"

        def nvmlDeviceGetVgpuMetadata(self, _device: object, _buffer: object, size: Any) -> int:  # noqa: N802 - as in NVML
            calls.append(size._obj.value)
            size._obj.value = wanted
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)

    monkeypatch.setattr(pynvml, "nvmlLib", Driver())
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    with pytest.raises(pynvml.NVMLError_NotSupported):
        gpu_metadata(None)
    assert calls == [0]
