# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.catalogue.manifest_file import read_manifest
from orchestrator.catalogue.quota_names import check_is_here
from orchestrator.core.errors import InvalidInput, NotFound, QuotaExceeded
from orchestrator.core.tenancy.quota import Limit
from tests.fakes.control_plane import T4_HOST, ControlPlane, create_vm, plane_with

T4 = "GRID T4-2Q"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST) as made:
        yield made


@pytest.mark.parametrize("limited", ["vgpus:t4-2q", f"vgpus:{T4}", "devices:Tesla T4", "devices:T4"])
@pytest.mark.parametrize("asked", ["t4-2q", T4])
def test_a_quota_holds_under_every_name_of_what_it_counts(plane: ControlPlane, limited: str, asked: str) -> None:
    plane.services.tenancy.quotas.change("default", {limited: 1})
    plane.services.vms.create(create_vm("a", profile="t4-2q"))
    with pytest.raises(QuotaExceeded):
        plane.services.vms.create(create_vm("b", profile=asked))


@pytest.mark.parametrize("limited", ["devices:", "vgpu"])
def test_a_key_that_no_quota_has_is_refused(plane: ControlPlane, limited: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        plane.services.tenancy.quotas.change("default", {limited: 1})
    assert caught.value.code == "quota.resource_unknown"


@pytest.mark.parametrize("limited", ["vgpus:t4-2x", "vgpus:GRID T4-3Q", "devices:T5", "devices:GRID T4-2Q"])
def test_a_key_that_names_what_is_not_there_is_not_found_as_elsewhere(plane: ControlPlane, limited: str) -> None:
    with pytest.raises(NotFound) as caught:
        plane.services.tenancy.quotas.change("default", {limited: 1})
    assert caught.value.code == "quota.name_unknown"
    with plane.store.read() as tx:
        assert tx.quotas.list() == ()


def test_a_limit_that_was_stored_under_another_name_can_be_taken_away(plane: ControlPlane) -> None:
    for name in ("vgpus:t4-2q", "vgpus:of-a-release-before"):
        with plane.store.begin() as tx:
            tx.quotas.put(Limit(tenant="default", resource=name, amount=1))
        plane.services.tenancy.quotas.change("default", {name: None})
    with plane.store.read() as tx:
        assert tx.quotas.list() == ()


def test_a_file_says_a_quota_as_the_server_keeps_it() -> None:
    text = "schema_version: 1\ntenants:\n  - {name: red, quota: {'vgpus:t4-2q': 2, 'devices:Tesla T4': 1, vms: 3}}\n"
    (tenant,) = read_manifest(Path("file"), text).tenants
    assert dict(tenant.quota) == {f"vgpus:{T4}": 2, "devices:T4": 1, "vms": 3}


@pytest.mark.parametrize(
    ("limited", "near"),
    [("devices:L4", "T4 ("), ("devices:H100", "T4 ("), ("vgpus:NVIDIA L40S-12Q", "T4 (")],
)
def test_a_limit_of_a_model_that_no_gpu_here_has_is_refused_with_those_that_are(
    plane: ControlPlane, limited: str, near: str
) -> None:
    quotas = plane.services.tenancy.quotas
    with pytest.raises(NotFound) as caught:
        quotas.change("default", {"vms": 1, limited: 1})
    assert (caught.value.code, near in str(caught.value.hint)) == ("quota.none_here", True)
    with plane.store.read() as tx:
        assert tx.quotas.list() == ()
    quotas.change("default", {limited: 1}, anyway=True)
    quotas.change("default", {limited: None})


def test_near_models_are_told_with_their_number() -> None:
    with pytest.raises(NotFound) as caught:
        check_is_here("devices:H100", {"H100XM": 8, "T4": 2})
    assert "did you mean H100XM (8 here)?" in str(caught.value.hint)
    for fine in ("devices", "devices:T4", "vgpus:GRID T4-2Q", "vgpus:some-offering", "memory"):
        check_is_here(fine, {"T4": 2})
    check_is_here("devices:H100", {})  # hosts are added after their tenants
