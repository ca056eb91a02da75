# SPDX-License-Identifier: Apache-2.0
"""Machines with a network card each, in namespaces of this one, for playbooks about OVN: its programs are Debian's own.

``systemctl`` begins what the units of the packages begin, with the same words. Package managers are stand-ins."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.fakes.typed import COMMAND
from tests.playbooks.guest_with_packages import PackagedGuest
from tests.playbooks.local_runs import ROOT

NETWORK: Final = "10.99.0"
"""The first three parts of everybody's address; the server has .1."""
_PLACES: Final = (
    'export OVN_RUNDIR="$GUEST/var/run/ovn" OVN_DBDIR="$GUEST/var/lib/ovn" OVN_LOGDIR="$GUEST/log" '
    'OVN_SYSCONFDIR="$GUEST/etc" OVS_RUNDIR="$GUEST/var/run/openvswitch" OVS_DBDIR="$GUEST/var/lib/openvswitch" '
    'OVS_LOGDIR="$GUEST/log" OVS_SYSCONFDIR="$GUEST/etc"\n'
)
_SYSTEMCTL: Final = (
    f"{_PLACES}"
    'case "$1 $2" in "show ovn-ovsdb-server-"*) db="${2#ovn-ovsdb-server-}"; db="${db%.service}"\n'
    '  if grep -q . "/proc/$(cat "$OVN_RUNDIR/ovn${db}_db.pid")/cmdline" 2>/dev/null; then echo ActiveState=active\n'
    "  else echo ActiveState=failed; echo Result=signal; fi; exit ;; esac\n"
    'if [ "$1" = show ]; then echo LoadState=loaded; echo UnitFileState=enabled\n'
    '  began=$(cat "$GUEST/began-$2" 2>/dev/null || echo 0); echo "ActiveEnterTimestampMonotonic=$began"\n'
    '  [ "$began" = 0 ] || echo ActiveState=active; exit; fi\n'
    'ctl=/usr/share/ovn/scripts/ovn-ctl; case "$1 $2" in\n'
    '"restart ovn-central.service") . "$GUEST/etc/default/ovn-central"\n'
    "  $ctl stop_northd; $ctl stop_nb_ovsdb; $ctl stop_sb_ovsdb\n"
    "  setsid $ctl run_nb_ovsdb $OVN_CTL_OPTS & setsid $ctl run_sb_ovsdb $OVN_CTL_OPTS &\n"
    '  for db in nb sb; do until [ -e "$OVN_RUNDIR/ovn${db}_db.sock" ]; do sleep 0.1; done; done\n'
    "  $ctl start_northd --ovn-manage-ovsdb=no --no-monitor $OVN_CTL_OPTS ;;\n"
    '"restart ovn-host.service") . "$GUEST/etc/default/ovn-host"; $ctl stop_controller --no-monitor\n'
    "  $ctl start_controller --ovn-manage-ovsdb=no --no-monitor $OVN_CTL_OPTS ;;\n"
    '"restart openvswitch-switch.service") ;;\n'
    '*) exit 9 ;;\nesac >> "$GUEST/log/units" 2>&1 < /dev/null\n'
    f'{sys.executable} -c "import time; print(int(time.monotonic() * 1e6))" > "$GUEST/began-$2"'
)
_JOURNAL: Final = 'db="${1#*server-}"; tail -n 1 "$GUEST/log/ovsdb-server-${db%.service}.log"'
"""What ``journalctl`` has of a database is what it wrote into its file."""
_OPEN_VSWITCH: Final = (
    f"{_PLACES}"
    'db="$OVS_DBDIR/conf.db"; ovsdb-tool create "$db" /usr/share/openvswitch/vswitch.ovsschema\n'
    'ovsdb-server "$db" --remote="punix:$OVS_RUNDIR/db.sock" --pidfile --unixctl="$OVS_RUNDIR/ovsdb-server.ctl" '
    '--log-file="$GUEST/log/ovsdb" --detach\n'
    "ovs-vsctl --no-wait init -- set Open_vSwitch . external-ids:ovn-bridge-datapath-type=netdev\n"
    'ovs-vswitchd "unix:$OVS_RUNDIR/db.sock" --pidfile --log-file="$GUEST/log/vswitchd" --detach\n'
)
"""Its datapath is the one in user space: kernels of test machines may lack the other."""


