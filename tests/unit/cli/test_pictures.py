# SPDX-License-Identifier: Apache-2.0
"""Pictures that ``--svg`` writes: whole, without scripts, and every slot of every GPU in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli.advice.pictures import capacity_svg, gpu_map_svg, write_svg
from orchestrator.cli.main import run
from orchestrator.core.errors import InvalidInput

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert(1)</script>\x00\x1b[2J\u202e"
FLEET = """
groups:
- {count: 2, gpu_model: H100 SXM5 80GB, gpus_per_host: 2, vcpus: 64, memory_gib: 512, modes_allowed: [mig]}
"""
ROWS = """id,arrive_s,depart_s,profile,count,vcpus,memory_gib,tenant,priority
first,0,,3g.40gb,1,1,1,blue,0
second,1,,1g.10gb,1,1,1,green,0
third,2,,7g.80gb,1,1,1,green,0
"""

names = st.sampled_from(["a", "a-name-that-is-rather-long", 'ü & "quoted"', "\ud7ff", HOSTILE])


def cells(draw: st.DrawFn, slots: int) -> list[dict[str, object]]:
    made: list[dict[str, object]] = []
    at = 0
    while at < slots:
        size = draw(st.integers(1, slots - at))
        vm = draw(st.none() | names)
        made.append({"start": at, "size": size, "vm": vm, "tenant": vm and draw(names), "profile": draw(names)})
        at += size
    return made


@st.composite
def gpus(draw: st.DrawFn) -> dict[str, Any]:
    slots = draw(st.integers(0, 32))
    return {
        "host": draw(st.none() | names), "gpu": draw(names), "model": draw(names), "numa": None, "cut": "mig",
        "slots": slots, "free": draw(st.none() | st.integers(0, slots)), "unusable": draw(st.none() | names),
        "cells": cells(draw, slots),
    }  # fmt: skip


def drawn(picture: str) -> ElementTree.Element:
    """Nothing in it that a browser would run or fetch."""
    root = ElementTree.fromstring(picture)
    assert root.tag == f"{SVG}svg"
    assert {element.tag for element in root.iter()} <= {
        f"{SVG}{tag}" for tag in ("svg", "style", "rect", "title", "text")
    }
    names = {name for element in root.iter() for name in element.attrib}
    assert names <= {"viewBox", "width", "height", "role", "aria-label", "class", "x", "y", "rx"}
    return root


@given(rows=st.lists(gpus(), max_size=6))
def test_a_map_draws_every_run_of_slots_whatever_they_are_called(rows: list[dict[str, Any]]) -> None:
    root = drawn(gpu_map_svg(rows))
    titles = [title.text or "" for title in root.iter(f"{SVG}title")]
    whole_bars = [row for row in rows if row["unusable"] is not None or not row["slots"]]
    assert len(titles) == sum(len(row["cells"]) for row in rows) + len(whole_bars)
    width = int(root.attrib["width"])
    for bar in root.iter(f"{SVG}rect"):
        assert 0 <= int(bar.attrib.get("x", 0)) <= int(bar.attrib.get("x", 0)) + int(bar.attrib["width"]) <= width


def test_bars_of_capacity_are_as_long_as_there_are_places() -> None:
    rows = [{"profile": "big", "fits_now": 10}, {"profile": HOSTILE, "fits_now": 5}]
    none = {"profile": "none", "fits_now": 0, "reason": {"message": "no GPU is free"}}
    root = drawn(capacity_svg([*rows, none]))
    bars = {title.text: int(bar.attrib["width"]) for bar in root.iter(f"{SVG}rect") for title in bar}
    assert bars["10 more fit"] == pytest.approx(2 * bars["5 more fit"], abs=2)
    assert bars["no GPU is free"] == 1


def test_a_simulation_draws_its_fleet_after_the_last_request(tmp_path: Path) -> None:
    fleet, requests, picture = tmp_path / "fleet.yaml", tmp_path / "requests.csv", tmp_path / "fleet.svg"
    fleet.write_text(FLEET)
    requests.write_text(ROWS)
    words = ["simulate", "placement", "--fleet", str(fleet), "--requests", str(requests)]
    assert run([*words, "--out", str(tmp_path / "result.json"), "--svg", str(picture)]) == 0
    titles = [title.text or "" for title in drawn(picture.read_text()).iter(f"{SVG}title")]
    assert sorted(title.split()[0] for title in titles if "/" in title) == ["blue/first", "green/second", "green/third"]


def test_a_picture_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as refused:
        write_svg(tmp_path / "nowhere" / "map.svg", "<svg/>")
    assert refused.value.code == "svg.unwritable"
