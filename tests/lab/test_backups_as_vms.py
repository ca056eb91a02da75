# SPDX-License-Identifier: Apache-2.0
"""A backup on a lab host is booted without network, and becomes a VM when the one that it is of is gone."""

from __future__ import annotations

import pytest

from tests.lab.enrolled import Enrolled
from tests.lab.test_backups import _AGENT, _FILES, _OWN, _mount, _write

pytestmark = [pytest.mark.lab, pytest.mark.parametrize("enrolment", ["t4"], indirect=True)]


def _names(enrolled: Enrolled) -> list[str]:
    return sorted(str(vm["name"]) for vm in enrolled.product.json("list-vms"))


def test_a_backup_boots_alone_and_comes_back_as_a_vm(enrolled: Enrolled) -> None:
    product, target = enrolled.product, f"{_AGENT}/backups/nas"
    before = enrolled.shell(_FILES).split()
    _mount(enrolled, target)
    try:
        product.ok("backup", "target", "create", "nas")
        product.ok(*enrolled.request("train", "--ssh-key", enrolled.public_key))
        _write(enrolled, "kept")
        product.ok("backup", "run", "train")
        (backup,) = product.json("backup", "list")
        files = enrolled.shell(_FILES).split()
        product.ok("backup", "verify", backup["id"], "--boot", "--boot-timeout", "60s")
        shown = product.json("backup", "show", backup["id"])
        assert shown["boot_outcome"] in {"login", "output"}, "whether its console has a login is the image's matter"
        assert shown["boot_line"]
        assert (_names(enrolled), enrolled.shell(_FILES).split()) == (["train"], files)
        product.ok("delete-vm", "train")
        product.ok(*enrolled.request("twin", "--ssh-key", enrolled.public_key, "--from-backup", backup["id"]))
        read = f"{_OWN}dd if=/dev/$disk bs=1M skip=200 count=1 2>/dev/null | head -n 1"
        assert enrolled.in_guest("twin", read).strip() == "kept"
        enrolled.clear()
        assert enrolled.shell(_FILES).split() == before
        product.ok("backup", "delete", backup["id"], "--yes")
        product.ok("backup", "target", "delete", "nas", "--yes")
    finally:
        enrolled.shell(f"umount {target}")
