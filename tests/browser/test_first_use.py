# SPDX-License-Identifier: Apache-2.0
"""What the documentation says and shows of the pages. ``VGPUCTL_WRITE_PICTURES=1`` takes its pictures anew."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import pytest
from playwright.sync_api import Page, expect

from orchestrator.client.client import Client
from tests.browser.conftest import PROFILE, Arrive, ServedSite
from tests.fakes.simulated import serving_fleet, wish

ROOT: Final = Path(__file__).parents[2]
PICTURES: Final = ROOT / "docs/howto/pictures"
WRITES: Final = "VGPUCTL_WRITE_PICTURES" in os.environ
SCHEMES: Final[tuple[tuple[Literal["light", "dark"], str], ...]] = (("light", ""), ("dark", "-dark"))
"""And how the name of a picture's file ends."""
SHOWN: Final = ("map", "first-map", "first-vm", "first-fits", "first-refusal")
MAX_PICTURES: Final = 12
WIDTH: Final = 1100
POOL: Final = f"""\
groups:
  - {{name: a100, count: 1, gpu_model: A100 PCIe 80GB, gpus_per_host: 4, vcpus: 128, memory_gib: 1024}}
  - {{name: hgx, count: 1, gpu_model: H100 SXM5 80GB, gpus_per_host: 8, vcpus: 192, memory_gib: 2048}}
  - {{name: l40s, count: {498 if WRITES else 1}, gpu_model: L40S, gpus_per_host: 8, vcpus: 128, memory_gib: 1024}}
  - {{name: t4, count: {500 if WRITES else 1}, gpu_model: Tesla T4, gpus_per_host: 4, vcpus: 64, memory_gib: 256}}
"""
"""The pictures are of 1,000 hosts."""
POOL_VMS: Final[dict[str, tuple[str, ...]]] = {
    "speech": (
        *("a100-pcie-80-3-40c", "a100-pcie-80-2-20c", "a100-pcie-80-1-10c", "a100-pcie-80-1-10c", "h100-sxm-x4"),
        *["h100-sxm-10c"] * 3, *["NVIDIA L40S-12Q"] * 5, *[PROFILE] * 6,
    ),
    "vision": (
        *("a100-pcie-80-4-40c", "a100-pcie-80-3-40c", "a100-pcie-80-x1", "h100-sxm-x2"),
        *["NVIDIA L40S-24Q"] * 3, *["NVIDIA L40S-48Q"] * 2, *["a100-pcie-80-20c"] * 3,
    ),
}  # fmt: skip
DEMO: Final = "groups: [{name: new, count: 1, gpu_model: Tesla T4, gpus_per_host: 2, vcpus: 1, memory_gib: 64}]\n"
"""As the demo's lab host is where it is emulated: with one processor."""
DEMO_VMS: Final[dict[str, tuple[str, ...]]] = {"default": (PROFILE,)}
FLEETS: Final = {"pool": (POOL, POOL_VMS), "demo": (DEMO, DEMO_VMS)}


@pytest.fixture(scope="module", params=["pool"])
def site(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[ServedSite]:
    fleet, vms = FLEETS[request.param]
    with serving_fleet(tmp_path_factory.mktemp(request.param), fleet) as client:
        _fill(client, vms)
        yield ServedSite(client)


def _fill(client: Client, vms: dict[str, tuple[str, ...]]) -> None:
    begun = []
    for tenant, profiles in vms.items():
        if tenant != "default":
            client.create_tenant(tenant)
        names = ["demo"] if tenant == "default" else [f"{tenant}-{number}" for number in range(len(profiles))]
        begun += [
            client.create_vm({**wish(name, profile, vcpus=1), "tenant": tenant})
            for name, profile in zip(names, profiles, strict=True)
        ]
    for operation in begun:
        client.wait(operation)


def _picture(page: Page, name: str, *, whole: bool = True) -> None:
    for scheme, end in SCHEMES if WRITES else ():
        page.emulate_media(color_scheme=scheme)
        if whole:
            page.set_viewport_size({"width": WIDTH, "height": 300})  # a picture is as high as its page
        page.screenshot(path=PICTURES / f"{name}{end}.png", full_page=whole)


def test_the_map_shows_each_way_to_cut_a_gpu(arrive: Arrive) -> None:
    page = arrive(width=WIDTH).visit("map/gpus")
    for cut in ("MIG", "whole", "vGPUs of 20GiB"):
        expect(page.get_by_text(re.compile(cut)).first).to_be_visible()
    _picture(page, "map", whole=False)
    page.get_by_role("link", name="hgx-0", exact=True).click()
    expect(page.get_by_text(re.compile(r"\d+ \(modules \d(, \d){3}\)"))).to_be_visible()


@pytest.mark.parametrize("site", ["demo"], indirect=True)
def test_the_tutorial_s_way_through_the_pages(arrive: Arrive) -> None:
    """docs/tutorial/first-vm.md"""
    page = arrive(width=WIDTH).page
    expect(page.get_by_text("1 of 4 slots taken: default/demo")).to_be_visible()
    _picture(page, "first-map")
    page.get_by_role("link", name="VMs").click()
    page.get_by_role("link", name="default/demo").click()
    expect(page.get_by_role("heading", name="VM default/demo")).to_be_visible()
    expect(page.locator(".plot canvas").first).to_be_visible()
    _picture(page, "first-vm")
    _choose(page, "two", "GRID T4-8Q")
    expect(page.locator("#fit")).to_contain_text("It fits.")
    _picture(page, "first-fits")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("heading", name="Ways out")).to_be_visible()
    expect(page.get_by_role("status")).to_contain_text("done")
    expect(page.get_by_role("heading", name="Ways out")).to_be_hidden()
    _choose(page, "three", "GRID T4-16Q")
    expect(page.locator("#fit")).to_contain_text("no_capacity")
    _picture(page, "first-refusal")
    page.get_by_role("link", name="Profiles").click()
    page.get_by_role("link", name="t4-4q", exact=True).click()
    page.locator("[name=vcpus]").fill("1")
    page.keyboard.press("Tab")
    expect(page.locator("#fit")).to_contain_text("It fits.")
    page.get_by_role("link", name="Map").click()
    expect(page.get_by_text("1 of 2 slots taken: default/two")).to_be_visible()


def _choose(page: Page, name: str, profile: str) -> None:
    page.get_by_role("link", name="VMs").click()
    page.get_by_role("link", name="New VM").click()
    page.locator("[name=name]").fill(name)
    page.locator("[name=vcpus]").fill("1")
    page.locator("[name=memory]").fill("192MiB")
    page.locator("[name=disk]").fill("1GiB")
    page.locator("[name=profile]").select_option(profile)


def test_the_documentation_has_these_pictures_and_no_others() -> None:
    made = {f"{name}{end}.png" for name in SHOWN for _, end in SCHEMES}
    assert {file.name for file in PICTURES.glob("*")} == made
    assert len(made) <= MAX_PICTURES
    pages = "".join(page.read_text() for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    assert {name for name in made if f"pictures/{name}" not in pages} == set()


def test_the_tutorial_names_the_demo_s_host() -> None:
    host = re.search(r"^HOST=(\S+)$", (ROOT / "demo/settings").read_text(), re.MULTILINE)
    assert host is not None
    assert f"make lab-ssh NAME={host[1]}`" in (ROOT / "docs/tutorial/first-vm.md").read_text()
