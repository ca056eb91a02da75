# SPDX-License-Identifier: Apache-2.0
"""A guest's file system is frozen while a copy of its volume begins: by a guest agent of a few lines, the small guest
has no other."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tests.lab.enrolled import Enrolled
from tests.lab.test_data_volumes import FILES, disk_of, volume  # noqa: F401 - the fixture

pytestmark = [pytest.mark.lab, pytest.mark.parametrize("enrolment", ["t4"], indirect=True)]

_DIRECTORY = FILES.removeprefix("ls ")
_AGENT = base64.b64encode(Path(__file__).with_name("guest_agent.sh").read_bytes()).decode()
_IN_BACKGROUND = "setsid sh -c '{}' </dev/null >/dev/null 2>&1 &"
_LINES = "wc -l </mnt/log"


def test_a_guest_agent_freezes_file_systems_while_a_copy_begins(enrolled: Enrolled, volume: str) -> None:  # noqa: F811
    """An ext4 that was frozen has nothing in its journal. The guest writes all the while, and goes on."""
    product = enrolled.product
    product.ok(*enrolled.request("train", "--volume", volume, "--ssh-key", enrolled.public_key))
    (own,) = enrolled.shell(FILES).split()
    enrolled.shell(f"mkfs.ext4 -q -F {_DIRECTORY}/{own}")
    enrolled.in_guest("train", f"mkdir -p /mnt && mount -t ext4 {disk_of(enrolled, 'train')} /mnt")
    writes = "while true; do date >>/mnt/log; sleep 0.1; done"
    enrolled.in_guest("train", _IN_BACKGROUND.format(writes))
    for frozen in (False, True):
        if frozen:
            enrolled.in_guest("train", f"echo {_AGENT} | base64 -d >/tmp/agent")
            enrolled.in_guest("train", _IN_BACKGROUND.format("sh /tmp/agent"))
        product.ok("volume", "snapshot", "create", volume, "now")
        (snapshot,) = product.json("volume", "snapshot", "list", volume)
        assert snapshot["quiesced"] == ("yes" if frozen else "no guest agent")
        (copy,) = set(enrolled.shell(FILES).split()) - {own}
        header = enrolled.shell(f"dumpe2fs -h {_DIRECTORY}/{copy} 2>/dev/null")
        assert ("needs_recovery" not in header) is frozen
        product.ok("volume", "snapshot", "delete", volume, "now", "--yes")
    lines = int(enrolled.in_guest("train", _LINES))
    assert int(enrolled.in_guest("train", f"sleep 3; {_LINES}")) > lines, "it stands still"
