# SPDX-License-Identifier: Apache-2.0
"""Judges our systemd units by systemd's own measure: ``python -m tools.units``, a part of ``make lint``.

The figure is systemd-analyze's exposure level times ten (0: nothing is open, 100: everything), systemd-analyze(1).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import yaml
from jinja2 import Environment, StrictUndefined

from tools.tree import ROOT

SERVER = Path("deploy/vgpuctl.service")
AGENT = Path("playbooks/roles/vgpuctl_agent/templates/vgpuctl-agent.service.j2")
MAX_EXPOSURE = {SERVER: 25, AGENT: 50}
_DEFAULTS = ROOT / "playbooks/roles/vgpuctl_agent/defaults/main.yml"


def rendered(unit: Path) -> str:
    """The unit as a host gets it, with the role's defaults."""
    template = Environment(undefined=StrictUndefined, autoescape=False).from_string((ROOT / unit).read_text("utf-8"))
    return template.render(yaml.safe_load(_DEFAULTS.read_text(encoding="utf-8")))


def judged(unit: Path) -> str | None:
    """What is wrong with the unit; None: it is as closed as it has to be."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / unit.name.removesuffix(".j2")
        file.write_text(rendered(unit), encoding="utf-8")
        done = subprocess.run(
            ["systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={MAX_EXPOSURE[unit]}", file],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    last = (done.stdout + done.stderr).strip().splitlines()[-1]
    return None if done.returncode == 0 else f"{unit}: {last} (at most {MAX_EXPOSURE[unit] / 10})"


if __name__ == "__main__":
    sys.exit("\n".join(filter(None, map(judged, MAX_EXPOSURE))) or 0)
