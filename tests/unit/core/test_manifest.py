# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.catalogue.manifest_forms import VmForm
from orchestrator.core.gpu.vgpu_parameters import Scheduler
from orchestrator.core.hosts.bridges import Uplink
from orchestrator.core.labels import NOTHING_SAID, About, WantedAbout
from orchestrator.core.manifest import (
    Existing,
    ExistingVm,
    Manifest,
    ManifestVm,
    WantedImage,
    WantedOffering,
    WantedVolume,
)
from orchestrator.core.manifest_changes import changes
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.units import GIB
from orchestrator.core.vms.lease import WantedEnd
from orchestrator.core.vms.network import WantedNetwork

NAMES = st.sampled_from(["a", "b", "c", "d"])
BRIDGED = st.builds(
    WantedNetwork, name=NAMES, uplink=st.sampled_from([Uplink(bridge="br0"), Uplink(bridge="br0", vlan=7)]),
    dhcp_servers=st.sampled_from([(), ("192.0.2.1",)]),
)  # fmt: skip
NETWORKS = BRIDGED | st.builds(WantedNetwork, name=NAMES, subnet=st.sampled_from([None, "10.0.0.0/24"]))
IMAGES = st.builds(WantedImage, name=NAMES, source=st.just("/x"), sha256=st.sampled_from([None, "1" * 64]))
VMS = st.builds(
    ManifestVm,
    name=NAMES,
    tenant=st.sampled_from(["red", "blue"]),
    profile=st.just("p"),
    image=NAMES,
    vcpus=st.integers(1, 2),
    memory_mib=st.just(64),
    disk_bytes=st.just(1),
    network=NAMES,
    ssh_keys=st.just(()),
    host=st.sampled_from([None, "h1"]),
    running=st.booleans(),
    boot_policy=st.sampled_from(["local", "ask-controller"]),
    tpm=st.sampled_from([None, True, False]),
    has_user_data=st.booleans(),
    labels=st.sampled_from([(), (("a", "1"),), (("a", "2"), ("b", ""))]),
)
KEYS = st.tuples(st.sampled_from(["network", "image"]), NAMES)
SOME_LABELS = st.sampled_from([(), (("a", "1"),), (("a", "2"), ("b", ""))])
WANTED_ABOUTS = st.builds(WantedAbout, description=st.sampled_from([None, "", "ours", "none"]), labels=SOME_LABELS)
ABOUTS = st.builds(About, description=st.sampled_from(["", "ours", "theirs"]), labels=SOME_LABELS)
LABELS = st.sampled_from([None, "mine", "theirs"])


def _of_what_it_has(wanted: Manifest) -> Manifest:
    named = {("network", one.key) for one in wanted.networks} | {("image", one.name) for one in wanted.images}
    return replace(wanted, abouts={key: about for key, about in wanted.abouts.items() if key in named})


MANIFESTS = st.builds(
    Manifest,
    label=LABELS,
    networks=st.lists(NETWORKS, unique_by=lambda one: one.name).map(tuple),
    images=st.lists(IMAGES, unique_by=lambda one: one.name).map(tuple),
    vms=st.lists(VMS, unique_by=lambda vm: vm.key).map(tuple),
    abouts=st.dictionaries(KEYS, WANTED_ABOUTS),
).map(_of_what_it_has)
STATES = st.sampled_from(["running", "stopped", "creating", "starting", "stopping", "deleting", "failed", "stuck"])
THERE = st.builds(
    Existing,
    networks=st.lists(
        BRIDGED | st.builds(WantedNetwork, name=NAMES, subnet=st.sampled_from(["10.0.0.0/24", "10.0.1.0/24"])),
        unique_by=lambda one: one.name,
    ).map(lambda found: {one.key: one for one in found}),
    images=st.dictionaries(NAMES, st.sampled_from(["1" * 64, "2" * 64])),
    vms=st.lists(
        st.builds(ExistingVm, vm=VMS, state=STATES, on_host=st.sampled_from(["h1", "h2"]), label=LABELS),
        unique_by=lambda found: found.vm.key,
    ).map(lambda found: {one.vm.key: one for one in found}),
    abouts=st.dictionaries(KEYS, ABOUTS),
)


