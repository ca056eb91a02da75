# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.errors import Conflict, InvalidInput, NotFound, VgpuctlError
from orchestrator.core.names import check_sha256
from orchestrator.core.operation import KINDS
from orchestrator.core.vms.image import NewImage
from orchestrator.core.vms.volume import Volume
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.server.settings import load_settings
from orchestrator.services.hosts.gpus import place_of
from orchestrator.services.vms.volume_claims import check_may_be_encrypted
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, create_vm, plane_with


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path) as made:
        yield made


@pytest.mark.fault("F125")
def test_an_image_in_use_stays_and_one_that_is_not_goes(plane: ControlPlane) -> None:
    plane.add_host(T4_HOST)
    plane.services.vms.create(create_vm(start=False))
    with pytest.raises(Conflict) as caught:
        plane.services.images.remove("guest")
    assert caught.value.code == "image.in_use"
    plane.services.images.add(NewImage(name="spare", source="/spare.qcow2"))
    plane.services.images.remove("spare")
    assert [image.name for image in plane.services.images.list()] == ["guest"]
    with pytest.raises(NotFound):
        plane.services.images.remove("spare")


def test_the_same_image_again_is_fine_and_other_content_under_its_name_is_not(plane: ControlPlane) -> None:
    first = plane.services.images.add(NewImage(name="base", source="/base.qcow2"))
    assert plane.services.images.add(NewImage(name="base", source="/base.qcow2")) == first
    with pytest.raises(Conflict) as caught:
        plane.services.images.add(NewImage(name="base", source="/other.qcow2"))
    assert caught.value.code == "image.exists"


def test_content_with_two_names_is_kept_until_both_are_gone(plane: ControlPlane) -> None:
    files = plane.image_files.files
    first = plane.services.images.add(NewImage(name="one", source="/same.qcow2"))
    plane.services.images.add(NewImage(name="two", source="/same.qcow2"))
    plane.services.images.remove("one")
    assert first.sha256 in files
    plane.services.images.remove("two")
    assert first.sha256 not in files


def test_a_host_whose_agent_is_of_another_build_than_the_server_says_so(plane: ControlPlane) -> None:
    plane.add_host(T4_HOST)
    hosts = plane.services.hosts
    snapshot = hosts.get("t4").snapshot
    assert snapshot is not None
    for own, differs in ((snapshot.agent_version, False), ("2", True)):
        assert replace(hosts, own_agent=partial(str, own)).get("t4").agent_differs == differs
    assert not hosts.get("t4").agent_differs  # simulated hosts have none


def test_profiles_count_what_fits_now(plane: ControlPlane) -> None:
    plane.add_host(T4_HOST)
    plane.add_host(L40S_HOST)
    profiles = plane.services.profiles
    assert (profiles.get("t4-2q").free, profiles.get("t4-2q").hosts) == (15, ("t4",))  # memory for so many
    plane.services.vms.create(create_vm(profile="GRID T4-1Q", start=False))
    assert profiles.get("GRID T4-1Q").free == 15
    assert profiles.get("t4-2q").free == 8
    assert {info.offering.name for info in profiles.list()} >= {"t4-2q", "l40s-12q", "NVIDIA L40S-12Q"}
    with pytest.raises(NotFound) as caught:
        profiles.get("l40s-12x")
    assert caught.value.code == "profile.unknown"
    assert "l40s-12q" in (caught.value.hint or "")


def test_gpus_are_looked_up_by_host_and_address(plane: ControlPlane) -> None:
    plane.add_host(T4_HOST)
    assert plane.services.gpus.get(T4_HOST, "0000:42:00.0").managed
    with pytest.raises(NotFound) as caught:
        plane.services.gpus.get(T4_HOST, "0000:99:00.0")
    assert caught.value.code == "gpu.unknown"
    with pytest.raises(NotFound):
        plane.services.gpus.list("nobody")


def test_a_hint_about_a_pool_fits_who_named_one_already(plane: ControlPlane) -> None:
    volume = Volume(
        id="v", tenant="default", name="data", size_bytes=1, host=None, vm=None, state="new", created_at=0, pool="fast",
        encryption="luks",
    )  # fmt: skip
    with plane.store.read() as tx, pytest.raises(InvalidInput) as refused:
        check_may_be_encrypted(tx, volume)
    assert refused.value.hint == "give '--pool none', or leave out '--encrypted'"


