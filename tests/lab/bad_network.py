# SPDX-License-Identifier: Apache-2.0
"""A lab host whose network is bad, by its own kernel's ``tc netem``, for everybody but whoever makes it so."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.lab.conftest import LabHost

BAD = ("delay 200ms 20ms 25% loss 10% duplicate 5% reorder 5% 50%", "delay 20ms loss 5% duplicate 5%")
"""What the host sends, and what it is sent (tc-netem(8)); who answers for an address is told to everybody."""
SILENT = ("loss 100%", "loss 100%")
GOOD = ("delay 0", "delay 0")
_END = "said all"
_SET_UP = """
set -e
dev=$(ip -o route get 10.0.2.2 | sed 's/.* dev \\([^ ]*\\).*/\\1/'); set -- $SSH_CONNECTION
modprobe ifb numifbs=1; ip link set ifb0 up
tc qdisc add dev $dev root handle 1: prio bands 2 priomap 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1
tc qdisc add dev $dev parent 1:2 handle 2: netem delay 0
tc qdisc add dev ifb0 root handle 2: netem delay 0
tc filter add dev $dev parent 1: protocol ip prio 1 u32 match ip dport $2 0xffff match ip sport 22 0xffff flowid 1:1
tc filter add dev $dev parent 1: protocol arp prio 2 u32 match u32 0 0 flowid 1:1
tc qdisc add dev $dev handle ffff: ingress
tc filter add dev $dev parent ffff: protocol ip prio 1 u32 match ip sport $2 0xffff action pass
tc filter add dev $dev parent ffff: protocol ip prio 2 u32 match u32 0 0 action mirred egress redirect dev ifb0
set +e
"""
_BECOME = (
    """tc qdisc change dev $dev parent 1:2 handle 2: netem {} && tc qdisc change dev ifb0 root handle 2: netem {}"""
)
_DROPPED = "tc -s qdisc show dev $dev parent 1:2 | sed -n 's/.*dropped \\([0-9]*\\).*/\\1/p'"


@dataclass(frozen=True)
class BadNetwork:
    """Commands go through a connection of their own that stays as it was."""

    _shell: subprocess.Popen[str]

    def become(self, how: tuple[str, str]) -> None:
        self.run(_BECOME.format(*how))

    def dropped(self) -> int:
        """Packets of the host that never left it."""
        return int(self.run(_DROPPED))

    def run(self, command: str) -> str:
        """What a shell command on the host prints."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"{command}\necho {_END} $?\n")
        self._shell.stdin.flush()
        said = list[str]()
        for line in self._shell.stdout:
            if line.startswith(_END):
                assert line.split()[-1] == "0", (command, said)
                return "".join(said)
            said.append(line)
        raise AssertionError((command, said))


@contextmanager
def bad_network(host: LabHost) -> Iterator[BadNetwork]:
    """It is good until it becomes otherwise, and good at the end."""
    words = [sys.executable, "-m", "lab", "ssh", host.name, "exec 2>&1; exec bash"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as shell:
        network = BadNetwork(shell)
        try:
            network.run(_SET_UP)
            yield network
        finally:
            network.run("tc qdisc del dev $dev root; tc qdisc del dev $dev ingress; modprobe -r ifb")
