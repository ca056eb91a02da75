# SPDX-License-Identifier: Apache-2.0
"""The pages for Prometheus as OpenTelemetry has metrics: hardware by the names of its semantic conventions, all else by
the pages' names. Whose they are is said once, of their source.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from orchestrator.catalogue.metric_names import HARDWARE_NAMES, metric_name
from orchestrator.core.readings.quantities import BY_NAME
from orchestrator.ports.telemetry import Attributes, MetricSeries

Families = Iterable[Metric]
_OF_SOURCE: Final = frozenset({"site", "host"})
_ATTRIBUTES: Final = {"gpu": "hw.id", "model": "hw.model"}
_UNITS: Final = {
    "bytes": "By", "celsius": "Cel", "hertz": "Hz", "joules": "J", "ratio": "1", "seconds": "s", "watts": "W",
}  # fmt: skip
_LABEL: Final = {metric_name(quantity): BY_NAME[quantity].label for quantity, _ in HARDWARE_NAMES}
"""By the page's name of a metric that is called otherwise: the label on which that depends."""
_RENAMED: Final = {(metric_name(quantity), label): new for (quantity, label), new in HARDWARE_NAMES.items()}


def series_of(families: Families) -> tuple[MetricSeries, ...]:
    """In the pages' order; what has no samples is left out."""
    series: dict[str, MetricSeries] = {}
    for family in families:
        unit = next((unit for word, unit in _UNITS.items() if word in family.name.split("_")[-2:]), "")
        for sample in family.samples:
            name, attributes = _named(sample)
            if name not in series:
                series[name] = MetricSeries(
                    name=name, help=family.documentation, unit=unit, counter=family.type == "counter", points=[]
                )
            series[name].points.append((attributes, sample.value))
    return tuple(series.values())


def _named(sample: Sample) -> tuple[str, Attributes]:
    label = _LABEL.get(sample.name, "")
    name, own = _RENAMED.get((sample.name, sample.labels.get(label, "")), ("", {}))
    left_out = _OF_SOURCE | {label} if name else _OF_SOURCE
    attributes = {_ATTRIBUTES.get(key, key): value for key, value in sample.labels.items() if key not in left_out}
    return (name, {**attributes, "hw.type": "gpu", **own}) if name else (sample.name, attributes)
