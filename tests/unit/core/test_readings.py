# SPDX-License-Identifier: Apache-2.0
"""Quantities follow OpenMetrics, and a frame is believed only as far as the table of quantities goes."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import Unknown
from orchestrator.core.readings.frame import (
    MAX_FRAME_NUMBERS,
    MAX_SUBJECTS,
    HostFrame,
    Reading,
    arranged,
    frame_from_dict,
    frame_to_dict,
)
from orchestrator.core.readings.quantities import BY_NAME, QUANTITIES
from orchestrator.core.readings.tunnels import MAX_TUNNELS, Tunnel, nearest, slowness, tunnel_of, tunnel_to_dict

GPU = "GPU-11111111-2222-3333-4444-555555555555"
VM = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
BASE_UNITS = re.compile(r".*_(ratio|bytes|celsius|watts|joules|hertz|seconds)(_total)?$")
WRONG_UNITS = re.compile(r".*_(percent|mib|mb|milliwatts|mhz|ms|ns|fahrenheit)(_|$)")


def some_labels(name: str) -> list[str]:
    values = BY_NAME[name].values
    if isinstance(values, re.Pattern):
        return ["7", "31", "vda"]
    return sorted(values) or [""]


GPU_KEYS = [
    (q.name, label) for q in QUANTITIES if q.subject == "gpu" for label in some_labels(q.name) if q.has_label(label)
]
keys = st.sampled_from(GPU_KEYS)
numbers = st.dictionaries(keys, st.floats(allow_nan=False, allow_infinity=False), max_size=20)


def frame(*readings: Reading) -> HostFrame:
    return HostFrame(1_800_000_000.0, readings)


def sent(of: HostFrame) -> object:
    return json.loads(json.dumps(frame_to_dict(of)))


def test_names_of_quantities_are_unique_and_in_base_units() -> None:
    assert len(BY_NAME) == len(QUANTITIES)
    for quantity in QUANTITIES:
        assert re.fullmatch("[a-z][a-z0-9_]*", quantity.name)
        assert not WRONG_UNITS.match(quantity.name), quantity.name
        assert bool(quantity.label) == bool(quantity.values), quantity.name
        assert not quantity.help.endswith("."), quantity.name
        assert (quantity.kind == "counter") == quantity.name.endswith("_total"), quantity.name


@given(numbers=numbers)
def test_a_frame_arrives_as_it_was_sent(numbers: dict[tuple[str, str], float]) -> None:
    whole = frame(
        Reading("gpu", GPU, *arranged(numbers), facts={"driver_version": "580.95.05"}),
        Reading("vgpu", VM, *arranged({("vgpu_licensed", ""): 1.0}), gpu=GPU, vm=VM),
        Reading("gpu", "GPU-2", *arranged({}), silent="passed through", vm=VM),
    )
    arrived = frame_from_dict(sent(whole))
    assert [dict(zip(subject.keys, subject.numbers, strict=True)) for subject in arrived.readings] == [
        dict(zip(subject.keys, subject.numbers, strict=True)) for subject in whole.readings
    ]
    assert [(s.kind, s.id, s.gpu, s.vm, s.facts, s.silent) for s in arrived.readings] == [
        (s.kind, s.id, s.gpu, s.vm, s.facts, s.silent) for s in whole.readings
    ]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_not_sent(number: float) -> None:
    subject = Reading("gpu", GPU, *arranged({("gpu_power_watts", ""): number, ("gpu_vgpus", ""): 2.0}))
    assert (subject.get("gpu_power_watts"), subject.get("gpu_vgpus")) == (None, 2.0)


TUNNELS = (
    Tunnel(address="192.0.2.2", sent=3, lost=1, min_s=0.0002, avg_s=0.0003),
    Tunnel(address="fd00::2", sent=3, lost=3, min_s=None, avg_s=None),
)


def test_tunnels_arrive_as_they_were_sent_and_no_others() -> None:
    whole = replace(frame(), tunnels=TUNNELS)
    assert frame_from_dict(sent(whole)) == whole
    good = tunnel_to_dict(TUNNELS[0])
    bad: list[dict[str, object]] = [
        {"address": "192.0.2.2\n"}, {"address": "fe80::1%\u202e"}, {"lost": 4}, {"sent": 0, "lost": 0}, {"sent": True},
        {"min_s": -1.0}, {"min_s": math.nan}, {"avg_s": 10**400}, {"avg_s": "x"}, {"avg_s": []},
    ]  # fmt: skip
    lists = [[good | each] for each in bad]
    for listed in (*lists, [good, good], [{}], [1], {}, [{**good, "address": f"192.0.2.{n}"} for n in range(6)]):
        with pytest.raises(Unknown):
            frame_from_dict({"taken_at": 1.0, "readings": [], "tunnels": listed})


def test_each_host_measures_the_next_after_it_and_is_measured_by_as_many() -> None:
    hosts = [f"192.0.2.{number}" for number in range(2, 22)]
    measured = [other for own in hosts for other in nearest(own, (each for each in hosts if each != own))]
    assert {measured.count(host) for host in hosts} == {MAX_TUNNELS}
    assert nearest("192.0.2.9", ["192.0.2.10", "192.0.2.8", "flow", "fe80::1%x", "192.0.2.10"]) == (
        "192.0.2.10", "192.0.2.8",
    )  # fmt: skip
    assert nearest("", ["fd00::2", "192.0.2.8"]) == ("192.0.2.8", "fd00::2")


def test_trouble_of_a_tunnel_must_stay() -> None:
    lossy, silent = TUNNELS
    fast, slow = (tunnel_of("192.0.2.2", 3, [least, 0.3, 0.3]) for least in (0.002, 0.07))  # the host itself was busy
    assert [slowness(pair) for pair in ((fast, slow), (fast, lossy), (silent, silent), (fast, silent))] == [None] * 4
    assert [slowness((slow, slow)), slowness((lossy, silent))] == [
        "more than 50 ms there and back", "packets are lost",
    ]  # fmt: skip


def test_names_that_were_sent_before_let_nothing_through() -> None:
    """They are judged once; their numbers are judged each time."""

    def sent(number: object, sensor: object = 61.0) -> Any:
        numbers = {"gpu_power_watts": number, "gpu_temperature_celsius": {"gpu": sensor}}
        return {"taken_at": 1.0, "readings": [{"kind": "gpu", "id": "GPU-1", "numbers": numbers}]}

    for _ in range(2):
        (reading,) = frame_from_dict(sent(48)).readings
        assert dict(zip(reading.keys, reading.numbers, strict=True)) == {
            ("gpu_power_watts", ""): 48.0, ("gpu_temperature_celsius", "gpu"): 61.0,
        }  # fmt: skip
    for number in (math.nan, math.inf, -1e30):
        (reading,) = frame_from_dict(sent(number)).readings
        assert (reading.keys, list(reading.numbers)) == ((("gpu_temperature_celsius", "gpu"),), [61.0])
    for bad in (True, "48", None, [1.0], 10**400):
        for data in (sent(bad), sent(48.0, bad)):
            with pytest.raises(Unknown):
                frame_from_dict(data)
    other = sent(48.0)
    other["readings"][0]["kind"] = "vgpu"
    assert frame_from_dict(other).readings[0].keys == ()


def test_quantities_labels_and_facts_that_are_not_known_are_left_out() -> None:
    data = {
        "taken_at": 1.0,
        "readings": [
            {
                "kind": "gpu", "id": GPU, "facts": {"driver_version": "1\n2", "of_tomorrow": "x"},
                "numbers": {
                    "gpu_of_tomorrow": 1, "vm_vcpus": 4, "gpu_power_watts": {"a": 1}, "gpu_temperature_celsius": 3,
                    "gpu_xid_total": {"79": 1, "079": 1, "7\n9": 1}, "gpu_utilization_ratio": 0.5,
                },
            }
        ],
    }  # fmt: skip
    (subject,) = frame_from_dict(data).readings
    assert subject.keys == (("gpu_xid_total", "79"), ("gpu_utilization_ratio", ""))
    assert subject.facts == {"driver_version": "1 2"}


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"taken_at": True, "readings": []},
        {"taken_at": 1.0},
        {"taken_at": math.inf, "readings": []},
        {"taken_at": math.nan, "readings": []},
        {"taken_at": 10**400, "readings": []},
        {"taken_at": 1.0, "readings": [{"kind": "gpu", "id": GPU, "numbers": {"gpu_power_watts": -(10**400)}}]},
        {"taken_at": 1.0, "readings": [{}] * (MAX_SUBJECTS + 1)},
        {"taken_at": 1.0, "readings": [7]},
        {"taken_at": 1.0, "readings": [{"kind": "host", "id": GPU}]},
        {"taken_at": 1.0, "readings": [{"kind": "gpu", "id": 'x"} 1\n'}]},
        {"taken_at": 1.0, "readings": [{"kind": "gpu", "id": "a" * 100}]},
        {"taken_at": 1.0, "readings": [{"kind": "gpu", "id": GPU}, {"kind": "gpu", "id": GPU}]},
        {"taken_at": 1.0, "readings": [{"kind": "vgpu", "id": VM, "gpu": 3}]},
        {"taken_at": 1.0, "readings": [{"kind": "gpu", "id": GPU, "numbers": {"gpu_power_watts": "7"}}]},
        {"taken_at": 1.0, "readings": [{"kind": "gpu", "id": GPU, "numbers": {"gpu_power_watts": True}}]},
        {"taken_at": 1.0, "readings": [{"kind": "gpu", "id": GPU, "numbers": {"x": {"y": None}}}]},
        {"taken_at": 1.0, "readings": [{"kind": "gpu", "id": GPU, "numbers": {str(n): n for n in range(301)}}]},
        {"taken_at": 1.0, "readings": [], "problems": 3},
        {
            "taken_at": 1.0,
            "readings": [
                {"kind": "vm", "id": str(vm), "numbers": {"vm_disk_reads_total": {f"vd{n}": 1 for n in range(300)}}}
                for vm in range(MAX_FRAME_NUMBERS // 300 + 1)
            ],
        },
    ],
)
def test_what_is_no_frame_is_refused(data: object) -> None:
    with pytest.raises(Unknown) as refused:
        frame_from_dict(data)
    assert refused.value.code == "agent.answer_invalid"
