# SPDX-License-Identifier: Apache-2.0
"""A host of OVN in network namespaces of this machine: Open vSwitch with its datapath in user space, ovn-controller,
and guests that are namespaces with a network card."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.fakes.ovn_databases import RealOvn

_OPEN_VSWITCH: Final = """
mount -t tmpfs none /run && ip link set lo up && cd "$OVS_RUNDIR"
ovsdb-tool create conf.db /usr/share/openvswitch/vswitch.ovsschema
ovsdb-server "$PWD/conf.db" --remote="punix:$PWD/db.sock" --unixctl="$PWD/db.ctl" --log-file="$PWD/log" &
until [ -S db.sock ]; do sleep 0.05; done
ids="ovn-bridge-datapath-type=netdev system-id=$1 ovn-remote=$2 ovn-encap-type=geneve ovn-encap-ip=127.0.0.1"
for id in $ids; do ovs-vsctl --db="unix:$PWD/db.sock" --no-wait -- --may-exist add-br br-int \\
  -- set bridge br-int datapath_type=netdev -- set Open_vSwitch . "external-ids:$id"; done
ovs-vswitchd "unix:$PWD/db.sock" --unixctl="$PWD/vswitchd.ctl" --log-file="$PWD/vswitchd" &
ovn-controller "unix:$PWD/db.sock" --pidfile --log-file="$PWD/controller" &
echo ready
wait
"""
NO_OFFLOAD: Final = """
import array, fcntl, socket, struct
off = array.array("B", struct.pack("II", 0x17, 0))  # ETHTOOL_STXCSUM: the datapath in user space computes none
fcntl.ioctl(socket.socket(), 0x8946, struct.pack("16sP", b"eth0", off.buffer_info()[0]))
"""
_SERVE: Final = """
import socket, sys, threading
def serve(port):
    listening = socket.create_server(("0.0.0.0", port))
    while True:
        listening.accept()[0].sendall(b"here")
for port in map(int, sys.argv[1:]):
    threading.Thread(target=serve, args=(port,)).start()
print("ready", flush=True)
"""
_CONNECT: Final = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float(sys.argv[3])) as connection:
    sys.exit(connection.recv(4) != b"here")
"""


@dataclass(frozen=True)
class Guest:
    """``holder``: a process in its namespace."""

    holder: int
    processes: list[subprocess.Popen[str]]

    def serve(self, *ports: int) -> None:
        """Until its host ends."""
        _begin(self.processes, _in(self.holder, sys.executable, "-c", _SERVE, *map(str, ports)))

    def reaches(self, address: str, port: int, limit_s: float = 1.0) -> bool:
        words = _in(self.holder, sys.executable, "-c", _CONNECT, address, str(port), str(limit_s))
        return subprocess.run(words, capture_output=True, timeout=60).returncode == 0


@dataclass(frozen=True)
class OvnChassis:
    root: Path
    holder: int
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def plug(self, port: str, mac: str, address: str) -> Guest:
        """A guest whose card OVN knows as ``port``; ``address`` with its prefix."""
        guest = _begin(
            self.processes, _in(self.holder, "unshare", "--net", "sh", "-c", "echo ready; exec sleep 3600")
        ).pid
        name = f"g{len(self.processes)}"
        self.run("ip", "link", "add", name, "up", "type", "veth", "peer", "name", "eth0", "netns", str(guest))
        for words in (["link", "set", "eth0", "address", mac, "up"], ["address", "add", address, "dev", "eth0"]):
            subprocess.run(_in(guest, "ip", *words), check=True, timeout=60)
        subprocess.run(_in(guest, sys.executable, "-c", NO_OFFLOAD), check=True, timeout=60)
        self.run(
            "ovs-vsctl", f"--db=unix:{self.root}/db.sock", "--timeout=30", "add-port", "br-int", name,
            "--", "set", "interface", name, f"external_ids:iface-id={port}",
        )  # fmt: skip
        return Guest(guest, self.processes)

    def run(self, *words: str) -> None:
        subprocess.run(_in(self.holder, *words), check=True, timeout=60)


@contextmanager
def ovn_chassis(root: Path, ovn: RealOvn, name: str) -> Iterator[OvnChassis]:
    """Until the end of the block."""
    root.mkdir()
    words = [
        "env", f"OVS_RUNDIR={root}", f"OVN_RUNDIR={root}",
        "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child",
    ]  # fmt: skip
    processes = list[subprocess.Popen[str]]()
    try:
        began = _begin(processes, [*words, "sh", "-c", _OPEN_VSWITCH, "sh", name, ovn.socket("southbound")])
        yield OvnChassis(root, began.pid, processes)
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


def _begin(processes: list[subprocess.Popen[str]], words: Sequence[str]) -> subprocess.Popen[str]:
    """Once it says that it is ready."""
    begun = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    processes.append(begun)
    assert begun.stdout is not None
    assert begun.stdout.readline() == "ready\n", words
    return begun


def _in(holder: int, *words: str) -> list[str]:
    return ["nsenter", f"--target={holder}", "--net", "--mount", "--", *words]