def _made(wanted: Manifest, there: Existing, *, prune: bool) -> Existing:
    """The world after every change that is not refused."""
    networks, images, vms = dict(there.networks), dict(there.images), dict(there.vms)
    by_key, abouts = {vm.key: vm for vm in wanted.vms}, dict(there.abouts)
    for change in changes(wanted, there, prune=prune):
        if change.action == "refuse":
            continue
        key = (change.kind, change.name)
        if key in wanted.abouts:
            before, said = abouts.get(key, NOTHING_SAID), wanted.abouts[key]
            abouts[key] = before.changed(said.description, dict(said.labels))
        if change.kind != "vm" and change.action == "set":
            continue
        if change.kind == "network":
            made = next(n for n in wanted.networks if n.name == change.name)
            networks[change.name] = made if made.uplink else replace(made, subnet=made.subnet or "10.9.9.0/24")
        elif change.kind == "image":
            images[change.name] = next(i.sha256 for i in wanted.images if i.name == change.name) or "3" * 64
        elif change.action == "delete":
            del vms[change.name]
        elif change.action == "add":
            vm = by_key[change.name]
            state = "running" if vm.running else "stopped"
            vms[change.name] = ExistingVm(vm=vm, state=state, on_host=vm.host or "h1", label=wanted.label)
        elif change.action == "set":
            vm = vms[change.name].vm
            labels = dict(vm.labels) | dict(by_key[change.name].labels)
            vms[change.name] = replace(vms[change.name], vm=replace(vm, labels=tuple(sorted(labels.items()))))
        else:
            vms[change.name] = replace(vms[change.name], state="running" if change.action == "start" else "stopped")
    return Existing(networks=networks, images=images, vms=vms, abouts=abouts)


@given(MANIFESTS, THERE, st.booleans())
def test_after_the_changes_only_what_was_refused_is_left(wanted: Manifest, there: Existing, prune: bool) -> None:
    refused = [change for change in changes(wanted, there, prune=prune) if change.action == "refuse"]
    assert [*changes(wanted, _made(wanted, there, prune=prune), prune=prune)] == refused


@given(MANIFESTS, THERE)
def test_pruning_touches_only_what_the_label_made(wanted: Manifest, there: Existing) -> None:
    gone = {change.name for change in changes(wanted, there, prune=True) if change.action == "delete"}
    kept = {vm.key for vm in wanted.vms}
    assert gone == {
        key
        for key, found in there.vms.items()
        if wanted.label is not None and found.label == wanted.label and key not in kept and found.state != "deleting"
    }


@given(MANIFESTS, THERE, st.booleans())
def test_every_change_names_what_differs(wanted: Manifest, there: Existing, prune: bool) -> None:
    for change in changes(wanted, there, prune=prune):
        assert change.fields
        assert all(one.there != one.wanted for one in change.fields)
        assert all(one.there is None for one in change.fields) or change.action != "add"


@pytest.mark.parametrize(
    ("end", "there", "found"),
    [
        (WantedEnd(), None, None),
        (WantedEnd(), 500.0, None),
        (WantedEnd(after_s=400), 500.0, None),
        (WantedEnd(after_s=400), 499.2, None),
        (WantedEnd(after_s=400), 900.0, None),
        (WantedEnd(after_s=800), 500.0, "extend"),
        (WantedEnd(at=500), 500.4, None),
        (WantedEnd(at=600), 500.0, "extend"),
        (WantedEnd(at=600), None, "refuse"),
    ],
)
def test_a_lease_only_gets_longer_and_a_duration_counts_from_when_the_vm_was_made(
    end: WantedEnd, there: float | None, found: str | None
) -> None:
    vm = ManifestVm(
        name="a", tenant="t", profile="p", image="i", vcpus=1, memory_mib=1, disk_bytes=1, network="n", ssh_keys=(),
        host=None, boot_policy="local", running=True, has_user_data=False, end=end,
    )  # fmt: skip
    seen = ExistingVm(vm=vm, state="running", on_host="h1", label=None, created_at=100.0, lease_end=there)
    wanted = Manifest(label=None, vms=(vm,))
    made = changes(wanted, Existing(networks={}, images={}, vms={"t/a": seen}), prune=False)
    assert [one.action for one in made] == ([] if found is None else [found])
    stopped = Existing(networks={}, images={}, vms={"t/a": replace(seen, state="stopped")})
    actions = [one.action for one in changes(wanted, stopped, prune=False)]
    assert actions == {None: ["start"], "extend": ["extend", "start"], "refuse": ["refuse"]}[found]


