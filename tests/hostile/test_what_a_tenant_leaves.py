# SPDX-License-Identifier: Apache-2.0
"""What requests leave behind for good is bounded in length and number, whatever a tenant asks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, InvalidInput
from orchestrator.core.tenancy.request_key import MAX_ANSWER, MAX_KEYS
from orchestrator.core.tenancy.tenant import MAX_MEMBERS, MAX_TOKENS_OF_TENANT, Member
from orchestrator.core.units import GIB
from orchestrator.core.vms.volume import MAX_OF_TENANT
from orchestrator.services.messages import VmChange
from tests.fakes.control_plane import T4_HOST, ControlPlane, control_plane, create_vm

UGLY = "a\x1b[2J\n\u202e\x00\ud800" + "x" * 1_000_000


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    made = control_plane(tmp_path)
    made.add_host(T4_HOST)
    made.services.vms.create(create_vm())
    made.engine.drain()
    yield made
    made.reconciler.close()
    made.store.close()


@pytest.mark.parametrize("key", [UGLY, "A/b", "", "\x00", "\ud800", "a\nb", "x" * 64])
def test_a_label_that_is_taken_away_is_one(plane: ControlPlane, key: str) -> None:
    before = plane.services.tenancy.audit.list(limit=1)
    with pytest.raises(InvalidInput) as caught:
        plane.services.vms.change("default", "train", VmChange(labels={key: None}))
    assert caught.value.code == "label.invalid"
    assert plane.services.tenancy.audit.list(limit=1) == before


def test_a_record_of_the_audit_is_one_short_line_and_proven(plane: ControlPlane) -> None:
    with plane.store.begin() as tx:
        tx.audit.append(at=1.0, actor=UGLY, action=UGLY, subject=UGLY, outcome=UGLY)
    (kept,) = plane.services.tenancy.audit.list(limit=1)
    for text in (kept.actor, kept.action, kept.subject, kept.outcome):
        assert len(text) < 5000
        assert text.isprintable()
        assert text.startswith("a [2J")
    plane.services.tenancy.audit.seal()
    assert plane.services.tenancy.audit.verify().problems == ()


def test_answers_that_are_kept_of_one_caller_are_few_and_short(plane: ControlPlane) -> None:
    keys = plane.services.tenancy.request_keys
    for number in range(MAX_KEYS + 50):
        plane.world.clock.sleep(0.001)
        keys.finish(keys.begin("token:red", f"key-{number}", b"body"), 202, "{}")
    keys.finish(keys.begin("token:red", "large", b"body"), 200, "x" * (MAX_ANSWER + 1))
    assert keys.begin("token:red", "large", b"body").answer is None
    with plane.store.read() as tx:
        kept = [tx.request_keys.find("token:red", f"key-{number}") for number in range(MAX_KEYS + 50)]
    assert MAX_KEYS - 2 <= sum(one is not None for one in kept) <= MAX_KEYS
    assert kept[-1] is not None, "the newest ones stay"
    assert kept[0] is None


def test_tokens_members_and_volumes_of_a_tenant_have_an_end(plane: ControlPlane) -> None:
    tenancy, volumes = plane.services.tenancy, plane.services.volumes
    made = [tenancy.tokens.create("default", "tenant-user", None)[0] for _ in range(MAX_TOKENS_OF_TENANT)]
    with pytest.raises(Conflict, match="256 tokens"):
        tenancy.tokens.create("default", "tenant-user", None)
    tenancy.tokens.revoke("default", made[0].id)
    assert tenancy.tokens.create("default", "tenant-user", None)
    first = volumes.create("default", "v0", GIB).volume
    with plane.store.begin() as tx:
        for number in range(MAX_MEMBERS):
            tx.tenants.put_member(Member(tenant="default", subject=f"uid:{number}", role="tenant-user"))
        for number in range(1, MAX_OF_TENANT):
            tx.volumes.add(replace(first, id=f"{number:036}", name=f"v{number}"), None)
    tenancy.tenants.put_member(Member(tenant="default", subject="uid:0", role="tenant-admin"))
    with pytest.raises(Conflict, match="1000 members"):
        tenancy.tenants.put_member(Member(tenant="default", subject="uid:2000", role="tenant-user"))
    with pytest.raises(Conflict, match="1000 volumes"):
        volumes.create("default", "one-more", GIB)
    assert volumes.create("default", "v0", GIB).volume == first
