# SPDX-License-Identifier: Apache-2.0
"""A VM that is moved by raw commands, as an operator would type them, and how long a guest stands still."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tests.lab.conftest import LabHost
from tests.lab.two_hosts import Site

_BELOW: Final = "/var/lib/vgpuctl-agent"
_MDEV: Final = re.compile(r"(<source>\s*<address uuid=')([0-9a-f-]{36})")
_TYPE: Final = "/sys/class/mdev_bus/*/mdev_supported_types/nvidia-231/create"
"""GRID T4-2Q of the host's only T4."""
_SSH: Final = "ssh -o BatchMode=yes root@{to}"
_MAKE: Final = (
    "qemu-img create -q -f qcow2 -b $(ls {below}/images/*.qcow2) -F qcow2 {below}/volumes/{vm}.qcow2 {size}; "
    "echo {device} >$(ls {type})"
)
_MOVE: Final = """
set -eu
start=$(date +%s.%N)
{ssh} '{make}; cat >{below}/seeds/{vm}.iso' <{below}/seeds/{vm}.iso
virsh -q migrate --live --persistent --undefinesource --copy-storage-inc {vm} qemu+ssh://root@{to}/system \\
  --migrateuri tcp://{to}
echo 1 >/sys/bus/mdev/devices/{device}/remove
rm -f {below}/volumes/{vm}.qcow2 {below}/seeds/{vm}.iso
end=$(date +%s.%N)
echo "$start $end"
"""
_KEY: Final = """
[ -f .ssh/id_ed25519 ] || ssh-keygen -q -t ed25519 -N '' -f .ssh/id_ed25519
ssh-keyscan -t ed25519 {to} 2>/dev/null >>.ssh/known_hosts; cat .ssh/id_ed25519.pub
"""
_CLOCK: Final = """import socket, time
server = socket.create_server(("", 7777))
while True:
    client = server.accept()[0]
    while client.recv(1):
        client.sendall(b"%.6f" % time.time())
"""
_COMPARE: Final = """import socket, time
server, best = socket.create_connection(("{to}", 7777)), []
for _ in range(50):
    sent = time.time(); server.sendall(b"?"); other = float(server.recv(64)); back = time.time()
    best.append((back - sent, other - (sent + back) / 2))
print(min(best)[1])
"""
_SAID: Final = re.compile(r"^(\S+ \S+): event 'lifecycle' for domain '?([^':]+)'?: (\w+)", re.MULTILINE)


@dataclass(frozen=True)
class ByHand:
    """A VM beside the product's, of the same definition. ``addresses``: of the hosts for each other."""

    site: Site
    vm: str
    device: str
    addresses: dict[str, str]

    def move(self, source: str, target: str) -> float:
        """Seconds, on the host's own clock: an operator there pays for no connection to it."""
        size = 16 * 1024**2
        make = _MAKE.format(below=_BELOW, vm=self.vm, size=size, device=self.device, type=_TYPE)
        to = self.addresses[target]
        text = _MOVE.format(ssh=_SSH.format(to=to), make=make, below=_BELOW, vm=self.vm, device=self.device, to=to)
        start, end = self.site.hosts[source].run(text, limit_s=600).split()[-2:]
        return float(end) - float(start)

    def remove(self, host: str) -> None:
        self.site.hosts[host].run(
            f"virsh -q destroy {self.vm}; virsh -q undefine {self.vm}; "
            f"echo 1 >/sys/bus/mdev/devices/{self.device}/remove; rm -f {_BELOW}/*/{self.vm}.*"
        )


def by_hand(site: Site, name: str) -> ByHand:
    """It runs on the host of the product's VM ``name``. Both hosts have its base image and trust each other."""
    shown = site.product.json("show-vm", name)
    host, model, vm, device = site.hosts[shown["host"]], str(shown["id"]), str(uuid.uuid4()), str(uuid.uuid4())
    addresses = {
        one: each.run("ip -4 -o address | grep -o '10[.]77[.][0-9.]*' | head -1").strip()
        for one, each in site.hosts.items()
    }
    for one, other in (tuple(site.hosts), tuple(site.hosts)[::-1]):
        key = site.hosts[one].run(_KEY.format(to=addresses[other])).strip()
        site.hosts[other].run(f"echo '{key}' >>.ssh/authorized_keys")
    make = _MAKE.format(below=_BELOW, vm=vm, size=16 * 1024**2, device=device, type=_TYPE)
    xml = host.run(f"virsh dumpxml --inactive {model}")
    xml = _MDEV.sub(rf"\g<1>{device}", re.sub(r"<name>.*</name>", f"<name>{vm}</name>", xml).replace(model, vm))
    xml = re.sub(r"(<mac address='52:54:00:)[0-9a-f:]{8}", rf"\g<1>{vm[0:2]}:{vm[2:4]}:{vm[4:6]}", xml)
    host.run(
        f"{make}; cp {_BELOW}/seeds/{model}.iso {_BELOW}/seeds/{vm}.iso; "
        f"virsh -q define /dev/stdin <<'XML'\n{xml}\nXML\nvirsh -q start {vm}"
    )
    return ByHand(site, vm, device, addresses)


class Pauses:
    """Between a guest's stop on the one host and its going on on the other, by libvirt's events there, whose clocks are
    compared."""

    def __init__(self, site: Site, addresses: dict[str, str]) -> None:
        self._site, self._addresses = site, addresses
        for host in site.hosts.values():
            host.run(f"cat >/run/clock.py <<'END'\n{_CLOCK}END\n(setsid python3 /run/clock.py >/dev/null 2>&1 &)")
            host.run("(setsid virsh event --all --loop --timestamp >/run/events 2>&1 &)")

    def end(self) -> None:
        for host in self._site.hosts.values():
            host.run("pkill -f '[v]irsh event'; pkill -f '[/]run/clock.py'; rm -f /run/events /run/clock.*; true")

    def of_last(self, domain: str, source: str, target: str) -> float:
        """Milliseconds."""
        ahead = float(
            self._site.hosts[source].run(f"python3 - <<'END'\n{_COMPARE.format(to=self._addresses[target])}END")
        )
        stopped = self._last(self._site.hosts[source], domain, "Suspended")
        resumed = self._last(self._site.hosts[target], domain, "Resumed")
        return (resumed - ahead - stopped) * 1000

    @staticmethod
    def _last(host: LabHost, domain: str, what: str) -> float:
        text = host.run("cat /run/events")
        moments = [moment for moment, name, event in _SAID.findall(text) if (name, event) == (domain, what)]
        assert moments, text
        return datetime.fromisoformat(moments[-1].replace("+0000", "+00:00")).timestamp()
