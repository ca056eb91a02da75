# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus of Debian that finds and scrapes a server over TLS, as docs/reference/metrics.md says."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from orchestrator.cli.commands.metrics import RULES
from orchestrator.observability.boards import boards
from tests.fakes.certificate import OverTls
from tests.fakes.ports import own_port

BOARD_QUERIES: Final = {
    f"{name}: {panel['title']} {target['refId']}": re.sub(
        r"\$(host|gpu|tenant|name)", ".*", target["expr"].replace("$__rate_interval", "5m")
    )
    for name, board in boards().items()
    for panel in board["panels"]
    for target in panel["targets"]
}
"""What each panel of each board asks, of everything that can be chosen there."""


class Prometheus:
    """On a loopback port; scrapes every other second. Its log is ``prometheus.log`` in ``directory``."""

    def __init__(self, directory: Path, tls: OverTls, token: str) -> None:
        self.address = f"127.0.0.1:{own_port()}"
        (directory / "token").write_text(token)
        way = {
            "scheme": "https", "tls_config": {"ca_file": str(tls.certificate)},
            "authorization": {"type": "Bearer", "credentials_file": str(directory / "token")},
        }  # fmt: skip
        found = {key: value for key, value in way.items() if key != "scheme"}
        jobs = [
            {"job_name": "vgpuctl", "static_configs": [{"targets": [tls.listen]}], **way},
            {
                "job_name": "vgpuctl-hosts", **way,
                "http_sd_configs": [{"url": f"{tls.url}/v1/metrics/targets", "refresh_interval": "1s", **found}],
            },
        ]  # fmt: skip
        file = directory / "prometheus.yml"
        every = {"scrape_interval": "2s", "evaluation_interval": "1s"}
        file.write_text(yaml.safe_dump({"global": every, "rule_files": [str(RULES)], "scrape_configs": jobs}))
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={file}", f"--storage.tsdb.path={directory / 'series'}",
             f"--web.listen-address={self.address}"],
            stdout=subprocess.DEVNULL, stderr=(directory / "prometheus.log").open("wb"),
        )  # fmt: skip

    def get(self, path: str, **words: str) -> Any:
        query = urllib.parse.urlencode(words)
        with urllib.request.urlopen(f"http://{self.address}/api/v1/{path}?{query}", timeout=30) as answer:
            return json.load(answer)["data"]

    def ask(self, query: str) -> list[Any]:
        result: list[Any] = self.get("query", query=query)["result"]
        return result


@contextmanager
def prometheus(directory: Path, tls: OverTls, token: str) -> Iterator[Prometheus]:
    """Of this server; it is ended."""
    made = Prometheus(directory, tls, token)
    try:
        yield made
    finally:
        made.process.terminate()
        made.process.wait(timeout=30)
