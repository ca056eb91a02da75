# SPDX-License-Identifier: Apache-2.0
"""Sends metrics and events over OTLP/HTTP, by the exporters of OpenTelemetry's SDK: they encode, compress, and repeat
for :data:`LIMIT_S`.

Slow to import: only a server that has a collector does. Proxies and ``.netrc`` of the environment are not used, and no
redirect is followed, as headers may hold a secret.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import requests
from google.protobuf.message import DecodeError
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExportResult
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from requests.adapters import HTTPAdapter

from orchestrator.adapters.whole_answer import WholeAnswer
from orchestrator.core.errors import one_line
from orchestrator.ports.telemetry import Attributes, EventLine, MetricSeries, NotTaken

LIMIT_S: Final = 10.0
"""For one request with those that repeat it."""
_REFUSED: Final = frozenset({400, 413, 422})
"""Answers of a collector that will never take this (OTLP: bad data is not sent again)."""
_SCOPE: Final = InstrumentationScope("vgpuctl")
_MAX_ANSWER: Final = 65_536
_MAX_WHY: Final = 160
_SEVERITIES: Final = {"info": SeverityNumber.INFO, "warning": SeverityNumber.WARN, "error": SeverityNumber.ERROR}


class OtlpExporter:
    """See :class:`orchestrator.ports.telemetry.Telemetry`. For one thread."""

    def __init__(self, endpoint: str, headers: Mapping[str, str], ca_file: Path | None) -> None:
        """``endpoint``: without ``/v1/metrics`` and ``/v1/logs``. ``ca_file``: None: whom this machine trusts."""
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it tells each attempt; the caller tells once
        self._session = _Session()
        base, known = endpoint.rstrip("/"), ssl.get_default_verify_paths()
        trust = str(ca_file) if ca_file is not None else known.cafile or known.capath
        self._metrics = OTLPMetricExporter(
            f"{base}/v1/metrics", certificate_file=trust, headers=headers, timeout=LIMIT_S,
            compression=Compression.Gzip, session=self._session,
        )  # fmt: skip
        self._logs = OTLPLogExporter(
            f"{base}/v1/logs", certificate_file=trust, headers=headers, timeout=LIMIT_S,
            compression=Compression.Gzip, session=self._session,
        )  # fmt: skip

    def metrics(self, source: Attributes, series: Sequence[MetricSeries], at: float) -> NotTaken | None:
        metrics = [_metric(of_name, int(at * 1e9)) for of_name in series]
        of_scope = ScopeMetrics(scope=_SCOPE, metrics=metrics, schema_url="")
        of_source = ResourceMetrics(resource=Resource(source), scope_metrics=[of_scope], schema_url="")
        sent = self._metrics.export(MetricsData(resource_metrics=[of_source]))
        return self._session.not_taken(all_sent=sent is MetricExportResult.SUCCESS)

    def events(self, source: Attributes, lines: Sequence[EventLine]) -> NotTaken | None:
        resource = Resource(source)
        sent = self._logs.export([ReadableLogRecord(_record(line), resource, _SCOPE) for line in lines])
        return self._session.not_taken(all_sent=sent is LogRecordExportResult.SUCCESS)

    def close(self) -> None:
        stops: tuple[Callable[[], None], ...] = (self._metrics.shutdown, self._logs.shutdown)
        for stop in stops:
            stop()


class _Session(requests.Session):
    """Notes what the last request was answered, which exporters do not tell."""

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False
        for scheme in ("http://", "https://"):
            self.mount(scheme, _Adapter())
        self._why, self._status, self._body = "", 0, b""

    def request(self, *words: Any, **named: Any) -> requests.Response:
        self._why, self._status, self._body = "", 0, b""
        try:
            answer = super().request(*words, **{**named, "stream": True})
        except requests.RequestException as error:
            self._why = f"{type(error).__name__}: {str(error)[-_MAX_WHY:]}"  # what caused it stands last
            raise
        with answer, suppress(requests.RequestException):  # its status counts, whatever breaks off afterwards
            self._body = next(answer.iter_content(_MAX_ANSWER), b"")  # more would only fill memory
        self._why, self._status = f"it answered with status {answer.status_code}", answer.status_code
        if 300 <= answer.status_code < 400:  # the exporters take it for success
            raise requests.TooManyRedirects(self._why)
        return answer

    def not_taken(self, *, all_sent: bool) -> NotTaken | None:
        """``all_sent``: what the exporter says; a collector may have refused a part of it."""
        if not all_sent:
            lasting = self._status in _REFUSED
            return NotTaken(why=self._why or "the request could not be made", extent="lasting" if lasting else "now")
        try:  # the answer to logs has the same fields under the same numbers
            part = ExportMetricsServiceResponse.FromString(self._body).partial_success
        except DecodeError:
            return None
        if part.rejected_data_points <= 0:
            return None
        why = f"it has refused {part.rejected_data_points} of a request: {one_line(part.error_message, _MAX_WHY)}"
        return NotTaken(why=why, extent="part")


class _Adapter(HTTPAdapter):
    """Whose answers end in time."""

    def get_connection_with_tls_context(self, *words: Any, **named: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*words, **named)
        made = pool.ConnectionCls
        if made.response_class is not WholeAnswer:
            pool.ConnectionCls = type(made.__name__, (made,), {"response_class": WholeAnswer})
        return pool


def _metric(series: MetricSeries, at_ns: int) -> Metric:
    points = [NumberDataPoint(attributes, 0, at_ns, float(number)) for attributes, number in series.points]
    total = AggregationTemporality.CUMULATIVE
    data = Sum(points, total, is_monotonic=True) if series.counter else Gauge(points)
    return Metric(name=series.name, description=series.help, unit=series.unit, data=data)


def _record(line: EventLine) -> LogRecord:
    at_ns = int(line.at * 1e9)
    return LogRecord(
        timestamp=at_ns, observed_timestamp=at_ns, severity_text=line.severity.upper(), body=line.text,
        severity_number=_SEVERITIES[line.severity], attributes=line.attributes, event_name=line.name,
    )  # fmt: skip
