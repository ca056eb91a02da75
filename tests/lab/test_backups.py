# SPDX-License-Identifier: Apache-2.0
"""Backups of a VM on a lab host into a directory that is mounted there: made while its guest runs, the second one adds
little more than was written, a policy makes and verifies a third, and what each holds is on the disk again; a data
volume is part of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.lab.enrolled import Enrolled
from tests.lab.test_data_volumes import FAR, FILES, SIZE_MIB, disk_of, read

pytestmark = [pytest.mark.lab, pytest.mark.parametrize("enrolment", ["t4"], indirect=True)]

_AGENT = "/var/lib/vgpuctl-agent"
_FILES = f"ls {_AGENT}/volumes"
_OWN = "cd /sys/block; for disk in vd*; do [ $(($(cat $disk/size) / 2048)) = 256 ] && break; done; "
_FAR = 200
"""MiB from the disk's beginning: behind all that the guest has there."""
_MIB = 1024**2


def _mount(enrolled: Enrolled, target: str) -> None:
    """A file system of its own; and restic, which is one file, where the image has none."""
    if not enrolled.shell("command -v restic || true").strip():
        enrolled.host.send(Path("/usr/bin/restic"), "/usr/bin/restic")
        enrolled.shell("chmod 755 /usr/bin/restic")
    enrolled.shell(f"mkdir -p {target} && mount -t tmpfs -o size=512M,mode=0700 nas {target}")


def _write(enrolled: Enrolled, text: str) -> None:
    """A MiB of noise with the text at its beginning, on the disk when it returns."""
    noise = f"(echo {text}; dd if=/dev/urandom bs=1k count=1023 2>/dev/null) | dd of=/dev/$disk bs=64k seek={_FAR * 16}"
    enrolled.in_guest("train", f"{_OWN}{noise} iflag=fullblock conv=fsync 2>/dev/null")


def _read(enrolled: Enrolled) -> str:
    return enrolled.in_guest(
        "train", f"{_OWN}dd if=/dev/$disk bs=1M skip={_FAR} count=1 2>/dev/null | head -n 1"
    ).strip()


def _backups(enrolled: Enrolled) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = enrolled.product.json("backup", "list")
    return found


def _made_and_verified_by(enrolled: Enrolled, policy: str) -> dict[str, object]:
    """The newest one, once the server has made and verified it by itself. The policy's period began long ago."""
    span = ("--every", "366d", "--verify-every", "366d")
    enrolled.product.ok("backup", "policy", "create", policy, *span, "--keep-daily", "1")
    patience = time.monotonic() + 600
    while not (newest := _backups(enrolled)[-1])["verified_at"]:
        assert time.monotonic() < patience, enrolled.product.json("backup", "policy", "show", policy)
        time.sleep(5)
    assert (newest["policy"], newest["taken_of"]) == (policy, "running")
    enrolled.product.ok("backup", "policy", "delete", policy, "--yes")
    return newest


def test_a_disk_is_again_as_it_was_when_it_was_backed_up(enrolled: Enrolled) -> None:
    product, target = enrolled.product, f"{_AGENT}/backups/nas"
    before = enrolled.shell(_FILES).split()
    _mount(enrolled, target)
    try:
        product.ok("backup", "target", "create", "nas")
        product.ok(*enrolled.request("train", "--ssh-key", enrolled.public_key))
        _write(enrolled, "first")
        product.ok("backup", "run", "train")
        _write(enrolled, "second")
        product.ok("backup", "run", "train")
        first, second = _backups(enrolled)
        assert first["taken_of"] == "running"
        added = int(str(second["added_bytes"]))
        assert _MIB <= added <= 8 * _MIB, f"{added} bytes for one MiB, in chunks of up to 8"
        _write(enrolled, "third")
        third = _made_and_verified_by(enrolled, "nightly")
        product.ok("stop-vm", "train")
        for backup, text in ((first, "first"), (second, "second"), (third, "third")):
            product.ok("backup", "verify", str(backup["id"]))
            product.ok("backup", "restore", "train", str(backup["id"]), "--yes")
            product.ok("start-vm", "train")
            assert _read(enrolled) == text
            product.ok("stop-vm", "train")
        enrolled.clear()
        assert enrolled.shell(_FILES).split() == before
        assert len(_backups(enrolled)) == 3, "they outlive their VM"
        for backup in (first, second, third):
            product.ok("backup", "delete", str(backup["id"]), "--yes")
        product.ok("backup", "target", "delete", "nas", "--yes")
    finally:
        enrolled.shell(f"umount {target}")


def test_a_disk_and_a_volume_are_of_one_moment_and_the_volume_becomes_a_new_one(enrolled: Enrolled) -> None:
    """A guest writes one number after the other, to its volume first and then to its disk: never is the disk ahead."""
    product, target, own = enrolled.product, f"{_AGENT}/backups/nas", "/dev/vda"
    _mount(enrolled, target)
    try:
        product.ok("backup", "target", "create", "nas")
        product.ok("volume", "create", "data", "--size", f"{SIZE_MIB}MiB")
        product.ok(*enrolled.request("train", "--volume", "data", "--ssh-key", enrolled.public_key))
        disk, at = disk_of(enrolled, "train"), "bs=1M conv=sync,fsync 2>/dev/null"
        each = f"echo $i | dd of={disk} seek={FAR} {at}; echo $i | dd of={own} seek={_FAR} {at}"
        enrolled.in_guest("train", f"(i=0; while :; do i=$((i+1)); {each}; done) </dev/null >/dev/null 2>&1 & sleep 3")
        product.ok("backup", "run", "train")
        (backup,) = _backups(enrolled)
        assert [each["name"] for each in backup["volumes"]] == ["data"]
        product.ok("stop-vm", "train", "--force")
        product.ok("backup", "restore", "train", str(backup["id"]), "--yes")
        product.ok("volume", "create", "again", "--from-backup", f"{backup['id']}/data")
        product.ok("volume", "attach", "again", "train")
        product.ok("start-vm", "train")
        on_disk = f"dd if={own} bs=1M skip={_FAR} count=1 2>/dev/null | head -n 1 | tr -d '\\0'"
        assert int(read(enrolled, "train")) - int(enrolled.in_guest("train", on_disk)) in {0, 1}
        assert read(enrolled, "train", "again") == read(enrolled, "train")
        enrolled.clear()
        for volume in ("data", "again"):
            product.ok("volume", "delete", volume, "--yes")
        assert enrolled.shell(FILES).split() == []
        product.ok("backup", "delete", str(backup["id"]), "--yes")
        product.ok("backup", "target", "delete", "nas", "--yes")
    finally:
        enrolled.shell(f"umount {target}")
