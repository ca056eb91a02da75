# SPDX-License-Identifier: Apache-2.0
"""What one tenant learns of the pool: the same whatever others have, as long as what it asks for still fits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from orchestrator.cli.advice.explain import render_explanation
from orchestrator.core.tenancy.tenant import Member
from tests.contract.api.real_app import real_app
from tests.fakes.control_plane import ControlPlane, control_plane, create_vm

PROFILE = "GRID T4-2Q"
WHOLE = "GRID T4-16Q"
QUESTIONS = (
    "capacity",
    f"capacity?profile={PROFILE}&tenant=own",
    f"explain?tenant=own&profile={PROFILE}",
    f"explain?tenant=own&profile={PROFILE}&count=64",
    "explain?tenant=own&profile=nothing",
    f"explain?tenant=own&profile={PROFILE}&host=t4",
    "gpu-map",
    "status",
    "profiles",
    "vms",
    "vms/mine/moves?tenant=own",
    "vms/mine/moves?tenant=own&host=t4",
    "operations",
    "tenants",
    "tenants/own/quota",
)
Others = list[tuple[str, str]]
"""Names and profiles of the other tenant's VMs."""


@contextmanager
def site(state: Path, others: Others) -> Iterator[tuple[ControlPlane, TestClient]]:
    """Two hosts; ``own`` has one VM, a quota of two and a token, ``foreign`` the rest."""
    state.mkdir()
    plane = control_plane(state)
    plane.add_host("t4")
    plane.add_host("l40s")
    for tenant in ("own", "foreign"):
        plane.services.tenancy.tenants.create(tenant)
    for tenant in ("default", "own", "foreign"):
        plane.services.tenancy.policies.change(tenant, {"isolation": "none"})
    plane.services.tenancy.quotas.change("own", {"vms": 2})
    _create(plane, "own", "mine", PROFILE)
    for name, profile in others:
        _create(plane, "foreign", name, profile)
    token = plane.services.tenancy.tokens.create("own", "tenant-user", None)[1]
    with TestClient(real_app(plane), headers={"Authorization": f"Bearer {token}"}) as client:
        yield plane, client
    plane.store.close()


def _create(plane: ControlPlane, tenant: str, name: str, profile: str) -> None:
    plane.services.vms.create(replace(create_vm(name, profile=profile, start=False), tenant=tenant))
    plane.engine.drain()


def _answers(client: TestClient) -> dict[str, Any]:
    return {question: client.get(f"/v1/{question}").json() for question in QUESTIONS}


def _without_times(found: Any) -> Any:
    """Ids and times are drawn anew in every site."""
    drawn = {"id", "created_at", "started_at", "finished_at", "attempt", "parent", "uuid", "device", "operation"}
    if isinstance(found, dict):
        return {key: _without_times(value) for key, value in found.items() if key not in drawn}
    return [_without_times(one) for one in found] if isinstance(found, list) else found


WORLDS: dict[str, Others] = {
    "one": [("simple", PROFILE)],
    "renamed": [("secret-project", PROFILE)],
    "of another kind": [("simple", "NVIDIA L40S-12Q"), ("more", "NVIDIA L40S-12Q"), ("a", "GRID T4-4Q")],
}


@pytest.mark.fault("F127")
def test_answers_to_a_tenant_do_not_depend_on_what_others_have(tmp_path: Path) -> None:
    answers = {}
    for number, (name, others) in enumerate(WORLDS.items()):
        with site(tmp_path / str(number), others) as (_, client):
            answers[name] = _without_times(_answers(client))
            text = json.dumps(answers[name])
            assert not [word for word in ("secret-project", "foreign", "simple") if word in text]
    capacity = answers["one"].pop("capacity")
    assert {row["fits_now"] for row in capacity["rows"]} <= {0, 1}
    for name in ("renamed", "of another kind"):
        assert answers[name].pop("capacity").keys() == capacity.keys()
        assert answers[name] == answers["one"], name


def test_a_full_pool_is_no_place_now_and_nothing_more(tmp_path: Path) -> None:
    with site(tmp_path / "full", [(f"vm{n}", "GRID T4-16Q" if n < 1 else PROFILE) for n in range(8)]) as (_, client):
        told = client.get(f"/v1/explain?tenant=own&profile={WHOLE}").json()
        refused = client.post(
            "/v1/vms",
            json={"name": "b", "tenant": "own", "profile": WHOLE, "image": "guest", "memory_mib": 256,
                  "disk_bytes": 1024**3},
        ).json()  # fmt: skip
        capacity = client.get(f"/v1/capacity?profile={PROFILE}").json()
    assert told["fits"] is False
    assert told["reasons"] == [
        {"code": "gpu.no_capacity", "message": "there is no place for it now", "subjects": [], "count": 1}
    ]
    assert refused["code"] == "gpu.no_capacity"
    assert refused["reasons"] == []
    assert [row["fits_now"] for row in capacity["rows"]] == [0]


