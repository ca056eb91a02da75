# SPDX-License-Identifier: Apache-2.0
"""The server on a lab host as docs/howto/run-a-server.md installs it: account and unit of its own.

The host reaches no package registry, so this Python and what the server needs are laid out here and sent over.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import sysconfig
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab.conftest import LabHost
from tools.tree import ROOT

PLACE = "/opt/vgpuctl"
STATE = "/var/lib/vgpuctl"
UNIT = "deploy/vgpuctl.service"
_LEFT_OUT = ("test", "tests", "idlelib", "tkinter", "ensurepip", "*-packages", "config-*")
_INSTALL = f"""
set -e
tar -C / -xf /root/server.tar && rm /root/server.tar && ldconfig
useradd --system --home-dir {STATE} --shell /usr/sbin/nologin vgpuctl
systemctl daemon-reload
systemctl enable --now vgpuctl
"""
_REMOVE = f"""
systemctl disable --now vgpuctl; userdel vgpuctl; systemctl reset-failed vgpuctl
rm -rf {PLACE} {STATE} /usr/local/bin/vgpuctl /usr/local/lib/libpython* /etc/systemd/system/vgpuctl.service
rm -f /root/server.tar /usr/local/bin/bwrap
ldconfig; systemctl daemon-reload
"""


def laid_out(root: Path) -> None:
    """As ``/`` of the host has it."""
    place = root / PLACE.lstrip("/")
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    python = place / "bin" / version
    python.parent.mkdir(parents=True)
    shutil.copy(Path(sys.executable).resolve(), python)
    (place / "bin/python3").symlink_to(version)
    shutil.copytree(sysconfig.get_path("stdlib"), place / "lib" / version, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    libraries = root / "usr/local/lib"
    libraries.mkdir(parents=True)
    for library in Path(sysconfig.get_config_var("LIBDIR")).glob(f"lib{version}.so.*"):
        shutil.copy(library, libraries)
    packages = place / "lib" / version / "site-packages"
    install: list[str | Path] = [
        Path(sys.executable).with_name("uv"),
        "pip",
        "install",
        "--quiet",
        "--compile-bytecode",
        "--target",
        packages,
    ]
    subprocess.run([*install, "--require-hashes", "-r", ROOT / "requirements/base.txt"], check=True, timeout=600)
    subprocess.run([*install, "--no-deps", ROOT], check=True, timeout=600)
    for script in (packages / "bin").iterdir():
        _, _, rest = script.read_text().partition("\n")
        (place / "bin" / script.name).write_text(f"#!{PLACE}/bin/python3\n{rest}")
        (place / "bin" / script.name).chmod(0o755)
    (root / "usr/local/bin").mkdir()
    shutil.copy("/usr/bin/bwrap", root / "usr/local/bin")
    (root / "usr/local/bin/vgpuctl").symlink_to(f"{PLACE}/bin/vgpuctl")
    units = root / "etc/systemd/system"
    units.mkdir(parents=True)
    shutil.copy(ROOT / UNIT, units)


@dataclass(frozen=True)
class ServerOnHost:
    host: LabHost

    def install(self, scratch: Path) -> None:
        """It runs and is ready afterwards: ``systemctl`` waits for what its unit's type promises."""
        laid_out(scratch / "root")
        archive = scratch / "server.tar"
        owned = ["--owner=0", "--group=0", "--numeric-owner"]
        subprocess.run(["tar", "-C", scratch / "root", *owned, "-cf", archive, "."], check=True, timeout=300)
        self.host.send(archive, "/root/server.tar")
        self.host.run(_INSTALL, limit_s=600)

    def remove(self) -> None:
        with suppress(AssertionError):  # what was not installed cannot be disabled
            self.host.run(_REMOVE)

    def ok(self, *words: str, limit_s: float = 600) -> str:
        """What root of the host asks of the server."""
        return self.host.run(f"VGPUCTL_STATE={STATE} vgpuctl {shlex.join(words)}", limit_s=limit_s)

    def json(self, *words: str) -> Any:
        return json.loads(self.ok(*words, "-o", "json"))
