# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.session``: writes the recording again, from simulated hosts; ``--lab``: the one from lab hosts."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.session.lab import lab_site
from tests.session.play import Said, played
from tests.session.record import SIMULATED, Recording, on_lab_hosts
from tests.session.scenes import SCENES
from tests.session.site import simulated_site


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.session", description="Record the session of three persons.")
    parser.add_argument("--lab", action="store_true", help="on two lab hosts, which are brought up for it")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        session, recording = _on_lab_hosts(Path(name)) if wanted.lab else _simulated(Path(name))
    recording.write(session)
    failed = [said.command for said in session if said.status]
    sys.exit(f"failed: {failed}" if failed else 0)


def _simulated(directory: Path) -> tuple[Sequence[Said], Recording]:
    with simulated_site(directory) as site:
        return list(played(site, directory, SCENES)), SIMULATED


def _on_lab_hosts(directory: Path) -> tuple[Sequence[Said], Recording]:
    with lab_site(directory) as (site, scenes):
        return list(played(site, directory, scenes)), on_lab_hosts(scenes)


if __name__ == "__main__":
    main()
