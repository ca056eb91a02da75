# SPDX-License-Identifier: Apache-2.0
"""Each QEMU under an AppArmor profile of its own, by libvirt's own rules, for each kind of vGPU."""

from __future__ import annotations

import shlex

import pytest

from tests.lab.enrolled import Enrolled

pytestmark = pytest.mark.lab

_UNDER = """
import sys
with open("/proc/self/attr/current", "w") as label:
    label.write("changeprofile " + sys.argv[1])
for path in sys.argv[2:]:
    try:
        open(path, "rb").close()
        print("opened")
    except PermissionError:
        print("refused")
"""
"""What a guest could open that had taken over its QEMU, and were root besides."""


def _volume(enrolled: Enrolled, name: str) -> str:
    return enrolled.shell(f"ls /var/lib/vgpuctl-agent/volumes/{enrolled.product.json('show-vm', name)['id']}*").strip()


def test_a_qemu_reaches_its_own_disk_and_no_other(enrolled: Enrolled) -> None:
    product = enrolled.product
    product.ok(*enrolled.request("mine"))
    product.ok(*enrolled.request("other", "--no-start"))
    profile = f"libvirt-{product.json('show-vm', 'mine')['id']}"
    assert enrolled.is_confined("mine")
    files = [_volume(enrolled, "mine"), _volume(enrolled, "other"), "/etc/shadow", "/etc/vgpuctl-agent/config.json"]
    tried = enrolled.shell(shlex.join(["python3", "-c", _UNDER, profile, *files])).split()
    assert tried == ["opened", "refused", "refused", "refused"]


def test_the_host_says_that_it_confines_and_nothing_is_found(enrolled: Enrolled) -> None:
    product = enrolled.product
    assert product.json("host", "show", enrolled.name)["software"]["confinement"] == "apparmor"
    assert product.run("doctor", "-o", "json").json() == []
