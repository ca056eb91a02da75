# SPDX-License-Identifier: Apache-2.0
"""A collector of OpenTelemetry on a loopback port, which reads requests by the protocol's own classes."""

from __future__ import annotations

import gzip
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

Attributes = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class TakenPoint:
    source: Attributes
    name: str
    unit: str
    counter: bool
    attributes: Attributes
    number: float
    at: float


@dataclass
class Collector:
    """``status``: that it answers with; ``path``: that it has a fault at, empty: at all. ``answers``: called before."""

    url: str = ""
    status: int = 200
    path: str = ""
    answers: Callable[[], object] = tuple
    body: bytes = b""
    """Of each answer."""
    headers: list[Mapping[str, str]] = field(default_factory=list)
    """Of each request, whatever it was answered."""
    points: list[TakenPoint] = field(default_factory=list)
    lines: list[LogRecord] = field(default_factory=list)

    def take(self, path: str, body: bytes) -> int:
        self.answers()
        if self.status != 200 and self.path in path:
            return self.status
        if path == "/v1/metrics":
            self.points += _points(ExportMetricsServiceRequest.FromString(body))
        elif path == "/v1/logs":
            sent = ExportLogsServiceRequest.FromString(body)
            self.lines += [line for of in sent.resource_logs for scope in of.scope_logs for line in scope.log_records]
        else:
            return 404
        return 200

    def named(self, name: str, **attributes: str) -> list[TakenPoint]:
        return [point for point in self.points if point.name == name and attributes.items() <= point.attributes.items()]

    def told(self) -> list[tuple[str, str]]:
        """Name and text of each event."""
        return [(line.event_name, line.body.string_value) for line in self.lines]


def attributes_of(pairs: Iterable[KeyValue]) -> Attributes:
    return {pair.key: pair.value.string_value for pair in pairs}


def _points(sent: ExportMetricsServiceRequest) -> Iterator[TakenPoint]:
    for of_source in sent.resource_metrics:
        source = attributes_of(of_source.resource.attributes)
        for metric in (metric for scope in of_source.scope_metrics for metric in scope.metrics):
            counter = metric.WhichOneof("data") == "sum"
            assert not counter or (metric.sum.is_monotonic and metric.sum.aggregation_temporality == 2)
            for point in metric.sum.data_points if counter else metric.gauge.data_points:
                yield TakenPoint(
                    source=source, name=metric.name, unit=metric.unit, counter=counter,
                    attributes=attributes_of(point.attributes), number=point.as_double, at=point.time_unix_nano / 1e9,
                )  # fmt: skip


@contextmanager
def otlp_collector(tls: tuple[Path, Path] | None = None) -> Iterator[Collector]:
    """``tls``: certificate and key."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            collector.headers.append(dict(self.headers.items()))
            body = self.rfile.read(int(self.headers["content-length"]))
            assert self.headers["content-encoding"] == "gzip"
            status = collector.take(self.path, gzip.decompress(body))
            self.send_response(status)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(collector.body)))
            self.end_headers()
            self.wfile.write(collector.body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    collector.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
