# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import InvalidInput, QuotaExceeded
from orchestrator.core.gpu.device import Device
from orchestrator.core.tenancy.access import EVERYWHERE
from orchestrator.core.tenancy.quota import (
    Amounts,
    Limit,
    amounts_of,
    check_quota,
    check_resource,
    counted_by,
    parse_amount,
    show_amount,
    vgpu_amounts,
    whole_gpu_amounts,
)
from orchestrator.core.vms.vm import Vm, VmSpec

TENANTS, RESOURCES = ("a", "b", "c"), ("devices", "vcpus")
LIMITS = st.dictionaries(
    st.tuples(st.sampled_from((*TENANTS, EVERYWHERE)), st.sampled_from(RESOURCES)), st.integers(0, 6)
)
ASKED = st.lists(
    st.tuples(st.sampled_from(TENANTS), st.fixed_dictionaries({name: st.integers(0, 3) for name in RESOURCES})),
    max_size=30,
)


def drawn(besides: str, limits: tuple[Limit, ...], totals: Mapping[str, Amounts]) -> Counter[str]:
    """What the other tenants have from the pool."""
    own = {(limit.tenant, limit.resource): limit.amount for limit in limits}
    found = Counter[str]()
    for tenant in totals.keys() - {besides}:
        for resource, used in totals[tenant].items():
            found[resource] += max(0, used - own.get((tenant, resource), 0))
    return found


@given(LIMITS, ASKED)
def test_no_limit_is_ever_broken_and_nobody_is_refused_what_is_guaranteed(
    given_limits: dict[tuple[str, str], int], asked: list[tuple[str, dict[str, int]]]
) -> None:
    limits = tuple(Limit(tenant=one, resource=what, amount=most) for (one, what), most in given_limits.items())
    totals: dict[str, Counter[str]] = {}
    for tenant, amounts in asked:
        held = totals.setdefault(tenant, Counter())
        guaranteed = all(
            held[what] + amount <= given_limits.get((tenant, what), 0) for what, amount in amounts.items() if amount
        )
        try:
            check_quota(tenant, amounts, limits, held, drawn(tenant, limits, totals))
        except QuotaExceeded:
            assert not guaranteed
            continue
        held.update(amounts)
    for what in RESOURCES:
        beyond = {one: held[what] - given_limits.get((one, what), 0) for one, held in totals.items()}
        pool = given_limits.get((EVERYWHERE, what))
        if pool is not None:
            assert sum(more for more in beyond.values() if more > 0) <= pool
        else:
            assert all(more <= 0 for one, more in beyond.items() if (one, what) in given_limits)


def test_without_limits_nobody_is_refused() -> None:
    check_quota("a", {"devices": 10**9}, (), {}, {})
    check_quota("a", {"devices": 10**9}, (Limit(tenant="b", resource="devices", amount=0),), {}, {})


def test_a_refusal_names_limit_used_and_asked_of_every_resource_that_lacks() -> None:
    limits = (
        Limit(tenant="a", resource="framebuffer", amount=40960),
        Limit(tenant="a", resource="devices", amount=2),
        Limit(tenant="a", resource="vms", amount=9),
    )
    asked, used = {"framebuffer": 16384, "devices": 1, "vms": 1}, {"framebuffer": 30720, "devices": 2, "vms": 2}
    with pytest.raises(QuotaExceeded) as caught:
        check_quota("a", asked, limits, used, {})
    assert [reason.message for reason in caught.value.reasons] == [
        "the quota of devices is 2, 2 in use, 1 asked for",
        "the quota of framebuffer is 40GiB, 30GiB in use, 16GiB asked for",
    ]