def test_user_data_is_in_no_text_of_a_wanted_vm() -> None:
    vm = ManifestVm(
        name="a", tenant="t", profile="p", image="i", vcpus=1, memory_mib=1, disk_bytes=1, network="n", ssh_keys=(),
        host=None, boot_policy="local", running=True, has_user_data=True, user_data="planted-secret",
    )  # fmt: skip
    there = Existing(networks={}, images={}, vms={})
    assert "planted-secret" not in repr(vm) + repr(changes(Manifest(label=None, vms=(vm,)), there, prune=False))


def test_differences_are_told_in_the_words_and_units_of_the_file() -> None:
    there = ManifestVm(
        name="a", tenant="t", profile="p", image="i", vcpus=1, memory_mib=4096, disk_bytes=20 * GIB, network="n",
        ssh_keys=(), host=None, boot_policy="local", running=True, has_user_data=False,
    )  # fmt: skip
    wanted = replace(there, memory_mib=1536, disk_bytes=GIB, has_user_data=True, user_data="#cloud-config")
    seen = ExistingVm(vm=there, state="running", on_host="h1", label=None)
    manifest = Manifest(label=None, vms=(wanted,))
    (change,) = changes(manifest, Existing(networks={}, images={}, vms={"t/a": seen}), prune=False)
    told = [(one.field, one.there, one.wanted) for one in change.fields]
    assert told == [
        ("memory", "4GiB", "1.5GiB"),
        ("disk", "20GiB", "1GiB"),
        ("user_data", "none", "given"),
    ]


def test_a_size_that_a_file_leaves_to_the_profile_is_no_difference() -> None:
    there = ManifestVm(
        name="a", tenant="t", profile="p", image="i", vcpus=1, memory_mib=4096, disk_bytes=20 * GIB, network="n",
        running=True, has_user_data=False,
    )  # fmt: skip
    seen = Existing(
        networks={}, images={}, vms={"t/a": ExistingVm(vm=there, state="running", on_host=None, label=None)}
    )
    silent = replace(there, vcpus=0, memory_mib=0, disk_bytes=0)
    assert changes(Manifest(label=None, vms=(silent,)), seen, prune=False) == ()
    (change,) = changes(Manifest(label=None, vms=(replace(silent, vcpus=2),)), seen, prune=False)
    assert [(one.field, one.there, one.wanted) for one in change.fields] == [("vcpus", "1", "2")]


@pytest.mark.parametrize("tpm", [True, False])
def test_a_tpm_that_a_file_leaves_to_the_profile_is_no_difference(tpm: bool) -> None:
    vm = ManifestVm(
        name="a", tenant="t", profile="p", image="i", vcpus=1, memory_mib=64, disk_bytes=GIB, network="n",
        running=True, has_user_data=False, tpm=tpm,
    )  # fmt: skip
    existing = Existing(
        networks={}, images={}, vms={"t/a": ExistingVm(vm=vm, state="running", on_host=None, label=None)}
    )
    for same in (tpm, None):
        assert changes(Manifest(label=None, vms=(replace(vm, tpm=same),)), existing, prune=False) == ()
    (change,) = changes(Manifest(label=None, vms=(replace(vm, tpm=not tpm),)), existing, prune=False)
    assert [(field.field, field.there, field.wanted) for field in change.fields] == [
        ("tpm", str(tpm).lower(), str(not tpm).lower())
    ]


