# SPDX-License-Identifier: Apache-2.0
"""What the driver of a host in memory says of vGPUs and GPUs, and of both: it goes by drivers and boards."""

from __future__ import annotations

import base64
import json
from functools import lru_cache
from typing import Final

from orchestrator.core.gpu.vgpu_metadata import Compatibility, VgpuQuestion

_COLD, _ALL = 1, 15
_HOST_DRIVER, _GPU = 1, 4
_UNLIKE: Final = Compatibility(0, _GPU)


@lru_cache
def metadata(driver: str, board: str) -> str:
    """Of a GPU, and of a vGPU on it."""
    return base64.b64encode(json.dumps([driver, board]).encode()).decode()


def compatibility(question: VgpuQuestion) -> Compatibility:
    """Drivers of one branch take each other's vGPUs, on boards of one kind."""
    (from_driver, from_board), (to_driver, to_board) = (json.loads(base64.b64decode(text)) for text in question)
    if from_board != to_board:
        return _UNLIKE
    alike = from_driver.partition(".")[0] == to_driver.partition(".")[0]
    return Compatibility(_ALL, 0) if alike else Compatibility(_COLD, _HOST_DRIVER)
