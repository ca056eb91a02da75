# SPDX-License-Identifier: Apache-2.0
"""Two lab hosts in one OVN that our playbooks set up, and guests that are asked over their serial consoles: a VM on
networks of kind ovn alone is reached in no other way."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

from orchestrator.core.domain_xml.console import console_log
from tests.fakes.typed import COMMAND
from tests.lab.conftest import LabHost, lab, listed
from tests.lab.enrolled import SMALL, words_to_add
from tests.lab.played import play
from tests.lab.product import Product

FIRST, SECOND = NAMES = ("first", "second")
"""The first is OVN's central server too."""
NETWORK: Final = "10.77.0.0/24"
"""Of the link between hosts."""
PHYSICAL, OUTSIDE, ROUTER_OUTSIDE = "physnet1", "192.0.2.0/24", "192.0.2.1"
"""The site's own network, which the first host leads to; its router there is that host itself."""
_BRIDGE: Final = (
    "systemctl start openvswitch-switch; ovs-vsctl --may-exist add-br br-ex; "
    f"ip address replace {ROUTER_OUTSIDE}/24 dev br-ex; ip link set br-ex up"
)
OFFERING: Final = """schema_version: 1
offerings:
  - {name: small, description: on networks, kind: time_sliced, vgpu_type: GRID T4-1Q, migratable: true}
"""
_SAYS_WITHIN_S: Final = 240
_NUMBERS: Final = count(1)
_TYPE = """
tty=$(virsh ttyconsole {vm}); log={log}; from=$(stat -c %s $log)
cat "$tty" >/dev/null & reader=$!; sleep 1.2
printf '%s\\n' {line} >"$tty"
for tenth in $(seq {tenths}); do
  tail -c +$((from + 1)) $log | grep -qaE '^END [0-9]+ {number}.?$' && break; sleep 0.1
done
kill $reader; tail -c +$((from + 1)) $log"""


@dataclass(frozen=True)
class Site:
    """Both hosts in one control plane and one OVN. ``central``: its address on the link."""

    product: Product
    hosts: dict[str, LabHost]
    state: Path
    central: str

    def set_up_central(self) -> int:
        """By our playbook; how many tasks changed something."""
        own = {"vgpuctl_ovn_central_address": self.central}
        return self._play("prepare-ovn-central.yml", "vgpuctl_ovn_central", FIRST, own)

    def set_up_host(self, name: str) -> int:
        """The same."""
        own: dict[str, Any] = {"vgpuctl_host_ovn_network": NETWORK}
        if name == FIRST:
            own |= {"vgpuctl_host_ovn_mappings": {PHYSICAL: "br-ex"}, "vgpuctl_host_ovn_gateway": True}
        return self._play("prepare-host.yml", "vgpuctl_hosts", name, own)

    def _play(self, playbook: str, group: str, host: str, variables: dict[str, Any]) -> int:
        sign = ["env", f"VGPUCTL_STATE={self.state}", str(COMMAND)]
        both = {"vgpuctl_ovn_central": [self.central], "vgpuctl_ovn_certificate_sign": sign}
        directory = self.state / f"played-{host}"
        directory.mkdir(exist_ok=True)
        changed, said = play(playbook, group, self.hosts[host], directory, {**both, **variables})
        assert "failed=0" in said, said
        return changed

    def create(self, name: str, host: str, *words: str) -> Guest:
        """A VM of a tenant's on a network, whose guest is up."""
        size = (*SMALL, "--image", "guest", "--profile", "small")
        self.product.ok("create-vm", name, "--host", host, *size, *words)
        tenant = words[words.index("--tenant") + 1] if "--tenant" in words else "default"
        guest = Guest(self, name, tenant, self.product.json("show-vm", name, "--tenant", tenant)["id"])
        guest.is_up()
        return guest

    def central_does(self, verb: str) -> None:
        """``stop`` or ``start`` of all that OVN has on its central server."""
        self.hosts[FIRST].run(f"systemctl {verb} ovn-central")


