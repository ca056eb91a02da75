# SPDX-License-Identifier: Apache-2.0
"""What real guests say: commands run in them, through the server and the VM's host."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from typing import Final

from integrations.isvctl.site import Site, Unmet, need

NOT_REAL: Final = "simulated guests run no commands; it needs a lab host"
ANSWERS_WITHIN_S: Final = 240.0
COMMAND_WITHIN_S: Final = 120.0
_CONTEXT: Final = "isv"
_UNKNOWN: Final = ("BatchMode=yes", "ConnectTimeout=20", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null")
"""Guests are new each time."""


def in_guest(site: Site, name: str, tenant: str, command: str) -> str:
    """What it prints, run by root. :raises Unmet: the guest cannot be reached, or the command failed"""
    need(site.guests, NOT_REAL)
    user, words = site.guest_user, shlex.quote(command)
    vgpuctl = (sys.executable, "-m", "orchestrator.cli.main")
    environment = _environment(site)
    proxy = shlex.join([*vgpuctl, "vm", "proxy", name, "--tenant", tenant])
    options = [word for option in (f"ProxyCommand={proxy}", *_UNKNOWN) for word in ("-o", option)]
    done = subprocess.run(
        ["ssh", *options, "-i", str(site.ssh_key()[0]), f"{user}@{name}",
         f"sh -c {words}" if user == "root" else f"sudo -n sh -c {words}"],
        env=environment, capture_output=True, text=True, timeout=COMMAND_WITHIN_S, check=False,
    )  # fmt: skip
    complaint = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    need(done.returncode == 0, f"in the guest: {command.partition(' ')[0]}: {complaint[-1]}")
    return done.stdout


def _environment(site: Site) -> dict[str, str]:
    """Of commands: they go to the site, as its admin."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("VGPUCTL_")}
    environment = {**known, "XDG_CONFIG_HOME": str(site.work / "config")}
    if not (site.work / "config").exists():
        subprocess.run(
            [sys.executable, "-m", "orchestrator.cli.main", "context", "add", _CONTEXT, "--url", site.url,
             "--ca-file", str(site.ca_file), "--token-file", str(site.token_file)],
            env=environment, capture_output=True, check=True,
        )  # fmt: skip
    return {**environment, "VGPUCTL_CONTEXT": _CONTEXT}


def uptime_s(site: Site, name: str, tenant: str) -> float:
    """Since the guest booted, as itself tells it once it answers. :raises Unmet: it does not answer in time"""
    need(site.guests, NOT_REAL)
    last = "it was not asked"

    def asked() -> float | None:
        nonlocal last
        try:
            return float(in_guest(site, name, tenant, "cat /proc/uptime").split()[0])
        except (Unmet, subprocess.TimeoutExpired) as error:
            last = str(error)
            return None

    try:
        return float(site.until(asked, "SSH was not answered", ANSWERS_WITHIN_S))
    except Unmet as error:
        raise Unmet(f"{error}: {last}") from error
