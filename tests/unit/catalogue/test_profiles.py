# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.catalogue.profiles import read_profiles, resolve_profile, shipped_profiles
from orchestrator.core.errors import InvalidInput


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
    found = resolve_profile(name)
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
    with pytest.raises(InvalidInput) as caught:
        resolve_profile(name)
    assert caught.value.code == "profile.unknown"
    assert caught.value.hint is not None
    assert hint in caught.value.hint


def test_a_hostile_name_cannot_draw_on_the_terminal() -> None:
    with pytest.raises(InvalidInput) as caught:
        resolve_profile("\x1b[2J\n" + "x" * 10_000)
    assert "\x1b" not in caught.value.message
    assert len(caught.value.message) < 200


def test_a_type_that_only_a_driver_knows_works_where_it_is_offered() -> None:
    with pytest.raises(InvalidInput):
        resolve_profile("NVIDIA Z9-1-8C")
    found = resolve_profile("NVIDIA Z9-1-8C", host_types=["NVIDIA Z9-1-8C", "Strange Type"])
    assert (found.kind, found.vgpu_type) == ("mig_backed", "NVIDIA Z9-1-8C")
    assert resolve_profile("Strange Type", host_types=["Strange Type"]).kind == "time_sliced"


def test_a_site_may_add_offerings_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(
        "schema_version: 1\nofferings:\n  - {name: ours, kind: mig, mig_profile: 1g.10gb}\n"
    )
    profiles = read_profiles((tmp_path,))
    assert profiles.resolve("ours").mig_profile == "1g.10gb"
    assert set(shipped_profiles().offerings) < set(profiles.offerings)


def test_every_name_of_every_table_resolves() -> None:
    profiles = shipped_profiles()
    for name in (*profiles.offerings, *profiles.catalogue.type_names, *profiles.catalogue.profile_names):
        assert profiles.resolve(name).name == name