@dataclass(frozen=True)
class Machine:
    """``holder``: a process in its namespaces."""

    name: str
    address: str
    holder: int
    files: PackagedGuest

    @property
    def root(self) -> Path:
        return self.files.root

    def run(self, *words: str, check: bool = True, limit_s: int = 120) -> str:
        """What a program prints there, with Open vSwitch's and OVN's sockets in their places."""
        script = f'{_PLACES}exec "$@"'
        done = subprocess.run(
            [*namespaces_of(self.holder), "sh", "-c", script, "sh", *words],
            capture_output=True, text=True, timeout=limit_s,
            env={"GUEST": str(self.root), "PATH": f"{self.root}/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
        )  # fmt: skip
        assert not check or done.returncode == 0, (words, done.stdout, done.stderr, self.logs())
        return done.stdout

    def logs(self) -> str:
        return "".join(f"\n== {path.name}\n{path.read_text()[-2000:]}" for path in (self.root / "log").iterdir())

    def play(self, playbook: str, group: str, variables: Mapping[str, Any], state: Path, *words: str) -> Played:
        """As from a machine whose commands ask the server that serves in ``state``. ``words``: for Ansible."""
        local = {
            "ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False,
            "ansible_remote_tmp": str(self.root / "tmp"),
            "vgpuctl_ovn_certificate_sign": ["env", f"VGPUCTL_STATE={state}", str(COMMAND)],
        }  # fmt: skip
        roots = {f"vgpuctl_{role}_root": str(self.root) for role in ("host_bridges", "host_ovn", "ovn_central")}
        inventory = self.root / "hosts.json"
        inventory.write_text(json.dumps({group: {"hosts": {self.name: {**local, **roots, **variables}}}}))
        done = subprocess.run(
            [*namespaces_of(self.holder), Path(sys.executable).with_name("ansible-playbook"), "-i", inventory, "-vv",
             *words, ROOT / "playbooks" / playbook],
            capture_output=True, text=True, timeout=300, check=False,
            env={
                "PATH": f"{self.root}/bin:{os.environ['PATH']}", "HOME": str(self.root), "LC_ALL": "C.UTF-8",
                "GUEST": str(self.root), "ANSIBLE_CONFIG": str(ROOT / "playbooks/ansible.cfg"),
                "ANSIBLE_HOME": str(self.root / "ansible"),
            },
        )  # fmt: skip
        counted = re.search(rf"{self.name} +: ok=\d+ +changed=(\d+)", done.stdout)
        assert counted, done.stdout + done.stderr
        return Played(int(counted[1]), done.returncode != 0, done.stdout + done.stderr)


@dataclass(frozen=True)
class Played:
    """One run: how many tasks changed something, and all that was said."""

    changed: int
    failed: bool
    said: str


@dataclass(frozen=True)
class Machines:
    """On one switch, each with an address."""

    world: int
    root: Path

    def add(self, number: int) -> Machine:
        """``10.99.0.NUMBER``. Its holder and all that it begins ends with the world."""
        name = f"m{number}"
        words = [
            *namespaces_of(self.world),
            "unshare",
            "--net",
            "sh",
            "-c",
            "ip link set lo up; echo $$; exec sleep 3600",
        ]
        began = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert began.stdout is not None
        inner = int(began.stdout.readline())
        self.run(f"ip link add {name} type veth peer name eth0 netns {inner} && ip link set {name} master sw up")
        made = Machine(name, f"{NETWORK}.{number}", _deepest(began.pid), _files(self.root / name))
        made.run("sh", "-c", f"ip address add {made.address}/24 dev eth0 && ip link set eth0 up")
        return made

    def lead_outside(self, machine: Machine) -> None:
        """A second card, ``eth1``, on the bridge ``out`` of the world."""
        name = f"{machine.name}o"
        status = Path(f"/proc/{machine.holder}/status").read_text()
        inner = status.partition("NSpid:")[2].splitlines()[0].split()[-1]  # its id as the world has it
        self.run(f"ip link add {name} type veth peer name eth1 netns {inner}")
        self.run(f"ip link set {name} master out up")
        machine.run("ip", "link", "set", "eth1", "up")

    def run(self, script: str) -> None:
        subprocess.run([*namespaces_of(self.world), "sh", "-c", script], check=True, timeout=60)


@contextmanager
def machines(root: Path) -> Iterator[Machines]:
    apart = ("unshare", "--map-root-user", "--net", "--pid", "--mount", "--mount-proc", "--fork", "--kill-child")
    holder = subprocess.Popen([*apart, "sh", "-c", "echo there; exec sleep 3600"], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "there\n"
        made = Machines(_deepest(holder.pid), root)
        made.run(
            f"ip link set lo up; ip link add sw type bridge; ip address add {NETWORK}.1/24 dev sw; ip link set sw up"
        )
        yield made
    finally:
        holder.kill()
        holder.wait()


def into(made: Machines) -> Sequence[str]:
    """What a command begins with that runs on the switch itself."""
    return namespaces_of(made.world)


def namespaces_of(pid: int) -> list[str]:
    """What a command begins with that runs where that process does."""
    return ["nsenter", "--target", str(pid), "--user", "--net", "--pid", "--mount", "--preserve-credentials"]


def _deepest(pid: int) -> int:
    """The last of the only children: what ``unshare`` and ``nsenter`` have begun in a new namespace."""
    while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        pid = int(children[0])
    return pid


def _files(root: Path) -> PackagedGuest:
    root.mkdir()
    made = PackagedGuest.made(root, systemctl=_SYSTEMCTL)
    for directory in ("log", "etc/default", "etc/ovn", "etc/openvswitch", "etc/systemd/system", "tmp"):
        (root / directory).mkdir(parents=True)
    for package in ("ovn", "openvswitch"):
        (root / "var/run" / package).mkdir(parents=True)
        (root / "var/lib" / package).mkdir(parents=True)
    made.offers(openssl="3.0.17-1", ovn_central="23.03.1-1", ovn_host="23.03.1-1", openvswitch_switch="3.1.0-2")
    made.put("unpacks/openvswitch-switch", _OPEN_VSWITCH)
    made.program("bin/journalctl", _JOURNAL)
    for tool in ("ovs-vsctl", "ovn-nbctl", "ovn-sbctl"):
        made.program(f"bin/{tool}", f'{_PLACES}exec /usr/bin/{tool} "$@"')
    return made