@dataclass(frozen=True)
class Guest:
    """One that runs."""

    site: Site
    name: str
    tenant: str
    vm: str

    def shown(self) -> Any:
        return self.site.product.json("show-vm", self.name, "--tenant", self.tenant)

    def host(self) -> LabHost:
        return self.site.hosts[self.shown()["host"]]

    def is_up(self, boots: int = 1) -> None:
        """It has started as often, and reads what is typed. SYSLINUX would take what comes before."""
        end, log = time.monotonic() + _SAYS_WITHIN_S, console_log(self.vm)
        host = self.host()
        while int(host.run(f"grep -ca 'built-in shell' {log} || true")) < boots:
            assert time.monotonic() < end, host.run(f"tail -c 3000 {log}")
            time.sleep(1)

    def types(self, line: str, limit_s: int = 60) -> tuple[int, str]:
        """Exit code and output of a line of its shell, typed at its console."""
        number = next(_NUMBERS)
        typed = f'echo "BEGIN" {number}; {line}; echo "END" $? {number}'
        assert len(typed) < 1000, "longer than its shell takes a line"
        said = self.host().run(
            _TYPE.format(vm=self.vm, log=console_log(self.vm), line=shlex.quote(typed), tenths=10 * limit_s,
                         number=number),
            limit_s=limit_s + 60,
        )  # fmt: skip
        found = re.search(rf"^BEGIN {number}\n(.*?)^END (\d+) {number}$", said.replace("\r", ""), re.S | re.M)
        assert found, said
        return int(found[2]), found[1]

    def says(self, line: str, limit_s: int = 60) -> str:
        """The output of what has to succeed."""
        code, out = self.types(line, limit_s)
        assert code == 0, f"{self.name}: {line}: {code} {out}"
        return out

    def reaches(self, whom: str, tries: int = 3) -> bool:
        """By ping, within as many seconds and one."""
        return self.types(f"ping -q -c {tries} -W 2 {whom} | grep -q ' [1-9][0-9]* packets received'")[0] == 0


@contextmanager
def ovn_hosts(state: Path) -> Iterator[Site]:
    """Brought up, enrolled, in one OVN, and given back; ended if they were not there before."""
    before = set(listed())
    lab("up", "--scenario", "lab/scenarios/two-small.yaml")
    with ExitStack() as stack:
        stack.callback(_end, before)
        hosts = {name: listed()[name] for name in NAMES}
        central = hosts[FIRST].run("ip -4 -o address show to 10.77.0.0/24").split()[3].partition("/")[0]
        north, south = stack.enter_context(_forwarded(hosts[FIRST], central, (6641, 6642)))
        (state / "config.yaml").write_text(
            f"ovn_northbound: ssl:127.0.0.1:{north}\novn_southbound: ssl:127.0.0.1:{south}\n"
            f"ovn_encapsulation_network: {NETWORK}\n"
        )
        product = Product(state, {"VGPUCTL_VCPU_OVERCOMMIT": "32", "VGPUCTL_GUEST_SEEN_SECONDS": "0"})
        stack.callback(product.close)
        site = Site(product, hosts, state, central)
        product.ok("image", "add", "guest", lab("guest-image").strip())
        (state / "offerings.yaml").write_text(OFFERING)
        product.ok("profile", "add", str(state / "offerings.yaml"))
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda name: _enrol(site, name), NAMES))
        yield site
        with ThreadPoolExecutor(3) as pool:
            vms = [
                ("delete-vm", vm["name"], "--tenant", vm["tenant"]) for vm in product.json("list-vms", "--all-tenants")
            ]
            list(pool.map(lambda words: product.ok(*words), vms))
            list(pool.map(lambda name: product.ok("host", "remove", name), NAMES))


def _enrol(site: Site, name: str) -> None:
    if name == FIRST:
        assert site.set_up_central() > 0
        site.hosts[name].run(_BRIDGE)
    assert site.set_up_host(name) > 0
    site.product.ok(*words_to_add(site.hosts[name]), limit_s=900)


def _end(before: set[str]) -> None:
    if ended := [name for name in NAMES if name in listed() and name not in before]:
        lab("down", *ended)


@contextmanager
def _forwarded(host: LabHost, address: str, ports: Sequence[int]) -> Iterator[list[int]]:
    """Ports of this machine that lead to those of a host's address: hosts of the lab are reached by ssh alone."""
    known = Path(host.key_file).with_name("forwarded_known_hosts")
    known.write_text(f"{host.known_host_line}\n")
    local = []
    for _ in ports:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            local.append(int(probe.getsockname()[1]))
    ways = [word for here, there in zip(local, ports, strict=True) for word in ("-L", f"{here}:{address}:{there}")]
    ssh = subprocess.Popen([
        "ssh", "-N", "-o", "ExitOnForwardFailure=yes", "-o", f"UserKnownHostsFile={known}", "-i", host.key_file,
        "-p", str(host.port), *ways, f"{host.user}@{host.address}",
    ], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    try:
        yield local
    finally:
        ssh.terminate()
        ssh.wait()
