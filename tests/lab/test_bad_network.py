# SPDX-License-Identifier: Apache-2.0
"""VMs are made and deleted on a host whose network loses, delays, repeats and reorders packets, and then loses all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.lab.bad_network import BAD, GOOD, SILENT, bad_network
from tests.lab.enrolled import VENDOR_VFIO, Enrolled, enrol_alone
from tests.lab.host_facts import facts, owners, vgpu_count

pytestmark = [pytest.mark.lab, pytest.mark.soak]

SILENCE_S = 30
_KIND = replace(VENDOR_VFIO, smallest=True)


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enrolled]:
    with enrol_alone(_KIND, tmp_path_factory.mktemp("state")) as one:
        yield one


def _until(holds: Callable[[], bool], what: str, limit_s: float = 300) -> None:
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(1)


def _host_is(enrolled: Enrolled, state: str) -> bool:
    return str(enrolled.product.json("host", "show", enrolled.name)["state"]) == state


@pytest.mark.fault("F106")
@pytest.mark.fault("F107")
def test_on_a_network_that_loses_delays_and_repeats_nothing_is_lost_or_made_twice(enrolled: Enrolled) -> None:
    product = enrolled.product
    product.ok(*enrolled.request("stays"))
    product.ok(*enrolled.request("goes", "--no-start"))
    stays, process = product.json("show-vm", "stays")["id"], enrolled.running_since("stays")
    with bad_network(enrolled.host) as network:
        network.become(BAD)
        making, going = product.start(*enrolled.request("made")), product.start("delete-vm", "goes")
        for one in (making, going):
            out, err = one.communicate(timeout=600)
            assert one.returncode == 0, out + err
        assert network.dropped() > 0

        making, going = product.start(*enrolled.request("late")), product.start("delete-vm", "made")
        network.become(SILENT)
        _until(lambda: _host_is(enrolled, "unreachable"), "the silence was not noticed")
        assert product.json("show-vm", "stays")["unknown_since"]
        network.run(f"sleep {SILENCE_S}")
        network.become(BAD)
        for one in (making, going):
            out, err = one.communicate(timeout=600)
            assert one.returncode == 0, out + err
        network.become(GOOD)
    _until(lambda: _host_is(enrolled, "ready"), "the end of the silence was not noticed")
    _until(lambda: product.run("doctor", "-o", "json").json() == [], "something is not as it should be")
    assert {vm["name"]: vm["state"] for vm in product.json("list-vms")} == {"late": "running", "stays": "running"}
    late = product.json("show-vm", "late")["id"]
    assert sorted(facts(enrolled.shell)["domains"]) == sorted([stays, late])
    assert owners(enrolled.shell) == {stays, late}
    assert vgpu_count(enrolled.shell) == 2
    assert enrolled.running_since("stays") == process
    assert {one["state"] for one in product.json("operation", "list")} == {"done"}
