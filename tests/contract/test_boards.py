# SPDX-License-Identifier: Apache-2.0
"""Shipped boards and rules, by a real Prometheus that finds and scrapes a real server over TLS: every question of every
board has an answer. Grafana itself is nowhere here: what it makes of the files is not tried."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.catalogue.metric_names import metric_name
from orchestrator.cli.commands.metrics import RULES
from orchestrator.client.client import Client
from orchestrator.core.readings.quantities import BY_NAME
from orchestrator.observability.boards import boards
from tests.fakes.certificate import OverTls, over_tls
from tests.fakes.prometheus import BOARD_QUERIES, Prometheus
from tests.fakes.prometheus import prometheus as started
from tests.fakes.running import client_of, running_server
from tests.fakes.simulated import wish

ROOT = Path(__file__).parents[2]
FLEET = """\
groups:
  - {name: t4, count: 2, gpu_model: Tesla T4, gpus_per_host: 1, vcpus: 32, memory_gib: 64}
  - {name: a100, count: 1, gpu_model: A100-SXM4-80GB, gpus_per_host: 2, modes_allowed: [mig], vcpus: 32, memory_gib: 99}
  - {name: h100, count: 1, gpu_model: H100-SXM5-80GB, gpus_per_host: 8, baseboard: HGX H100, vcpus: 32, memory_gib: 99}
"""
"""Two T4 of which one gets a vGPU, so that there are free GPUs in use and empty ones; GPU instances; a fabric."""
LIMIT_S = 120.0


def until(reached: Any, what: str) -> None:
    """A scrape that comes later than in two seconds, on a busy machine, is none: it is said of the next one."""
    deadline = time.monotonic() + LIMIT_S
    while not reached():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.5)


def prepare(client: Client) -> None:
    """A VM with a vGPU and one with a GPU instance, a quota that is held in part."""
    client.create_tenant("research")
    client.change_quota("research", {"vcpus": 16})
    for name, profile in (("drawn", "GRID T4-4Q"), ("sliced", "a100-sxm-80-1-10c")):
        client.wait(client.create_vm(wish(name, profile, tenant="research")))


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    directory = tmp_path_factory.mktemp("boards")
    tls = over_tls(directory)
    (directory / "fleet.yaml").write_text(FLEET)
    state = directory / "state"
    state.mkdir(mode=0o700)
    (state / "config.yaml").write_text("refresh_seconds: 1.0\n")
    words = ("--simulate", str(directory / "fleet.yaml"), *tls.words)
    with running_server(state, *words, module="orchestrator.server.serve"), client_of(state) as client:
        prepare(client)
        token = client.create_token({"tenant": "*", "role": "read-only"})["token"]
        with scraping(directory, tls, token) as made:
            yield made


@contextmanager
def scraping(directory: Path, tls: OverTls, token: str) -> Iterator[Prometheus]:
    with started(directory, tls, token) as made:

        def answers() -> bool:
            assert made.process.poll() is None, (directory / "prometheus.log").read_text()[-2000:]
            try:
                return bool(made.ask("count(rate(vgpuctl_vgpu_licensed[1m])) > 0"))
            except OSError:
                return False

        until(answers, "a scrape of a VM's vGPU")
        until(lambda: made.ask("vgpuctl_vgpu_licensed == 1"), "the guest's licence")
        until(lambda: made.ask("rate(vgpuctl_http_request_seconds_count[5m])"), "two scrapes of the server")
        until(lambda: made.ask("vgpuctl:gpus_fragmented_ratio and on () vgpuctl:clock_limited_ratio"), "the rules")
        yield made


def test_all_is_found_and_scraped(prometheus: Prometheus) -> None:
    def scraped() -> list[tuple[str, str, str]]:
        targets = prometheus.get("targets", state="active")["activeTargets"]
        return sorted((its["labels"]["job"], its["health"], its["lastError"]) for its in targets)

    until(lambda: scraped() == [("vgpuctl", "up", "")] + [("vgpuctl-hosts", "up", "")] * 4, "a scrape of all")


def test_every_question_of_a_board_has_an_answer(prometheus: Prometheus) -> None:
    """In one test: several would be shared out over workers, each of which would start a server and a Prometheus."""
    assert [panel for panel, asked in BOARD_QUERIES.items() if "$" in asked] == []
    for asked in BOARD_QUERIES.values():
        until(partial(prometheus.ask, asked), f"an answer to {asked}")


def test_what_may_be_chosen_on_a_board_is_there(prometheus: Prometheus) -> None:
    for name, board in boards().items():
        for variable in board["templating"]["list"][1:]:
            asked = re.fullmatch(r"label_values\((.*), (\w+)\)", re.sub(r"\$\w+", ".*", variable["query"]["query"]))
            assert asked is not None, (name, variable)
            choices = f'count by ({asked[2]}) ({asked[1]}{{{asked[2]}!=""}})'.replace("}{", ",")
            until(partial(prometheus.ask, choices), f"an answer to {choices}")


def test_what_rules_ask_for_is_there(prometheus: Prometheus) -> None:
    """But for findings: nothing differs there."""
    rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    asked = {name for rule in rules for name in re.findall(r"\bvgpuctl[a-z_:]+", rule["query"])} - {"vgpuctl_findings"}
    assert len(asked) > 25
    for name in sorted(asked):
        until(partial(prometheus.ask, name), f"a value of {name}")


def test_every_rule_is_evaluated_and_a_new_site_lacks_nothing_but_a_backup(prometheus: Prometheus) -> None:
    def is_well() -> bool:
        rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
        assert {(rule["health"], rule.get("lastError", "")) for rule in rules} == {("ok", "")}
        pending = {rule["name"] for rule in rules if rule["type"] == "alerting" and rule["alerts"]}
        return pending - {"CertificateEnds", "VgpuLicenceMissing"} == {"BackupOld"}  # ends soon; has just begun

    until(is_well, "that BackupOld is all")


def test_boards_ask_for_metrics_that_there_are_and_are_whole() -> None:
    reference = (ROOT / "docs/reference/metrics.md").read_text()
    recorded = {
        rule["record"]
        for group in yaml.safe_load(RULES.read_text())["groups"]
        for rule in group["rules"]
        if "record" in rule
    }
    known = {metric_name(name) for name in BY_NAME} | set(re.findall(r"`(vgpuctl_[a-z_]+[a-z])", reference)) | recorded
    known |= {"vgpuctl_http_request_seconds_count", "vgpuctl_http_request_seconds_bucket"}
    for name, board in boards().items():
        panels = board["panels"]
        asked = {
            word
            for panel in panels
            for target in panel["targets"]
            for word in re.findall(r"\b(?:vgpuctl|libvirt)[a-z_:]+", target["expr"])
        }
        assert asked - known == set(), name
        assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
        places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels]
        assert len(set(places)) == len(places)