def test_a_page_of_gpus_begins_behind_the_one_before_and_ends_where_it_is_full(plane: ControlPlane) -> None:
    for host in (T4_HOST, L40S_HOST):
        plane.add_host(host)
    gpus = plane.services.gpus
    every = gpus.list(None)
    assert [place_of(info) for info in every] == sorted(place_of(info) for info in every)
    assert len(every) == 4
    for at, info in enumerate(every):
        assert gpus.list(None, place_of(info), 2) == every[at + 1 : at + 3]


@pytest.mark.parametrize(
    "change,code",
    [
        ({"name": ""}, "vm.name_invalid"),
        ({"name": "../x"}, "vm.name_invalid"),
        ({"name": "Ａ"}, "vm.name_invalid"),
        ({"tenant": "a b"}, "tenant.name_invalid"),
        ({"image": "/etc/passwd"}, "image.name_invalid"),
        ({"image": "nobody"}, "image.unknown"),
        ({"network": "nobody"}, "network.unknown"),
        ({"host": "nobody"}, "host.unknown"),
        ({"gpu": "0000:99:00.0"}, "gpu.unknown"),
        ({"gpu": "99"}, "pci.address_invalid"),
        ({"profile": "nobody"}, "profile.unknown"),
        ({"vcpus": -1}, "vcpus.out_of_range"),
        ({"vcpus": 10**6}, "vcpus.out_of_range"),
        ({"memory_mib": 1}, "memory.out_of_range"),
        ({"memory_mib": 2**44}, "memory.out_of_range"),
        ({"disk_bytes": 1}, "disk.out_of_range"),
        ({"disk_bytes": 2**60}, "disk.out_of_range"),
        ({"disk_bytes": 20 * 1024**2}, "disk.too_small"),
        ({"ssh_keys": ("ssh-rsa x",)}, "ssh_key.invalid"),
        ({"user_data": "hello"}, "user_data.unsupported"),
    ],
)
def test_bad_input_is_refused_in_one_line_and_changes_nothing(
    plane: ControlPlane, change: dict[str, Any], code: str
) -> None:
    plane.add_host(T4_HOST)
    with pytest.raises(VgpuctlError) as caught:
        plane.services.vms.create(replace(create_vm(), **change))
    assert caught.value.code == code
    assert isinstance(caught.value, NotFound if code.endswith(".unknown") else InvalidInput)
    assert "\n" not in caught.value.message
    assert plane.services.vms.list(None) == ()
    assert plane.engine.waiting == []


@pytest.mark.parametrize(
    "text", ["workers: 0\n", "wrkers: 4\n", "workers: many\n", "- a\n", "a: [\n", "refresh_seconds: .nan\n"]
)
def test_a_bad_settings_file_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("VGPUCTL_STATE", str(tmp_path))
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(InvalidInput) as caught:
        load_settings()
    assert caught.value.code == "settings.invalid"
    assert "\n" not in caught.value.message


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGPUCTL_STATE", str(tmp_path))
    monkeypatch.setenv("VGPUCTL_WORKERS", "3")
    (tmp_path / "config.yaml").write_text("workers: 5\noperations_per_host: 2\n")
    settings = load_settings()
    assert (settings.workers, settings.operations_per_host, settings.state) == (3, 2, tmp_path)


def test_the_kinds_that_may_be_asked_for_are_those_that_there_are() -> None:
    assert set(DEFINITIONS) == KINDS


@pytest.mark.parametrize("text", ["", "x", "a" * 63, "g" * 64, "٣" * 64, "a" * 64 + "\n"])
def test_a_digest_has_64_hexadecimal_digits(text: str) -> None:
    assert check_sha256("AB" * 32, "image.digest_invalid") == "ab" * 32
    with pytest.raises(InvalidInput) as refused:
        check_sha256(text, "image.digest_invalid")
    assert refused.value.code == "image.digest_invalid"
