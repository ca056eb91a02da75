# SPDX-License-Identifier: Apache-2.0
"""A half, a quarter and two eighths of one L40S: each where it was planned, as the driver says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scenarios.site import BOTH, LAB, ON_L40S, ONE_L40S, Site, site_on

HALF, QUARTER, EIGHTH = (f"l40s-{size}q-mixed" for size in (24, 12, 6))
EQUAL, BARE = "l40s-12q", "NVIDIA L40S-6Q"
OFFERINGS = f"""\
schema_version: 1
offerings:
  - name: {EIGHTH}
    kind: time_sliced
    vgpu_type: NVIDIA L40S-6Q
    mixed_sizes: true
"""


@pytest.fixture(scope="module", params=BOTH)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_on(request.param, tmp_path_factory.mktemp("site"), ON_L40S, ONE_L40S, OFFERINGS) as one:
        yield one


def mixes(site: Site) -> bool:
    shown = bool(site.shown()["mixed_sizes"])
    assert site.driver("heterogeneous") in {None, "1" if shown else "0"}
    return shown


def test_sizes_share_a_gpu_and_another_one_takes_the_place_of_one_that_leaves(site: Site) -> None:
    before = site.left()
    assert not mixes(site)
    site.create(HALF, "half")
    site.create(QUARTER, "quarter")
    site.create(EIGHTH, "eighth", "other")
    assert mixes(site)
    site.check_guest("half")
    assert site.fits(EIGHTH) == 0
    lie = sorted(site.slots().values())
    assert [end - start for start, end in lie] in ([24, 12, 6, 6], [24, 6, 6, 12], [12, 6, 6, 24], [6, 6, 12, 24])
    assert [start for start, _ in lie] == [0, *(end for _, end in lie[:-1])]
    site.refused(EQUAL, "gpu.other_cut_in_use")

    since, (start, end) = site.running_since("half"), site.slots()["quarter"]
    site.delete("quarter")
    site.create(EIGHTH, "third")
    site.create(BARE, "bare")
    now = site.slots()
    assert {now["third"], now["bare"]} == {(start, start + 6), (start + 6, end)}
    assert site.running_since("half") == since
    site.delete("third", "bare", "eighth", "other")
    assert mixes(site)
    site.delete("half")
    assert not mixes(site)
    assert site.left() == before


@pytest.mark.parametrize("site", ["memory"], indirect=True)
def test_a_stopped_vm_finds_its_place_again_and_the_last_one_leaves_the_gpu_as_it_was(site: Site) -> None:
    site.create(HALF, "half")
    site.create(QUARTER, "quarter")
    before = site.slots()
    site.product.ok("stop-vm", "half")
    assert mixes(site)
    site.create(EIGHTH, "eighth")
    assert site.slots()["half"] == before["half"]
    site.delete("quarter", "eighth")
    assert not mixes(site)
    assert site.fits(EQUAL) == 0
    site.product.ok("start-vm", "half")
    assert (mixes(site), site.slots()) == (True, {"half": before["half"]})
    site.delete("half")
    assert not mixes(site)
    site.create(EQUAL, *(f"equal-{number}" for number in range(4)))
    site.clear()


@pytest.mark.parametrize("site", [LAB], indirect=True)
def test_after_a_hard_reset_the_same_vgpus_lie_at_the_same_places_with_no_controller(site: Site) -> None:
    site.create(HALF, "half")
    site.create(QUARTER, "quarter")
    before = site.slots()
    site.hard_reset("half", "quarter")
    assert mixes(site)
    assert site.slots() == before
    site.clear()
    assert not mixes(site)
