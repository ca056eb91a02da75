# SPDX-License-Identifier: Apache-2.0
"""Limits of a GPU's power: nvml.h, nvmlDeviceGetPowerManagementLimitConstraints, …DefaultLimit and …Limit, which is
what the driver was told. What is enforced may be lower, as boards have limits of their own: readings have that."""

from __future__ import annotations

from typing import Any

import pynvml

from orchestrator.agent.power_limits import PowerState


def power_state(device: Any) -> PowerState:
    """:raises pynvml.NVMLError: it has none that can be set"""
    least, most = pynvml.nvmlDeviceGetPowerManagementLimitConstraints(device)
    return PowerState(
        least=int(least),
        default=int(pynvml.nvmlDeviceGetPowerManagementDefaultLimit(device)),
        most=int(most),
        now=int(pynvml.nvmlDeviceGetPowerManagementLimit(device)),
    )


def power_watts(device: Any) -> dict[str, int]:
    """As a snapshot has them: whole watts within what the driver takes.

    :raises pynvml.NVMLError: it has none that can be set"""
    state = power_state(device)
    return {
        "power_min_watts": -(-state.least // 1000),
        "power_default_watts": state.default // 1000,
        "power_max_watts": state.most // 1000,
        "power_limit_watts": -(-state.now // 1000),
    }