def test_a_disk_that_was_made_of_another_backup_is_refused_and_one_that_is_called_by_its_beginning_is_left() -> None:
    wanted = VmForm(name="twin", profile="p", image="i", from_backup="1f30c8aa").to_core()
    (made,) = changes(Manifest(label=None, vms=(wanted,)), Existing(networks={}, images={}, vms={}), prune=False)
    assert ("from_backup", "1f30c8aa") in {(field.field, field.wanted) for field in made.fields}
    for had, left, told in (
        ("1f30c8aa-9d", wanted, []), (None, wanted, ["none"]), ("77", wanted, ["77"]),
        ("77", replace(wanted, from_backup=None), []),
    ):  # fmt: skip
        made_of = ExistingVm(vm=replace(wanted, from_backup=had), state="running", on_host=None, label=None)
        existing = Existing(networks={}, images={}, vms={wanted.key: made_of})
        differing = changes(Manifest(label=None, vms=(left,)), existing, prune=False)
        assert [field.there for change in differing for field in change.fields] == told


def test_a_disk_that_was_made_of_another_snapshot_is_refused_and_one_of_which_a_file_says_nothing_is_left() -> None:
    form = VmForm(name="twin", profile="p", image="i", from_snapshot="train/before")
    wanted = form.to_core()
    (made,) = changes(Manifest(label=None, vms=(wanted,)), Existing(networks={}, images={}, vms={}), prune=False)
    assert ("from_snapshot", "train/before") in {(field.field, field.wanted) for field in made.fields}
    for there, left, told in (
        ("train/before", wanted, []), (None, wanted, ["none"]), ("train/other", wanted, ["train/other"]),
        ("train/other", replace(wanted, from_snapshot=None), []),
    ):  # fmt: skip
        made_of = ExistingVm(vm=replace(wanted, from_snapshot=there), state="running", on_host=None, label=None)
        existing = Existing(networks={}, images={}, vms={wanted.key: made_of})
        differing = changes(Manifest(label=None, vms=(left,)), existing, prune=False)
        assert [field.there for change in differing for field in change.fields] == told


def test_every_value_that_is_told_is_a_word_of_the_file() -> None:
    vm = ManifestVm(
        name="a", tenant="t", profile="p", image="i", vcpus=1, memory_mib=1, disk_bytes=GIB, network="n",
        ssh_keys=("k",), host="h", boot_policy="local", running=True, has_user_data=True, user_data="x",
        end=WantedEnd(after_s=60),
    )  # fmt: skip
    (change,) = changes(Manifest(label=None, vms=(vm,)), Existing(networks={}, images={}, vms={}), prune=False)
    assert {one.field for one in change.fields} <= set(VmForm.model_fields)
    late = ExistingVm(vm=vm, state="running", on_host="h", label=None, created_at=100.0, lease_end=120.0)
    (longer,) = changes(
        Manifest(label=None, vms=(vm,)), Existing(networks={}, images={}, vms={"t/a": late}), prune=False
    )
    assert [one.field for one in longer.fields] == ["until"]


def _offering(**values: Any) -> Offering:
    return Offering(name="quarter", origin="site", kind="time_sliced", vgpu_type="GRID T4-4Q", **values)


def _offering_changes(there: Offering | None, wanted: Offering, *, in_use: bool = False) -> list[tuple[str, list[str]]]:
    vm = ManifestVm(
        name="a", tenant="red", profile="quarter", image="a", vcpus=1, memory_mib=64, disk_bytes=1, network="a",
        ssh_keys=(), host=None, running=True, boot_policy="local", has_user_data=False,
    )  # fmt: skip
    found = ExistingVm(vm=vm, state="running", on_host="h1", label=None)
    world = Existing(
        networks={},
        images={},
        vms={vm.key: found} if in_use else {},
        offerings={} if there is None else {"quarter": there},
    )
    file = Manifest(label=None, offerings=(WantedOffering(offering=wanted),))
    return [
        (one.action, [f"{field.field}: {field.there} -> {field.wanted}" for field in one.fields])
        for one in changes(file, world, prune=False)
    ]


