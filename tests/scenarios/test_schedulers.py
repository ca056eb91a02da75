# SPDX-License-Identifier: Apache-2.0
"""Half an L40S each, whatever the other one does: two VMs under fixed share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.scenarios.site import BOTH, LAB, ON_L40S, ONE_L40S, Site, site_on

HALF, EQUAL, PLAIN = "half-and-half", "l40s-12q-equal", "NVIDIA L40S-24Q"
OFFERINGS = f"""\
schema_version: 1
offerings:
  - name: {HALF}
    kind: time_sliced
    vgpu_type: NVIDIA L40S-24Q
    scheduler:
      policy: fixed_share
      time_slice_ms: 4
"""
FIXED = "3 1 0 0 4000000"
"""Policy, adaptive round robin off, its factor and frequency, the slice in ns: as the lab's driver keeps them."""


@pytest.fixture(scope="module", params=BOTH)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_on(request.param, tmp_path_factory.mktemp("site"), ON_L40S, ONE_L40S, OFFERINGS) as one:
        yield one


def scheduler(site: Site) -> dict[str, Any]:
    shown: dict[str, Any] = site.shown()["scheduler"]
    kept = site.driver("scheduler")
    assert kept is None or (kept == FIXED) == (shown["policy"] == "fixed_share")
    return shown


def test_two_vms_have_half_a_gpu_each_and_a_third_that_wants_it_otherwise_is_told_why(site: Site) -> None:
    before = site.left()
    assert scheduler(site)["policy"] == "best_effort"
    site.create(HALF, "one", "two")
    assert scheduler(site) == {"policy": "fixed_share", "time_slice_us": 4000, "share_percent": 50.0}
    site.check_guest("one")

    site.delete("two")
    since = site.running_since("one")
    for profile in (PLAIN, EQUAL):
        assert "divided otherwise" in site.refused(profile, "gpu.other_scheduler")
    assert (site.fits(HALF), site.fits(PLAIN)) == (1, 0)
    assert scheduler(site)["policy"] == "fixed_share"
    assert site.running_since("one") == since
    site.delete("one")
    assert scheduler(site)["policy"] == "best_effort"
    site.create(PLAIN, "other")
    site.delete("other")
    assert site.left() == before


@pytest.mark.parametrize("site", ["memory"], indirect=True)
def test_a_stopped_vm_keeps_its_gpu_for_its_like_and_the_last_one_leaves_it_as_it_was(site: Site) -> None:
    site.create(HALF, "one")
    site.product.ok("stop-vm", "one")
    assert scheduler(site)["policy"] == "best_effort"
    site.refused(PLAIN, "gpu.other_scheduler")
    site.product.ok("start-vm", "one")
    assert scheduler(site)["policy"] == "fixed_share"
    site.delete("one")
    assert scheduler(site)["policy"] == "best_effort"
    site.create(PLAIN, "two")
    site.clear()


@pytest.mark.parametrize("site", [LAB], indirect=True)
def test_after_a_hard_reset_the_gpu_divides_its_time_so_before_its_vm_runs_with_no_controller(site: Site) -> None:
    site.create(HALF, "one")
    site.hard_reset("one")
    assert scheduler(site)["policy"] == "fixed_share"
    site.clear()
    assert scheduler(site)["policy"] == "best_effort"
