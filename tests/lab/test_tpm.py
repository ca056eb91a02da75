# SPDX-License-Identifier: Apache-2.0
"""A VM with a TPM of its own: its guest finds it, what the guest stores in it outlives the host's power, and goes with
the VM."""

from __future__ import annotations

import pytest

from tests.lab.enrolled import Enrolled

pytestmark = [pytest.mark.lab, pytest.mark.parametrize("enrolment", ["t4"], indirect=True)]

VERSION = "cat /sys/class/tpm/tpm0/tpm_version_major"
# TPM2_HierarchyChangeAuth of the lockout authority, which has no password, to "sealed" (TPM 2.0 Library, part 3, 24.8).
# The owner's would do, but where hosts are emulated SeaBIOS waits too short for the TPM and switches that one off.
LOCK_IT = "80 02 00 00 00 23 00 00 01 29 40 00 00 0a 00 00 00 09 40 00 00 09 00 00 01 00 00 00 06 73 65 61 6c 65 64"
BYTES = "".join(f"\\{int(byte, 16):03o}" for byte in LOCK_IT.split())
ASK = (
    f"printf '{BYTES}' >/tmp/command; exec 3<>/dev/tpm0; dd if=/tmp/command bs=256 count=1 >&3 2>/dev/null; "
    "dd bs=256 count=1 <&3 2>/dev/null | hexdump -v -e '1/1 \"%02x\"'"
)
"""Each write of the device is a whole command, so it goes through a file."""
DONE, WRONG_PASSWORD = "00000000", {"0000098e", "00000921"}
"""Codes at bytes 6 to 9 of an answer: TPM_RC_AUTH_FAIL of the first session, and TPM_RC_LOCKOUT when it is asked again
before the TPM is reset."""
STATE = "ls /var/lib/libvirt/swtpm"


def lock_it(enrolled: Enrolled, vm: str) -> str:
    """The code of the TPM's answer to who gives it a password."""
    return enrolled.in_guest(vm, ASK).strip()[12:20]


def test_a_tpm_keeps_what_its_guest_stored_as_long_as_the_vm_is_there(enrolled: Enrolled) -> None:
    product, key = enrolled.product, ("--ssh-key", enrolled.public_key)
    product.ok(*enrolled.request("sealed", "--tpm", *key))
    vm = product.json("show-vm", "sealed")
    assert vm["tpm"] is True
    assert enrolled.in_guest("sealed", VERSION).strip() == "2"
    assert enrolled.is_confined("sealed")
    assert lock_it(enrolled, "sealed") == DONE

    product.ok("restart-vm", "sealed")
    assert lock_it(enrolled, "sealed") in WRONG_PASSWORD
    enrolled.restored_after_a_hard_reset("sealed")
    assert lock_it(enrolled, "sealed") in WRONG_PASSWORD
    assert product.json("doctor") == []

    assert vm["id"] in enrolled.shell(STATE).split()
    product.ok("delete-vm", "sealed", "--yes")
    assert vm["id"] not in enrolled.shell(STATE).split()
    assert enrolled.shell("pgrep -c swtpm || true").strip() == "0"