def test_an_offering_of_the_site_is_added_changed_while_free_and_refused_in_use() -> None:
    plain = _offering()
    shared = _offering(scheduler=Scheduler(policy="equal_share", time_slice_ms=2), migratable=True)
    differing = [
        "migratable: none -> true",
        "scheduler.policy: none -> equal_share",
        "scheduler.time_slice_ms: none -> 2",
    ]
    assert _offering_changes(None, plain) == [("add", ["kind: None -> time_sliced", "vgpu_type: None -> GRID T4-4Q"])]
    assert _offering_changes(plain, plain, in_use=True) == []
    assert _offering_changes(plain, shared) == [("set", differing)]
    assert _offering_changes(plain, shared, in_use=True) == [("refuse", differing)]
    assert _offering_changes(shared, plain)[0][1][0] == "migratable: true -> none"


def test_labels_and_settings_of_an_offering_are_compared_one_by_one_in_whatever_order_they_come() -> None:
    one = _offering(hosts=(("rack", "3"), ("tier", "gold")), provision_settings={"a": 1, "b": "x"})
    other = _offering(hosts=(("tier", "gold"), ("rack", "3")), provision_settings={"b": "x", "a": 1})
    assert _offering_changes(one, other, in_use=True) == []
    assert _offering_changes(one, _offering(hosts=(("tier", "gold"),), provision_settings={"a": 2, "b": "x"})) == [
        ("set", ["hosts.rack: 3 -> none", "provision_settings.a: 1 -> 2"])
    ]


@pytest.mark.parametrize(
    ("there", "differing"),
    [
        (WantedNetwork(name="n", uplink=Uplink(bridge="br0", vlan=7)), []),
        (WantedNetwork(name="n", uplink=Uplink(bridge="br0")), [("vlan", "none", "7")]),
        (
            WantedNetwork(name="n", uplink=Uplink(bridge="br1", vlan=7), dhcp_servers=("192.0.2.1",)),
            [("bridge", "br1", "br0"), ("dhcp_servers", "192.0.2.1", "none")],
        ),
        (
            WantedNetwork(name="n", subnet="10.0.0.0/24"),
            [("bridge", "none", "br0"), ("subnet", "10.0.0.0/24", "none"), ("vlan", "none", "7")],
        ),
    ],
)
def test_a_network_on_another_bridge_is_another_network(
    there: WantedNetwork, differing: list[tuple[str, str, str]]
) -> None:
    wanted = Manifest(label=None, networks=(WantedNetwork(name="n", uplink=Uplink(bridge="br0", vlan=7)),))
    found = changes(wanted, Existing(networks={"n": there}, images={}, vms={}), prune=False)
    assert [one.action for one in found] == ["refuse"] * bool(differing)
    assert [(one.field, one.there, one.wanted) for change in found for one in change.fields] == differing


@pytest.mark.parametrize(
    ("pool", "told"),
    [("fast", []), (None, []), ("slow", [("pool", "fast", "slow")]), ("none", [("pool", "fast", "none")])],
)
def test_a_volume_that_lies_in_another_pool_is_refused_and_one_that_names_none_is_left(
    pool: str | None, told: list[object]
) -> None:
    volume = WantedVolume(name="data", tenant="t", size_bytes=GIB, pool="fast")
    existing = Existing(networks={}, images={}, vms={}, volumes={volume.key: volume})
    file = Manifest(label=None, volumes=(replace(volume, pool=pool),))
    refused = changes(file, existing, prune=False)
    assert [(one.field, one.there, one.wanted) for change in refused for one in change.fields] == told
    assert {change.action for change in refused} <= {"refuse"}
    (added,) = changes(file, replace(existing, volumes={}), prune=False)
    assert (added.action, [one.field for one in added.fields]) == ("add", ["size", "pool"] if pool else ["size"])
