# SPDX-License-Identifier: Apache-2.0
"""Roles of guests on a directory that has a guest's files, with package managers that keep to it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from lab.image.mirror import find_mirror
from orchestrator.adapters.ansible.connection import GROUP, GUEST, environment
from orchestrator.adapters.ansible.outcome import RunReport
from orchestrator.adapters.ansible.play import Play, run_play
from tests.playbooks.local_runs import ROOT

_PROGRAMS = {
    "apt-get": (
        'echo "apt-get $*" >> "$GUEST/asked"; name=$(eval echo \\${$#}); case "$*" in\n'
        '*update) [ ! -e "$GUEST/no-network" ] || { cat "$GUEST/no-network" >&2; exit 100; } ;;\n'
        '*"install -s "*) echo "Inst $name (1 stand-in [amd64])"; cat "$GUEST/along/$name" 2>/dev/null || true ;;\n'
        '*"--no-remove install "*) [ ! -e "$GUEST/locked" ] || { cat "$GUEST/locked" >&2; exit 100; }\n'
        '  case $name in /*) read -r name version < "$name" && echo "$version" > "$GUEST/installed/$name" ;;\n'
        '  *) cp "$GUEST/offered/$name" "$GUEST/installed/$name" || exit 100 ;; esac\n'
        '  [ ! -e "$GUEST/unpacks/$name" ] || sh "$GUEST/unpacks/$name" ;;\n'
        "*) exit 9 ;;\nesac"
    ),
    "apt-cache": (
        '[ "$1" = policy ] || exit 9; shift; for name; do [ -e "$GUEST/offered/$name" ] || continue\n'
        'echo "$name:"; echo "  Installed: (none)"; echo "  Candidate: $(cat "$GUEST/offered/$name")"\n'
        'echo "  Version table:"; echo "     $(cat "$GUEST/offered/$name") 500"; done'
    ),
    "dpkg-query": (
        'shift 2; for name; do if [ -e "$GUEST/installed/$name" ]; then\n'
        'echo "ii  $name $(cat "$GUEST/installed/$name")"; else echo "dpkg-query: no packages found" >&2; fi; done'
    ),
}
_UNTIL_IT = r"""
until_it() {
    tries=0
    until "$@" >/srv/last 2>&1; do
        tries=$((tries + 1))
        kill -0 $daemons && [ "$tries" -lt 240 ] || { cat /srv/last; log; exit 1; }
        sleep 0.5
    done
}
"""
"""Waits for what it is given to succeed, two minutes or until one of ``daemons`` has ended."""
_APART = ("unshare", "--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--kill-child")


def bare_debian(root: Path, *packages: str) -> None:
    """A Debian in a directory, with these packages."""
    words = ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}", "bookworm", str(root)]
    subprocess.run([*words, find_mirror(os.environ)], check=True, stdout=subprocess.DEVNULL)


@dataclass(frozen=True)
class PackagedGuest:
    """A guest's files below ``root``. ``asked``: what its package manager and its services were told."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)

    @classmethod
    def made(cls, root: Path, **programs: str) -> PackagedGuest:
        guest = cls(root)
        for name, script in {**_PROGRAMS, **programs}.items():
            guest.program(f"bin/{name}", script)
        for directory in ("offered", "installed"):
            (root / directory).mkdir()
        return guest

    def put(self, name: str, text: str = "") -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def program(self, name: str, script: str) -> None:
        self.put(name, f"#!/bin/sh\n{script}\n")
        (self.root / name).chmod(0o755)

    def offers(self, **versions: str) -> None:
        """Its repositories do; ``cuda_toolkit_12_8`` is cuda-toolkit-12-8."""
        for name, version in versions.items():
            self.put(f"offered/{name.replace('_', '-')}", version)

    @property
    def asked(self) -> list[str]:
        path = self.root / "asked"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def installed(self) -> set[str]:
        return {path.name for path in (self.root / "installed").iterdir()}

    def tries(self, script: str, limit_s: int) -> list[str]:
        """What a shell script says in lines that begin with ``::``, in namespaces of its own below the guest's root.

        It may wait with ``until_it``; it has said ``log`` and ``daemons``.
        """
        self.put("root/srv/try", _UNTIL_IT + script)
        words = [*_APART, "chroot", str(self.root / "root"), "sh", "/srv/try"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=limit_s)
        assert done.returncode == 0, (done.stdout, done.stderr)
        return [line.removeprefix("::").strip() for line in done.stdout.splitlines() if line.startswith("::")]

    def run(self, role: str, name: str, variables: dict[str, object]) -> RunReport:
        scratch = self.root / name
        scratch.mkdir()
        play = scratch / "provision.yml"
        play.write_text(json.dumps([{
            "name": "Provision", "hosts": GROUP, "gather_facts": False, "tasks": [
                {"name": "Run the role", "ansible.builtin.include_role": {"name": role}}
            ],
        }]))  # fmt: skip
        around = environment(scratch, ROOT / "playbooks/ansible.cfg")
        around = {**around, **self.environment, "ANSIBLE_ROLES_PATH": str(ROOT / "playbooks/roles")}
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        return run_play(
            Play(
                playbook=play,
                inventory={GROUP: {"hosts": {GUEST: {**local, **variables}}}},
                environment={
                    **around,
                    "GUEST": str(self.root),
                    "PATH": f"{self.root}/bin:{around['PATH']}",
                },
                scratch=scratch,
                timeout_s=120,
                confined=False,
            ),
            lambda _title: None,
        )


@dataclass(frozen=True)
class FirstRun:
    """A guest after a role's first run there, for several tests that go on from it. ``kept``: its files."""

    guest: PackagedGuest
    report: RunReport
    kept: Path

    @classmethod
    def of(cls, guest: PackagedGuest, report: RunReport) -> FirstRun:
        kept = guest.root.with_name(f"{guest.root.name}-kept")
        shutil.copytree(guest.root, kept, symlinks=True)
        return cls(guest, report, kept)

    def again(self) -> PackagedGuest:
        """The guest as that run left it, whatever a test has done to it since. Owners are not brought back."""
        shutil.rmtree(self.guest.root)
        shutil.copytree(self.kept, self.guest.root, symlinks=True)
        return self.guest
