# SPDX-License-Identifier: Apache-2.0
"""Whatever an agent answers is a snapshot, or an error of the host: nothing else ever comes out of the link."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator.core.actions.backups import FindRepositories, RemoveBackup
from orchestrator.core.actions.host_actions import FencingToken
from orchestrator.core.errors import Denied, Unknown, VgpuctlError
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.core.protocol import PROTOCOL_VERSION
from orchestrator.core.wire import snapshot_to_dict
from tests.fakes.fake_machine import FakeMachine, l40s, snapshot_of, t4
from tests.hostile.answers import errors, snapshots, whole
from tests.hostile.bad_agent import HELLO, Answer, BadAgentLink, answering, framed, refusing

HOST = Host(
    name="bad", address="bad.test", port=22, provisioning_user="root", host_key="ssh-ed25519 AAAA", state="ready",
    state_reason=None, cordoned=False, machine_id=None, epoch=1, managed_gpus=(), last_seen_at=None,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _what_tests_before_left_is_ended() -> None:
    """It would be in the depth of an answer, where there is no stack left to end it."""
    gc.collect()


_FILE: dict[str, Any] = {"name": "n", "size_bytes": 1, "owner": "a"}
_INSTANCE: dict[str, Any] = {
    "id": 1, "profile": "1g.5gb", "start": 0, "size": 1, "compute": [0], "owner": "a", "devices": ["MIG-a"],
    "capabilities": ["/proc/driver/nvidia/capabilities/gpu0/mig/gi1/access"],
}  # fmt: skip
_DOMAIN: dict[str, Any] = {
    "uuid": "a", "name": "b", "state": "running", "owner": "a", "devices": ["d"], "addresses": ["192.0.2.7"],
    "vcpus": 2, "memory_mib": 4096, "disk_bytes": 1, "affinity": ["0-3"],
    "free_ports": 4,
}  # fmt: skip
_NODE: dict[str, Any] = {
    "id": 0, "cores": [[0, 1]], "memory_mib": 4096, "hugepages": [{"size_kib": 2048, "total": 2, "free": 1}],
}  # fmt: skip
_NIC: dict[str, Any] = {
    "address": "0000:3b:00.0", "vendor": "8086", "device": "10c9", "numa_node": 0, "bridges": ["0000:00:03.0"],
    "interface": "eth1", "functions": [{"address": "0000:3b:10.0", "owner": "a", "held": "its interface is up"}],
}  # fmt: skip
_POOL: dict[str, Any] = {
    "name": "fast", "pool_id": "6a1f0c1e-4c0b-4d0e-9a55-0f7d3c1b2a90", "capacity_bytes": 2, "free_bytes": 1,
    "problem": "does not answer",
}  # fmt: skip
_FABRIC: dict[str, Any] = {
    "version": "580.95.02", "partitions": [{"id": 0, "modules": [1, 2], "active": True, "owner": "a"}],
    "problem": "not running",
}  # fmt: skip


def good() -> dict[str, Any]:
    """A snapshot with something of everything."""
    machine = FakeMachine(machine_id="m1", gpus=[t4(), l40s()])
    document: dict[str, Any] = json.loads(json.dumps(snapshot_to_dict(snapshot_of(machine))))
    gpu = document["gpus"][0]
    gpu |= {
        "serial": "1", "mig_enabled": True, "mig_pending": True, "heterogeneous": True, "module_id": 1, "numa_node": 0,
        "mig_found": False, "mig_profiles": ["MIG 1g.5gb"], "signals": [{"name": "xid-79", "text": "gone", "at": 5}],
        "problems": ["hot"], "iommu_shared_with": ["0000:40:00.0"], "instances": [_INSTANCE],
        "scheduler": {"policy": "equal_share", "time_slice_us": 2000},
        "bridges": ["0000:00:03.0"], "licences": [{"vm": "a", "state": "licensed", "until": 2_000_000_000}],
        "metadata": "AA==", "open_vgpus": [{"vm": "a", "metadata": "AA=="}],
        "fabric": {"state": "completed", "cluster": "9c6f5af3-53bf-49b5-a436-b66766c413c3", "clique": 4026},
    }  # fmt: skip
    mdev = {"uuid": "u", "type_name": "t", "owner": "a", "placement_id": 0}
    gpu["parents"][0] |= {
        "current_type": "t", "mdevs": [mdev], "owner": "a", "in_use": True, "gpu_instance": 1, "placement_id": 0,
    }  # fmt: skip
    files = {kind: [dict(_FILE)] for kind in ("volumes", "seeds", "data", "images")}
    return document | files | {
        "domains": [_DOMAIN],
        "networks": ["default"], "problems": ["slow"], "confinement": "apparmor", "fabric": _FABRIC, "nodes": [_NODE],
        "bridges": [{"name": "br0", "kind": "linux", "vlans": ["br0.7"], "chassis": ["gpu-1"], "problem": "away"}],
        "nics": [_NIC], "dcgm_version": "4.4.1",
        "pools": [_POOL],
    }  # fmt: skip


def empty(value: object, name: str = "") -> Iterator[str]:
    """Fields that no bad value would be put below, of the first of each list."""
    if value in (None, "", [], {}):
        yield name
    for key, below in value.items() if isinstance(value, dict) else ():
        yield from empty(below, f"{name}.{key}")
    if isinstance(value, list):
        yield from empty(value[0], name) if value else ()


def test_the_good_answer_has_something_of_everything() -> None:
    """Else fields that come later are attacked by nobody."""
    assert list(empty(good())) == []


def cases() -> Iterator[tuple[str, Answer]]:
    yield from whole()
    yield from errors()
    yield from snapshots(good())


def outcome(answer: Answer, hello: bytes = HELLO) -> HostSnapshot | VgpuctlError:
    link = BadAgentLink(answer, hello)
    try:
        return link.observe(HOST)
    except VgpuctlError as error:
        return error


def test_every_bad_answer_is_an_error_of_the_host_or_a_snapshot_that_can_be_kept() -> None:
    seen = 0
    for name, answer in cases():
        found = outcome(answer)
        seen += 1
        if isinstance(found, HostSnapshot):
            json.dumps(snapshot_to_dict(found), ensure_ascii=False).encode()
        else:
            assert found.message.isprintable(), name
            assert len(found.message) <= 300, name
            assert len(found.details or "") <= 5000, name
            assert len(found.code) <= 60, name
            (found.message + (found.details or "") + (found.hint or "")).encode()
    assert seen > 1500


def kept(bad: str) -> dict[str, HostSnapshot]:
    """What is read of the good answer with this bad value somewhere, by the field."""
    found = ((name, outcome(answer)) for name, answer in snapshots(good()) if name.endswith(f": {bad}"))
    return {name: one for name, one in found if isinstance(one, HostSnapshot)}


def test_no_field_is_kept_at_any_length() -> None:
    for name, snapshot in kept("a megabyte").items():
        assert len(json.dumps(snapshot_to_dict(snapshot))) < len(json.dumps(good())) + 2000, name


def test_no_number_is_kept_below_zero() -> None:
    assert kept("negative") == {}


def test_nothing_that_has_a_name_of_its_own_is_there_twice() -> None:
    named = {
        "gpus", "gpus.0.parents", "gpus.0.instances", "domains", "volumes", "seeds", "images", "data", "nodes",
        "fabric.partitions",
    }  # fmt: skip
    assert not named & {name.partition(":")[0] for name in kept("twice")}


BAD_DOMAINS: dict[str, object] = {
    "name": "x" * 100_000, "addresses": ["192.0.2.7", "x" * 100_000], "devices": ["x" * 256],
    "affinity": ["1" * 100_000],
    "vcpus": -1, "memory_mib": -1, "disk_bytes": -1,
}  # fmt: skip


@pytest.mark.parametrize("field", BAD_DOMAINS)
def test_a_domain_that_is_asked_about_alone_is_read_by_the_same_rules(field: str) -> None:
    link = BadAgentLink(answering(json.dumps({"domain": {**_DOMAIN, field: BAD_DOMAINS[field]}})))
    with pytest.raises(Unknown) as caught:
        link.observe_domain(HOST, "a")
    assert caught.value.code == "agent.answer_invalid"
    assert BadAgentLink(answering(json.dumps({"domain": _DOMAIN}))).observe_domain(HOST, "a") is not None


@pytest.mark.parametrize("free", [-1, 1.5, True, None])
def test_a_host_that_is_as_before_has_no_less_than_no_room(free: object) -> None:
    with pytest.raises(Unknown) as caught:
        BadAgentLink(answering(json.dumps({"unchanged": {"storage_free_bytes": free}}))).look(HOST, "known")
    assert caught.value.code == "agent.answer_invalid"


def test_a_good_answer_is_read() -> None:
    found = outcome(answering(json.dumps(good())))
    assert isinstance(found, HostSnapshot)
    assert snapshot_to_dict(found)["machine_id"] == "m1"


@pytest.mark.parametrize("depth", [33, 500, 990, 3000, 100_000])
def test_an_answer_may_be_nested_no_deeper_than_any_answer_is(depth: int) -> None:
    found = outcome(answering('{"more":' + "[" * depth + "]" * depth + "}"))
    assert (type(found), getattr(found, "code", None)) == (Unknown, "agent.protocol")


def test_an_answer_is_bounded_by_what_was_asked() -> None:
    large = json.dumps({**good(), "more": "x" * 5 * 1024 * 1024})
    found = outcome(answering(large))
    assert isinstance(found, Unknown)
    assert found.code == "agent.protocol"
    fits = json.dumps({**good(), "more": "x" * 3 * 1024 * 1024})
    assert isinstance(outcome(answering(fits)), HostSnapshot)
    small = BadAgentLink(answering(json.dumps({"domain": None, "more": "x" * 1024 * 1024})))
    with pytest.raises(Unknown):
        small.observe_domain(HOST, "a")


def test_an_error_of_megabytes_is_kept_as_a_line() -> None:
    told = {"family": "denied", "code": "agent.stale_token", "message": "m" * 100_000, "details": "d" * 100_000}
    found = outcome(refusing(json.dumps(told)))
    assert isinstance(found, Denied)
    assert (len(found.message), len(found.details or "")) == (300, 4000)


@pytest.mark.parametrize("name", ["whole", "deep", "large"])
def test_a_bad_hello_is_an_agent_that_does_not_run(name: str) -> None:
    hellos = {
        "whole": framed(b'{"hello":"\\ud800"}'),
        "deep": framed(b'{"hello":' + b"[" * 90_000 + b"]" * 90_000 + b"}"),
        "large": framed(b'{"hello":{"a":"' + b"x" * 70_000 + b'"}}'),
    }
    found = outcome(answering("{}"), hellos[name])
    assert isinstance(found, VgpuctlError)
    assert found.code == "agent.not_running"


def test_a_list_comes_whole_and_what_people_read_is_one_line() -> None:
    vms = json.dumps([f"{number:036}" for number in range(5000)])
    hello = framed(json.dumps({"hello": {"protocol": PROTOCOL_VERSION, "agent_version": "0"}}).encode())
    link = BadAgentLink(answering(json.dumps({"changed": False, "message": vms})), hello)
    token = FencingToken(site="site", epoch=1, operation="o", attempt=1)
    assert link.perform(HOST, FindRepositories(target="nas"), token).message == vms
    removes = RemoveBackup(target="nas", of_vm="a", password="p", backup="b", size_bytes=0)
    assert len(link.perform(HOST, removes, token).message) == 300