def test_a_refusal_says_what_is_counted_and_what_of_the_tenants_holds_it() -> None:
    limits = (Limit(tenant="a", resource="devices:L40S", amount=8), Limit(tenant="a", resource="disk", amount=2048))
    holders = {f"vm{n}": {"devices:L40S": 1} for n in range(6)} | {
        "big": {"devices:L40S": 2},
        "volume data": {"disk": 1024},
    }
    with pytest.raises(QuotaExceeded) as caught:
        check_quota("a", {"devices:L40S": 1, "disk": 2048}, limits, {"devices:L40S": 8, "disk": 1024}, {}, holders)
    assert [reason.message.split("; ")[1:] for reason in caught.value.reasons] == [
        [
            "it counts vGPUs and whole GPUs: four pieces of one card are four (of L40S)",
            "held by big (2), vm0 (1), vm1 (1), vm2 (1), vm3 (1), 2 more",
        ],
        ["it counts disks of VMs with their snapshots, and data volumes", "held by volume data (1GiB)"],
    ]
    with pytest.raises(QuotaExceeded) as nothing_held:
        check_quota("a", {"disk": 4096}, limits, {}, {}, {})
    assert nothing_held.value.message == (
        "the quota of disk is 2GiB, 0 in use, 4GiB asked for; "
        "it counts disks of VMs with their snapshots, and data volumes"
    )


def test_of_the_pool_a_refusal_tells_no_numbers() -> None:
    pool = (Limit(tenant=EVERYWHERE, resource="devices", amount=777),)
    messages = set()
    for others in (777, 776):
        with pytest.raises(QuotaExceeded) as caught:
            check_quota("a", {"devices": 2}, pool, {}, {"devices": others})
        messages.add((caught.value.message, caught.value.hint, caught.value.reasons))
    assert len(messages) == 1
    assert "77" not in str(messages)


def test_a_vm_counts_by_model_by_profile_and_by_its_nominal_framebuffer() -> None:
    spec = VmSpec(
        name="x", tenant="a", profile="t4-small", image="i", vcpus=3, memory_mib=512, disk_bytes=2**20 + 1, network="n"
    )
    device = Device(kind="mdev", gpu="g", parent="g", type_name="NVIDIA A100-2-10C", name="u")
    vm = Vm(id="i", spec=spec, state="stopped", host="h", devices=(device,), addresses=(), operation=None, created_at=0)
    assert amounts_of(vm) == {
        "vms": 1, "devices": 1, "devices:A100": 1, "vgpus": 1, "vgpus:t4-small": 1,
        "vgpus:NVIDIA A100-2-10C": 1, "framebuffer": 10240, "mig-slices": 2,
        "vcpus": 3, "memory": 512, "disk": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "",
        "gpu",
        "gpus",
        "gpus:L40S",
        "devices:",
        "devices:\x1b",
        "vms:x",
        "vgpus:" + "x" * 91,
        "memory\n",
        "devices:\u0430",
    ],
)
def test_what_is_no_resource_has_no_quota(name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_resource(name)
    assert caught.value.code == "quota.resource_unknown"


@pytest.mark.parametrize(
    ("resource", "text"), [("devices", "0"), ("devices:L40S", "12"), ("memory", "40GiB"), ("disk", "0")]
)
def test_an_amount_is_shown_as_it_is_typed(resource: str, text: str) -> None:
    amount = parse_amount(resource, text)
    assert amount is not None
    assert show_amount(resource, amount) == text


@pytest.mark.parametrize(
    ("resource", "text"),
    [("devices", "-1"), ("devices", "1.5"), ("devices", "9" * 5000), ("devices", "\u0664"), ("memory", "4")],
)
def test_what_is_no_amount_is_refused(resource: str, text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_amount(resource, text)
    assert caught.value.code == "quota.invalid"


@pytest.mark.parametrize(("typed", "meant"), [("gpus", "devices"), ("gpus:L40S", "devices:L40S")])
def test_gpus_could_be_cards_or_pieces_and_is_refused_with_the_words_that_cannot(typed: str, meant: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_resource(typed)
    hint = str(caught.value.hint)
    assert hint.startswith(f"{meant} counts")
    assert f"whole-{typed} cards" in hint
    assert [check_resource(name) for name in (meant, f"whole-{typed}")] == [meant, f"whole-{typed}"]


def test_a_whole_card_and_a_piece_of_one_are_counted_by_different_words() -> None:
    whole, piece = whole_gpu_amounts("NVIDIA L40S"), vgpu_amounts("NVIDIA L40S-12Q", "l40s-12q")
    assert whole == {"devices": 1, "whole-gpus": 1, "devices:L40S": 1, "whole-gpus:L40S": 1}
    assert (piece["devices"], piece["whole-gpus"], piece["vgpus"]) == (1, 0, 1)
    for resource in {*whole, *piece}:
        assert counted_by(resource)
