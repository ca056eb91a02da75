# SPDX-License-Identifier: Apache-2.0
"""What a tenant says of a GPU when it gives a VM back: it is on watch, once the VM is gone, and never closed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, Fatal, InvalidInput
from orchestrator.core.gpu.health_states import CLEAN_S, MAX_WORD, GpuHealth
from orchestrator.core.vms.lease import WantedEnd
from tests.fakes.control_plane import L40S_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.fake_host import no_fault

WORD = "its matrix products differ"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, L40S_HOST) as made:
        yield made


def created(plane: ControlPlane, name: str = "train", *, protected: bool = False, end: WantedEnd | None = None) -> None:
    vm = replace(create_vm(name, profile="NVIDIA L40S-12Q"), protected=protected, end=end or WantedEnd())
    plane.services.vms.create(replace(vm, host=L40S_HOST, gpu=gpu(plane)))
    plane.engine.drain()


def deleted(plane: ControlPlane, name: str = "train", word: str | None = WORD) -> None:
    plane.services.vms.delete("default", name, word)
    plane.engine.drain()


def gpu(plane: ControlPlane) -> str:
    return plane.machine(L40S_HOST).gpus[0].address


def health(plane: ControlPlane) -> GpuHealth:
    return plane.services.gpu_health.get(L40S_HOST, gpu(plane)).health


def said(plane: ControlPlane) -> list[str]:
    """In the audit, the oldest first."""
    records = plane.services.tenancy.audit.list(limit=100)
    return [record.outcome for record in reversed(records) if record.action == "tenant_word"]


def test_its_gpu_is_on_watch_for_a_day_with_the_tenant_and_its_text(plane: ControlPlane) -> None:
    created(plane)
    deleted(plane)
    assert (health(plane).state, health(plane).cause) == ("watch", f"a tenant's word: default: {WORD}")
    assert said(plane) == [f"default/train: {WORD}"]
    (signal,) = plane.services.gpu_health.get(L40S_HOST, gpu(plane)).signals
    assert (signal.name, signal.text) == ("tenant-word", f"default: {WORD}")
    plane.findings.observe(L40S_HOST)
    assert health(plane).state == "watch"
    plane.world.clock.sleep(CLEAN_S)
    plane.findings.observe(L40S_HOST)
    assert (health(plane).state, len(health(plane).words)) == ("healthy", 1)
    plane.world.clock.sleep(6 * CLEAN_S)
    plane.findings.observe(L40S_HOST)
    assert health(plane).words == ()


def test_one_word_of_a_tenant_counts_a_day_and_a_hundred_close_nothing(plane: ControlPlane) -> None:
    for _ in range(3):
        created(plane)
        deleted(plane)
    plane.services.gpu_health.give_back(L40S_HOST, gpu(plane), "it was burnt in")
    created(plane)
    deleted(plane)
    assert len(health(plane).words) == 1
    assert health(plane).cause == "returned: it was burnt in"
    assert said(plane)[-1] == f"counted before today: default/train: {WORD}"
    for _ in range(9):
        plane.world.clock.sleep(CLEAN_S)
        created(plane)
        deleted(plane)
    assert (health(plane).state, len(health(plane).words)) == ("watch", 7)


def test_a_delete_without_a_word_that_is_refused_or_that_fails_says_nothing(plane: ControlPlane) -> None:
    created(plane, "silent")
    deleted(plane, "silent", None)
    created(plane, "kept", protected=True)
    with pytest.raises(Conflict):
        deleted(plane, "kept")
    created(plane)
    plane.hosts.strike = lambda _, moment, name: (
        Fatal("libvirt.failed", "it does not go") if (moment, name) == ("before", "UndefineDomain") else None
    )
    deleted(plane)
    assert plane.services.vms.get("default", "train").state == "stuck"
    assert (health(plane).state, said(plane)) == ("healthy", [])
    plane.hosts.strike = no_fault
    deleted(plane)
    assert (health(plane).state, len(said(plane))) == ("watch", 1)


def test_a_repeated_delete_says_it_once_and_another_word_meanwhile_is_refused(plane: ControlPlane) -> None:
    created(plane)
    vms = plane.services.vms
    first = vms.delete("default", "train", WORD)
    assert vms.delete("default", "train", WORD).operation == first.operation
    assert vms.delete("default", "train").operation == first.operation
    with pytest.raises(Conflict, match="without that word"):
        vms.delete("default", "train", "it was slow")
    plane.engine.drain()
    assert len(said(plane)) == 1


def test_the_word_on_a_vm_whose_place_was_given_back_is_of_the_gpu_that_it_had_last(plane: ControlPlane) -> None:
    created(plane, end=WantedEnd(after_s=3600))
    plane.world.clock.sleep(3600)
    plane.reconciler.leases.end_leases(L40S_HOST)
    plane.engine.drain()
    assert plane.services.vms.get("default", "train").deallocated == "lease_over"
    deleted(plane)
    assert health(plane).state == "watch"


def test_a_word_is_one_line_and_not_empty(plane: ControlPlane) -> None:
    created(plane)
    with pytest.raises(InvalidInput) as refused:
        deleted(plane, word="\x1b\n ")
    assert refused.value.code == "vm.word_empty"
    deleted(plane, word="red\x1b[31m\nrow" + "x" * MAX_WORD)
    (word,) = health(plane).words
    assert word.text.startswith("red [31m row")
    assert (len(word.text), word.text.isprintable()) == (MAX_WORD, True)


def test_of_a_vm_of_a_host_that_was_given_up_no_gpu_is_known(plane: ControlPlane) -> None:
    created(plane)
    with plane.store.begin() as tx:
        tx.vms.update(replace(plane.services.vms.get("default", "train"), state="lost"))
    with pytest.raises(Conflict) as refused:
        deleted(plane)
    assert refused.value.code == "vm.gpu_unknown"
