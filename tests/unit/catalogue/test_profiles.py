# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from orchestrator.catalogue.profiles import shipped_profiles
from orchestrator.core.errors import NotFound
from orchestrator.core.offerings.offering import Offering


@pytest.mark.parametrize(
    "name, origin, kind, vgpu_type, mig_profile, gpu_count",
    [
        ("t4-2q", "catalogue", "time_sliced", "GRID T4-2Q", None, 0),
        ("GRID T4-2Q", "vgpu_type", "time_sliced", "GRID T4-2Q", None, 0),
        ("NVIDIA H100-1-10C", "vgpu_type", "mig_backed", "NVIDIA H100-1-10C", None, 0),
        ("2g.20gb", "mig_profile", "mig", None, "2g.20gb", 0),
        ("1g.10gb+me", "mig_profile", "mig", None, "1g.10gb+me", 0),
        ("gpu:1", "gpu_count", "passthrough", None, None, 1),
        ("gpu:8", "gpu_count", "passthrough", None, None, 8),
    ],
)
def test_a_name_stands_for_an_offering(
    name: str, origin: str, kind: str, vgpu_type: str | None, mig_profile: str | None, gpu_count: int
) -> None:
    found = shipped_profiles().resolve(name)
    parts = (found.origin, found.kind, found.vgpu_type, found.mig_profile, found.gpu_count)
    assert parts == (origin, kind, vgpu_type, mig_profile, gpu_count)
    assert found.name == name


@pytest.mark.parametrize(
    "name, hint",
    [
        ("t4-2z", "did you mean"),
        ("NVIDIA L40S-12X", "NVIDIA L40S-12Q"),
        ("GRID T4-2QQ", "GRID T4-2Q"),
        ("2g.21gb", "2g.2"),
        ("gpu:0", "gpu:1 to gpu:16"),
        ("gpu:17", "gpu:1 to gpu:16"),
        ("gpu:01", "gpu:1 to gpu:16"),
        ("", "vgpuctl profile list"),
        ("quantum accelerator", "vgpuctl profile list"),
    ],
)
def test_an_unknown_name_is_refused_with_what_may_have_been_meant(name: str, hint: str) -> None:
    with pytest.raises(NotFound) as caught:
        shipped_profiles().resolve(name)
    assert caught.value.code == "profile.unknown"
    assert caught.value.hint is not None
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("written", "known"),
    [
        ("T4-2Q", "t4-2q, GRID T4-2Q"),
        ("grid_t4-2q", "t4-2q, GRID T4-2Q"),
        ("NVIDIA T4-2Q", "t4-2q, GRID T4-2Q"),
        ("Tesla T4 2Q", "t4-2q, GRID T4-2Q"),
        ("l40s_12Q ", "l40s-12q, NVIDIA L40S-12Q"),
        ("H100-1-10C", "NVIDIA H100-1-10C"),
        ("GRID H100-1-10C", "NVIDIA H100-1-10C"),
        ("MIG 1g.10gb", "1g.10gb"),
        ("nvidia.com/mig-1g.10gb", "1g.10gb"),
        ("mig-1g.10gb.me", "1g.10gb+me"),
    ],
)
def test_a_name_as_manuals_and_tools_write_it_is_answered_with_that_one_alone(written: str, known: str) -> None:
    with pytest.raises(NotFound) as caught:
        shipped_profiles().resolve(written)
    assert caught.value.hint == f"did you mean {known}?"
    for name in known.split(", "):
        assert shipped_profiles().resolve(name).name == name


@pytest.mark.parametrize("number", ["nvidia-223", "223"])
def test_a_number_of_a_type_is_answered_with_where_their_names_are(number: str) -> None:
    with pytest.raises(NotFound) as caught:
        shipped_profiles().resolve(number)
    assert caught.value.hint == "numbers of types differ from driver to driver: 'vgpuctl profile list' has their names"


def test_a_hostile_name_cannot_draw_on_the_terminal() -> None:
    with pytest.raises(NotFound) as caught:
        shipped_profiles().resolve("\x1b[2J\n" + "x" * 10_000)
    assert "\x1b" not in caught.value.message
    assert len(caught.value.message) < 200


def test_a_type_that_only_a_driver_knows_works_where_it_is_offered() -> None:
    with pytest.raises(NotFound):
        shipped_profiles().resolve("NVIDIA Z9-1-8C")
    found = shipped_profiles().resolve("NVIDIA Z9-1-8C", host_types=["NVIDIA Z9-1-8C", "Strange Type"])
    assert (found.kind, found.vgpu_type) == ("mig_backed", "NVIDIA Z9-1-8C")
    assert shipped_profiles().resolve("Strange Type", host_types=["Strange Type"]).kind == "time_sliced"


def test_an_offering_of_the_site_wins_over_one_that_a_later_release_ships_under_its_name() -> None:
    added = [
        Offering(name=name, origin="site", kind="mig", mig_profile="1g.10gb", description="ours")
        for name in ("ours", "t4-2q")
    ]
    profiles = shipped_profiles().with_site(added)
    assert [profiles.resolve(one.name) for one in added] == added
    assert set(profiles.offerings) - set(shipped_profiles().offerings) == {"ours"}
    assert shipped_profiles().resolve("t4-2q").origin == "catalogue"


@pytest.mark.parametrize(
    ("name", "vgpu_type", "meaning"),
    [
        ("t4-2q", "GRID T4-2Q", "t4-2q comes with vgpuctl"),
        ("m10-1q", "GRID M10-2Q", "m10-1q reads as the vGPU type GRID M10-1Q"),
        ("strange-type", "GRID T4-2Q", "strange-type reads as the vGPU type strange-type"),
        ("m10-1q", "GRID M10-1Q", None),
        ("small", "GRID T4-1Q", None),
    ],
)
def test_a_sites_name_may_not_be_taken_for_something_else(name: str, vgpu_type: str, meaning: str | None) -> None:
    wanted = Offering(name=name, origin="site", kind="time_sliced", vgpu_type=vgpu_type)
    assert shipped_profiles().taken(wanted, host_types=["strange-type"]) == meaning


def test_every_name_of_every_table_resolves() -> None:
    profiles = shipped_profiles()
    for name in (*profiles.offerings, *profiles.catalogue.type_names, *profiles.catalogue.profile_names):
        assert profiles.resolve(name).name == name
