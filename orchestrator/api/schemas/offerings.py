# SPDX-License-Identifier: Apache-2.0
"""Bodies about the offerings that a site adds. What is asked has the form of an offering file's entry."""

from __future__ import annotations

from pydantic import ConfigDict

from orchestrator.api.schemas.base import CopiedAnswer, LabelsByKey
from orchestrator.core.gpu.vgpu_parameters import Scheduler, VgpuParameters
from orchestrator.core.offerings.offering import Offering


class SchedulerAnswer(CopiedAnswer, copies=Scheduler, defaults=True):
    """How the GPU's time is divided. None leaves the driver's default."""


class ParametersAnswer(CopiedAnswer, copies=VgpuParameters, defaults=True):
    """Parameters of the vGPU plugin. None leaves the driver's default."""

    model_config = ConfigDict(title="VgpuParameters")


class OfferingAnswer(CopiedAnswer, copies=Offering, without={"origin"}):
    """An offering of the site."""

    hosts: LabelsByKey
    scheduler: SchedulerAnswer | None
    parameters: ParametersAnswer
