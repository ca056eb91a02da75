# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from orchestrator.client.autostart import connect
from tests.fakes.running import running_server
from tests.fakes.typed import Cli

FILE = """\
schema_version: 1
offerings:
  - name: m10-shared
    description: named by the site
    kind: time_sliced
    vgpu_type: GRID M10-1Q
    gpu_models: [Tesla M10]
    hosts: {tier: gold, rack: "3"}
    migratable: true
  - name: newer
    kind: time_sliced
    vgpu_type: NVIDIA Z9-1Q
    unlisted: true
    scheduler: {policy: equal_share, time_slice_ms: 2}
"""


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_server(tmp_path_factory.mktemp("state")) as directory:
        yield directory


def test_the_offerings_of_a_file_are_added_and_taken_away_again(cli: Cli, state: Path, tmp_path: Path) -> None:
    file = tmp_path / "site.yaml"
    file.write_text(FILE)
    added = cli("profile", "add", str(file))
    assert (added.code, added.out) == (0, "m10-shared: GRID M10-1Q\nnewer: NVIDIA Z9-1Q\n")
    assert cli("profile", "add", str(file)).code == 0
    kept = connect(state).call("GET", "/v1/offerings")
    assert [(one["name"], one["gpu_models"], one["scheduler"]) for one in kept] == [
        ("m10-shared", ["Tesla M10"], None), ("newer", [], {"policy": "equal_share", "time_slice_ms": 2}),
    ]  # fmt: skip
    assert [one["hosts"] for one in kept] == [{"rack": "3", "tier": "gold"}, {}]
    exported = yaml.safe_load(cli("export").out)
    assert [one.get("hosts") for one in exported["offerings"]] == [{"rack": "3", "tier": "gold"}, None]
    for name in ("m10-shared", "newer"):
        removed = cli("profile", "remove", name, "-o", "json")
        assert (removed.code, json.loads(removed.out)) == (0, {"name": name, "removed": True})
    gone = cli("profile", "remove", "newer")
    assert (gone.code, "offering.unknown" in gone.err) == (4, True)


def test_a_file_with_a_mistake_adds_nothing(cli: Cli, state: Path, tmp_path: Path) -> None:
    file = tmp_path / "site.yaml"
    file.write_text(FILE.replace("    unlisted: true\n", ""))
    refused = cli("profile", "add", str(file))
    assert refused.code == 2
    assert "site.yaml:12: newer: vgpu_type 'NVIDIA Z9-1Q' is in no table" in refused.err
    assert connect(state).call("GET", "/v1/offerings") == []


def test_an_offering_that_cannot_be_added_is_refused_in_one_line(cli: Cli, state: Path, tmp_path: Path) -> None:
    file = tmp_path / "site.yaml"
    file.write_text(FILE.replace("m10-shared", "t4-2q"))
    refused = cli("profile", "add", str(file))
    assert (refused.code, "the name is taken: t4-2q comes with vgpuctl" in refused.err) == (5, True)
