# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from orchestrator.catalogue.catalogue import shipped
from orchestrator.core.drivers.matrix import branch_number, version_key
from orchestrator.core.errors import InvalidInput

MATRIX = shipped().driver_matrix


@pytest.mark.parametrize(
    "host, guest, accepted, basis",
    [
        ("580.65.05", "580.65.06", True, "branch_rule"),
        ("580.65.05", "570.124.06", True, "branch_rule"),
        ("580.65.05", "550.54.14", False, "branch_rule"),
        ("570.124.03", "580.65.06", False, "branch_rule"),
        ("535.104.06", "535.104.05", True, "table"),
        ("535.104.06", "470.182.03", True, "table"),
        ("535.104.06", "510.47.03", False, "branch_rule"),
        ("580.178.05", "535.309.01", True, "branch_rule"),
        ("580.178.05", "580.178.04", True, "branch_rule"),
        ("535.309.01", "470.256.02", True, "branch_rule"),
        ("595.71.03", "580.178.04", True, "branch_rule"),
        ("595.71.03", "535.309.01", False, "branch_rule"),
        ("570.211.01", "535.309.01", False, "branch_rule"),
        ("580.65.05", "470.256.02", False, "branch_rule"),
        ("470.256.02", "450.248.02", True, "branch_rule"),
        ("535.309.01", "450.248.02", False, "branch_rule"),
        ("580.65.05", "999.1.1", False, "unknown_driver"),
        ("999.1.1", "580.65.06", False, "unknown_driver"),
    ],
)
def test_a_host_takes_guests_that_its_table_lists_of_its_branch_the_one_before_and_the_long_term_one_before(
    host: str, guest: str, accepted: bool, basis: str
) -> None:
    verdict = MATRIX.guest_verdict(host_driver=host, guest_driver=guest)
    assert (verdict.accepted, verdict.basis) == (accepted, basis)
    assert verdict.reason


@pytest.mark.parametrize(
    "driver, toolkit, supported",
    [
        ("580.65.06", "13.1", True),
        ("570.124.06", "13.1", False),
        ("525.60.13", "12.9 GA", True),
        ("470.82.01", "12.0 GA", False),
        ("440.33", "10.2.89", True),
        ("418.39", "10.2.89", False),
        ("595.71.05", "13.2", True),
        ("570.124.06", "13.3 Update 1", False),
        ("620.10.02", "13.5", True),
        ("535.54.03", "13.0.2", False),
        ("580.65.06", "13.0.2", True),
        ("535.54.03", "13.9", False),
        ("525.60.13", "12.8.1", True),
        ("580.65.06", "99.0", None),
        ("580.65.06", "next", None),
    ],
)
def test_a_cuda_toolkit_runs_on_drivers_from_the_oldest_of_its_major(
    driver: str, toolkit: str, supported: bool | None
) -> None:
    assert MATRIX.cuda_supported(driver=driver, toolkit=toolkit) is supported


def test_a_driver_tells_its_release() -> None:
    host = MATRIX.release_of_host_driver("580.82.02")
    guest = MATRIX.release_of_guest_driver("580.88")
    assert host is not None
    assert guest is not None
    assert (host.name, guest.name) == ("19.1", "19.0")
    assert MATRIX.release_of_host_driver("1.2.3") is None


@pytest.mark.parametrize(
    "guest, release",
    [("595.58.03", "20.0"), ("595.97", "20.0"), ("595.71.05", "20.1"), ("580.105.08", "19.3"), ("596.86", "20.2"),
     ("570.211.01", "18.6"), ("573.76", "18.5"), ("552.55", "17.2"), ("539.72", "16.14"), ("535.274.02", "16.12"),
     ("535.183.06", "16.7"), ("538.67", "16.6"), ("529.19", "15.4"), ("510.108.03", "14.4"), ("475.06", "13.11"),
     ("470.239.06", "13.10"), ("450.248.02", "11.13")],
)  # fmt: skip
def test_the_guest_drivers_of_a_release_tell_it(guest: str, release: str) -> None:
    known = MATRIX.release_of_guest_driver(guest)
    assert known is not None
    assert known.name == release


def test_of_two_releases_with_one_driver_the_later_is_meant() -> None:
    release = MATRIX.release_of_host_driver("535.161.05")
    assert release is not None
    assert release.name == "16.5"


def test_driver_versions_compare_by_number() -> None:
    assert version_key("580.105.06") > version_key("580.95.05")
    assert branch_number("470.63") == 470


@pytest.mark.parametrize("text", ["", "580", "580.65.06.1", "R580", "580.x", "580.65\n"])
def test_what_is_no_driver_version_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="not a driver version"):
        version_key(text)
