# SPDX-License-Identifier: Apache-2.0
"""What a guest had written is on its disk again once a snapshot is put back: of a VM that ran, and of a stopped one."""

from __future__ import annotations

import pytest

from tests.lab.enrolled import Enrolled

pytestmark = [pytest.mark.lab, pytest.mark.parametrize("enrolment", ["t4"], indirect=True)]

_FILES = "ls /var/lib/vgpuctl-agent/volumes"
_OWN = "cd /sys/block; for disk in vd*; do [ $(($(cat $disk/size) / 2048)) = 256 ] && break; done; "
_FAR = 200
"""MiB from the disk's beginning: behind all that the guest has there."""


def _write(enrolled: Enrolled, text: str, vm: str = "train") -> None:
    """On the disk when it returns."""
    enrolled.in_guest(vm, f"{_OWN}echo {text} | dd of=/dev/$disk bs=1M seek={_FAR} conv=sync,fsync 2>/dev/null")


def _read(enrolled: Enrolled, vm: str = "train") -> str:
    return enrolled.in_guest(vm, f"{_OWN}dd if=/dev/$disk bs=1M skip={_FAR} count=1 2>/dev/null | tr -d '\\0'").strip()


def test_a_disk_is_again_as_it_was_when_a_snapshot_was_taken(enrolled: Enrolled) -> None:
    product = enrolled.product
    before = enrolled.shell(_FILES).split()
    product.ok(*enrolled.request("train", "--ssh-key", enrolled.public_key))
    _write(enrolled, "first")
    product.ok("vm", "snapshot", "create", "train", "while-it-runs")
    _write(enrolled, "second")
    product.ok("stop-vm", "train")
    product.ok("vm", "snapshot", "create", "train", "stopped")
    for snapshot, text in (("while-it-runs", "first"), ("stopped", "second")):
        product.ok("vm", "snapshot", "restore", "train", snapshot, "--yes")
        product.ok("start-vm", "train")
        assert _read(enrolled) == text
        product.ok("stop-vm", "train")
    product.ok("vm", "snapshot", "delete", "train", "while-it-runs", "--yes")
    assert len(enrolled.shell(_FILES).split()) == len(before) + 2, "the disk and one snapshot"
    enrolled.clear()
    assert enrolled.shell(_FILES).split() == before


def test_a_new_vm_has_what_was_on_anothers_disk(enrolled: Enrolled) -> None:
    """It boots with a seed of its own, and what is written to either disk then is not on the other."""
    product = enrolled.product
    before = enrolled.shell(_FILES).split()
    product.ok(*enrolled.request("train", "--ssh-key", enrolled.public_key))
    _write(enrolled, "first")
    product.ok("vm", "snapshot", "create", "train", "before")
    _write(enrolled, "second")
    product.ok(*enrolled.request("twin", "--ssh-key", enrolled.public_key, "--from-snapshot", "train/before"))
    assert _read(enrolled, "twin") == "first"
    _write(enrolled, "third", "twin")
    assert _read(enrolled) == "second"
    product.ok("delete-vm", "train")
    assert _read(enrolled, "twin") == "third"
    enrolled.clear()
    assert enrolled.shell(_FILES).split() == before
