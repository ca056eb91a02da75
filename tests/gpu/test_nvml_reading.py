# SPDX-License-Identifier: Apache-2.0
"""Reads a real NVIDIA GPU through NVML, read-only: ``pytest -m gpu``. Prints what it saw, to be kept as a recording."""

from __future__ import annotations

import dataclasses
import json

import pytest

from orchestrator.agent.nvml.reading import Nvml

pytestmark = pytest.mark.gpu


def test_every_gpu_answers_with_its_identity_and_memory() -> None:
    reading = Nvml().read()
    print(json.dumps(dataclasses.asdict(reading), default=str, indent=2))
    assert reading.driver_version
    assert reading.gpus
    for address, gpu in reading.gpus.items():
        assert gpu.uuid is not None, address
        assert gpu.uuid.startswith("GPU-"), address
        assert gpu.memory_mib is not None, address
        assert gpu.memory_mib > 0, address
