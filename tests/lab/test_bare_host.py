# SPDX-License-Identifier: Apache-2.0
"""A host on which nobody put a driver: what it lacks is told, one command mends it, and VMs run on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.conftest import LabHost
from tests.lab.drivers import PROVISIONED_WITHIN_S, bring, built, loaded, lock, module_file, taken
from tests.lab.enrolled import BARE, Enrolled, enrol

pytestmark = [pytest.mark.lab]
VERSION = "570.172.08"


@pytest.fixture(scope="module")
def site(bare: LabHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enrolled]:
    """The host is added while it has no driver."""
    with enrol(BARE, bare, tmp_path_factory.mktemp("state")) as one:
        yield one


def missing(site: Enrolled, *which: str) -> dict[str, str]:
    """What the host lacks, with what would mend it."""
    found = site.product.run("host", "check", *which, "-o", "json")
    rows = [row for row in found.json()["requirements"] if row["state"] == "missing"]
    assert found.code == (3 if rows else 0), found.err
    return {row["name"]: row["remedy"] for row in rows}


def test_all_that_a_host_without_a_driver_lacks_is_told_before_and_after_it_is_added(site: Enrolled) -> None:
    host = site.host
    before = missing(
        site, "--address", host.address, "--port", str(host.port), "--provisioning-key", host.key_file,
        "--host-key-fingerprint", host.host_key_fingerprint,
    )  # fmt: skip
    assert set(before) == {"vfio", "driver"}
    assert "vgpuctl host provision" in before["driver"]
    assert missing(site, site.name) == before
    refused = site.product.run(*site.request("early"))
    assert refused.code != 0
    assert site.product.json("list-vms") == []


@pytest.mark.fault("F120")
def test_a_driver_that_was_signed_by_somebody_else_or_changed_since_is_not_taken(
    site: Enrolled, tmp_path: Path
) -> None:
    path, signature, key = built(tmp_path, VERSION)
    path.write_bytes(path.read_bytes() + b"x")
    assert "[bundle.signature_wrong]" in site.product.refused(2, *taken(path, signature, key)).err
    assert site.product.json("driver", "bundle", "list") == []


def test_one_command_brings_the_first_driver_and_a_second_time_changes_nothing(site: Enrolled, tmp_path: Path) -> None:
    bring(site.product, tmp_path, VERSION)
    lock(site.product, tmp_path, VERSION)
    site.product.ok("host", "provision", site.name, limit_s=PROVISIONED_WITHIN_S)
    assert loaded(site.host) == VERSION
    assert missing(site, site.name) == {}
    frameworks = [gpu["framework"] for gpu in site.product.json("gpu", "list")]
    assert frameworks == ["mdev", "vendor_vfio"]
    before = module_file(site.host)
    site.product.ok("host", "provision", site.name, limit_s=PROVISIONED_WITHIN_S)
    assert module_file(site.host) == before


def test_vms_of_both_kinds_run_under_the_first_driver(site: Enrolled) -> None:
    site.product.ok(*site.request("train"))
    site.product.ok(*site.request_of("draw", "GRID T4-4Q"))
    assert {vm["state"] for vm in site.product.json("list-vms")} == {"running"}
    assert site.guest_pci_id in site.guest_says("train")
