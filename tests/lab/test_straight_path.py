# SPDX-License-Identifier: Apache-2.0
"""One VM request from the command line to the guest's own lspci and back, on each kind of vGPU host."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.fakes.several import until
from tests.lab.enrolled import MDEV, SMALL, THE_FIRST, Enrolled
from tests.lab.host_facts import facts, vgpu_count
from tests.lab.product import names

pytestmark = [pytest.mark.lab, pytest.mark.parametrize("enrolment", THE_FIRST, indirect=True)]

_AT_ONCE = 4
"""Commands side by side."""


def test_a_vm_sees_its_vgpu_and_everything_is_given_back(enrolled: Enrolled) -> None:
    product = enrolled.product
    before = facts(enrolled.shell)
    product.ok(*enrolled.request("train", "--ssh-key", enrolled.public_key))

    shown = product.json("show-vm", "train")
    assert (shown["state"], shown["host"]) == ("running", enrolled.name)
    assert vgpu_count(enrolled.shell) == 1
    assert names(product.json("list-vms")) == ["train"]
    guest = enrolled.in_guest("train", "lspci", "-nn")
    assert enrolled.guest_pci_id in guest
    assert "[0302]" in guest
    _licence_is_told(enrolled, shown["id"])

    product.ok("stop-vm", "train")
    assert product.json("show-vm", "train")["state"] == "stopped"
    assert vgpu_count(enrolled.shell) == 0

    product.ok("start-vm", "train")
    assert enrolled.guest_pci_id in enrolled.in_guest("train", "lspci", "-nn")
    assert vgpu_count(enrolled.shell) == 1

    product.ok("delete-vm", "train")
    assert product.json("list-vms") == []
    assert facts(enrolled.shell) == before


def _licence_is_told(enrolled: Enrolled, vm: str) -> None:
    """As the host's driver has it, once the host is looked at again. No guest of the lab fetches one by itself."""

    def told() -> tuple[str, str | None]:
        licence = enrolled.product.json("show-vm", "train")["provisioned"]["licence"]
        return licence["state"], licence["until"]

    until(lambda: told() == ("unlicensed", None), "the licence that the guest has not")
    enrolled.shell(f"echo '{vm} 2031 1 2 3 4 5' > /run/vgpu-lab/licences")
    until(lambda: told() == ("licensed", "2031-01-02T03:04:05Z"), "the licence that the guest has")
    enrolled.shell("rm /run/vgpu-lab/licences")


def test_the_same_request_again_shows_the_vm_and_another_is_a_conflict(enrolled: Enrolled) -> None:
    product = enrolled.product
    request = ("create-vm", "twice", "--profile", enrolled.profile, "--image", "guest", "--no-start")
    product.ok(*request, *SMALL)
    first = product.json("show-vm", "twice")
    product.ok(*request, *SMALL)
    assert product.json("show-vm", "twice")["id"] == first["id"]
    product.refused(5, *request, "--vcpus", "1", "--memory", "256MiB", "--disk", "256MiB")
    product.ok("delete-vm", "twice")


def test_a_dry_run_prints_what_would_be_done_and_changes_nothing(enrolled: Enrolled) -> None:
    before = facts(enrolled.shell)
    shown = enrolled.product.ok(*enrolled.request("dry", "--dry-run")).out
    assert enrolled.device_action in shown
    assert "<domain" in shown
    assert facts(enrolled.shell) == before
    assert enrolled.product.json("list-vms") == []


def test_a_gpu_takes_as_many_vms_as_it_has_instances_and_says_why_not_more(enrolled: Enrolled) -> None:
    product = enrolled.product
    many = [f"many-{number}" for number in range(enrolled.instances)]
    running = many[:2] if enrolled.kind is MDEV else []

    def create(name: str) -> None:
        product.ok(*enrolled.request(name, *(() if name in running else ("--no-start",))))

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(create, many))
    assert names(product.json("list-vms")) == sorted(many)
    assert vgpu_count(enrolled.shell) == len(running)

    before = facts(enrolled.shell)
    outcome = product.refused(8, *enrolled.request("one-more"))
    assert "gpu.no_capacity" in outcome.err
    assert enrolled.gpu in outcome.err
    assert facts(enrolled.shell) == before

    other = product.refused(8, "create-vm", "other", "--profile", enrolled.other_size, "--image", "guest", *SMALL)
    assert enrolled.gpu in other.err
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(lambda name: product.ok("delete-vm", name), many))
    assert vgpu_count(enrolled.shell) == 0


def test_another_size_on_a_gpu_in_use_is_refused_and_explained(enrolled: Enrolled) -> None:
    product = enrolled.product
    product.ok(*enrolled.request("first", "--no-start"))
    outcome = product.refused(8, "create-vm", "second", "--profile", enrolled.other_size, "--image", "guest", *SMALL)
    assert "size" in outcome.err
    assert enrolled.gpu in outcome.err
    product.ok("delete-vm", "first")
