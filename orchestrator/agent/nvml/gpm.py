# SPDX-License-Identifier: Apache-2.0
"""GPM: how busy the engines of a GPU, or of one of its GPU instances, were between two samples (nvml.h, nvmlGpm*).

Both samples are taken while NVML is open once, and freed before it is closed: nothing says that they outlive that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import pynvml

APART_S: Final = 0.1
"""At least, between two samples (nvml.h, nvmlGpmSampleGet)."""
_METRICS: Final[Mapping[int, str]] = {
    pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL: "engine_active_ratio",
    pynvml.NVML_GPM_METRIC_SM_UTIL: "sm_active_ratio",
    pynvml.NVML_GPM_METRIC_SM_OCCUPANCY: "sm_occupancy_ratio",
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: "tensor_active_ratio",
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: "dram_active_ratio",
}


class GpmProbe:
    """Of one subject: ``take`` fills a sample of it now."""

    def __init__(self, take: Callable[[Any], object]) -> None:
        """:raises pynvml.NVMLError: it has none"""
        self._take = take
        self._samples = [pynvml.nvmlGpmSampleAlloc()]
        try:
            take(self._samples[0])
        except pynvml.NVMLError:
            self._free()
            raise

    def finish(self) -> dict[str, float]:
        """Ratios by the end of their quantity's name, since the beginning; what the driver does not tell is not in it.

        :raises pynvml.NVMLError: it has gone"""
        try:
            self._samples.append(pynvml.nvmlGpmSampleAlloc())
            self._take(self._samples[1])
            return _between(*self._samples)
        finally:
            self._free()

    def _free(self) -> None:
        for sample in self._samples:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlGpmSampleFree(sample)
        self._samples = []


def _between(first: Any, second: Any) -> dict[str, float]:
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version, request.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(_METRICS)
    request.sample1, request.sample2 = first, second
    for number, metric in enumerate(_METRICS):
        request.metrics[number].metricId = metric
    pynvml.nvmlGpmMetricsGet(request)
    answers = [request.metrics[number] for number in range(len(_METRICS))]
    return {_METRICS[answer.metricId]: answer.value / 100 for answer in answers if answer.nvmlReturn == 0}