def test_a_tenant_is_told_what_its_quota_covers_and_operators_are_told_everything(tmp_path: Path) -> None:
    with site(tmp_path / "s", [("simple", PROFILE)]) as (plane, client):
        own = client.get(f"/v1/capacity?profile={PROFILE}").json()["rows"]
        plane.services.tenancy.quotas.change("own", {"vms": 1})
        over = client.get(f"/v1/explain?tenant=own&profile={PROFILE}").json()
        no_more = client.get(f"/v1/capacity?profile={PROFILE}").json()["rows"]
        del client.headers["Authorization"]
        everything = client.get(f"/v1/capacity?profile={PROFILE}").json()["rows"]
        asked_for_it = client.get(f"/v1/capacity?profile={PROFILE}&tenant=own").json()["rows"]
        over_too = client.get(f"/v1/explain?tenant=own&profile={PROFILE}").json()
        drawn = client.get("/v1/gpu-map").json()
    assert [row["fits_now"] for row in own] == [1]
    assert over["code"] == over_too["code"] == "quota.exceeded"
    assert "the quota of vms is 1, 1 in use" in over["reasons"][0]["message"]
    for told in (over, over_too):
        assert told["reasons"][0]["message"].endswith("; it counts VMs, stopped ones too; held by mine (1)")
    assert no_more[0]["fits_now"] == asked_for_it[0]["fits_now"] == 0
    assert everything[0]["fits_now"] > 1
    assert {row["host"] for row in drawn["gpus"]} == {"t4", "l40s"}


def test_a_tenant_may_have_others_stopped_and_is_not_told_whom(tmp_path: Path) -> None:
    wanted = {"name": "b", "tenant": "own", "profile": "GRID T4-16Q", "image": "guest", "memory_mib": 256,
              "disk_bytes": 1024**3, "preempt": True}  # fmt: skip
    with site(tmp_path / "full", []) as (plane, client):
        plane.services.vms.create(
            replace(create_vm("secret-project", profile="GRID T4-16Q"), tenant="foreign", priority="low")
        )
        plane.engine.drain()
        explained = [client.get(asks := "/v1/explain?tenant=own&profile=GRID T4-16Q&priority=normal").json()]
        before = client.post("/v1/vms/plan", json=wanted)
        plane.services.tenancy.policies.change("own", {"preempt": True})
        explained.append(client.get(asks).json())
        plan = client.post("/v1/vms/plan", json=wanted)
        known = TestClient(real_app(plane)).post("/v1/vms/plan", json=wanted).json()["preempts"]
        started = client.post("/v1/vms", json=wanted)
        plane.engine.drain()
        shown = [client.get(f"/v1/{question}").text for question in ("vms", "operations", "vms/b?tenant=own")]
        stopped = plane.services.vms.get("foreign", "secret-project")
    assert (before.status_code, before.json()["code"]) == (403, "preemption.not_allowed")
    assert plan.json()["preempts"] == ["VMs of others"]
    assert [answer["preempts"] for answer in explained] == [[], ["VMs of others"]], "as its policy lets it"
    lines = render_explanation(explained[1], 80)
    assert (explained[1]["restricted"], lines[-1]) == (True, "with --preempt it would have stopped: VMs of others")
    assert known == ["foreign/secret-project"]
    assert started.status_code == 202
    assert not [text for text in (plan.text, started.text, *shown) if "secret-project" in text or "foreign" in text]
    assert stopped.deallocated == "preempted"


def test_a_tenant_without_a_quota_learns_whether_one_fits_and_cannot_count_what_others_have(tmp_path: Path) -> None:
    told = []
    for number, others in enumerate((1, 3)):
        with site(tmp_path / str(number), [(f"vm{n}", PROFILE) for n in range(others)]) as (plane, client):
            plane.services.tenancy.quotas.change("own", {"vms": None})
            rows = client.get("/v1/capacity").json()["rows"]
            plane.services.tenancy.quotas.change("*", {"devices": 60})
            pooled = client.get("/v1/capacity").json()["rows"]
            plane.services.tenancy.quotas.change("own", {"devices": 3})
            told.append((rows, pooled, client.get(f"/v1/capacity?profile={PROFILE}").json()["rows"]))
    (rows, pooled, promised), with_more = told[0], told[1]
    assert with_more == told[0]
    assert {row["fits_now"] for row in (*rows, *pooled)} == {0, 1}
    assert [row["fits_now"] for row in promised] == [2]


@pytest.mark.parametrize(("question", "unnamed"), [("capacity", 400), ("gpu-map", 200)])
def test_a_member_of_two_tenants_names_one_where_one_is_meant(tmp_path: Path, question: str, unnamed: int) -> None:
    with site(tmp_path / "s", []) as (plane, _):
        for tenant in ("own", "foreign"):
            plane.services.tenancy.tenants.put_member(Member(tenant=tenant, subject="uid:4711", role="read-only"))
        client = TestClient(real_app(plane, 4711))
        named = ("", "?tenant=own", "?tenant=foreign", "?tenant=default")
        answers = [client.get(f"/v1/{question}{tenant}").status_code for tenant in named]
    assert answers == [unnamed, 200, 200, 404]
