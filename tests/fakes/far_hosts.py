# SPDX-License-Identifier: Apache-2.0
"""What an agent measures of tunnels in a network namespace of its own, where other hosts answer pings late, in part, or
not at all: ``python -m tests.fakes.far_hosts ROOT`` prints it as JSON. Not every kernel has ``tc netem``."""

from __future__ import annotations

import fcntl
import json
import os
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

from orchestrator.agent.paths import Paths
from orchestrator.agent.readings.tunnels import MeasuredTunnels, ping
from orchestrator.agent.timing import RealTiming
from orchestrator.core.readings.tunnels import MAX_TUNNELS

LATE_S: Final = 0.03
_LINK: Final = """
echo 0 0 > /proc/sys/net/ipv4/ping_group_range
ip link set tun0 up && ip address add 192.0.2.1/24 dev tun0 && ip address add fd00::1/64 dev tun0 nodad
"""


def _answers(address: int, sequence: int, measurement: int) -> bool:
    return {4: sequence >= MAX_TUNNELS, 5: False, 6: measurement == 1}.get(address, True)


class FarHosts:
    """Behind an interface of this program's own (TUN): 192.0.2.2 to .6, and fd00::2."""

    def __init__(self) -> None:
        self.measurement = 0
        self._link = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(self._link, 0x400454CA, struct.pack("16sH22x", b"tun0", 0x1001))  # TUNSETIFF; IFF_TUN, IFF_NO_PI
        subprocess.run(["sh", "-ec", _LINK], check=True)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            packet = bytearray(os.read(self._link, 2000))
            header, size, (ask, reply) = (20, 4, (8, 0)) if packet[0] >> 4 == 4 else (40, 16, (128, 129))
            source, target = header - 2 * size, header - size
            if packet[9 if size == 4 else 6] not in {1, 58} or packet[header] != ask:
                continue
            sequence = int.from_bytes(packet[header + 6 : header + 8], "big")
            if not _answers(packet[header - 1], sequence, self.measurement):
                continue
            checksum = int.from_bytes(packet[header + 2 : header + 4], "big") + ((ask - reply) << 8)
            checksum = (checksum - 1) % 0xFFFF + 1  # of ones' complement
            packet[header], packet[header + 2 : header + 4] = reply, checksum.to_bytes(2, "big")
            packet[source:header] = packet[target:header] + packet[source:target]
            late = LATE_S if packet[target - 1] == 3 else 0.0
            threading.Timer(late, os.write, (self._link, bytes(packet))).start()


def main(root: Path) -> None:
    tunnels = MeasuredTunnels(Paths(root=root, storage=root), RealTiming())
    tunnels.measure()
    refused = [tunnels.refused]  # no group may, in a new namespace
    far, steps = FarHosts(), []
    for far.measurement in (1, 2, 3):
        tunnels.measure()
        of_last = [[each.address, each.sent, each.lost, each.min_s, each.avg_s] for each in tunnels.last()]
        steps.append({"last": of_last, "silent": tunnels.silent(), "slow": tunnels.slow()})
    refused.append(tunnels.refused)
    print(json.dumps({"steps": steps, "refused": refused, "ipv6": len(ping(["fd00::2"])["fd00::2"])}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
