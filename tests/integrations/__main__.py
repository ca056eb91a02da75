# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.integrations SUITE``: judges a simulated site with a copy of NVIDIA's AI Cloud Validation suite.

``SUITE`` is the copy's directory. It is installed into an environment of its own below build/isv; reports, logs and
what the steps told stay there. Writes docs/reference/isv.md, of a lab host isv-lab.md."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import yaml

from integrations.isvctl.__main__ import SUITES, configuration
from tests.integrations.lab import lab_site
from tests.integrations.page import LAB_PAGE, PAGE, page
from tests.integrations.simulated import SITE, simulated_site
from tests.integrations.verdicts import CAPABILITY, IN_GUEST, Verdict, verdicts

ROOT: Final = Path(__file__).parents[2]
BUILD: Final = ROOT / "build/isv"
PARTS: Final = ("isvreporter", "isvtest", "isvctl")
NEEDS: Final = ">=3.12"
UV: Final = ROOT / ".venv/bin/uv"


def main() -> None:
    parser = argparse.ArgumentParser(prog="make isv SUITE=PATH", description="Judge a simulated site.")
    parser.add_argument("suite", type=Path, help="a clone of NVIDIA/ai-cloud-validation")
    parser.add_argument("--python", default=NEEDS, help="which the suite runs with (default: any %(default)s)")
    parser.add_argument(
        "--lab-host", help="judge one that runs by vm, storage and network, into docs/reference/isv-lab.md"
    )
    wanted = parser.parse_args()
    suite = wanted.suite.resolve()
    missing = [part for part in PARTS if not (suite / part / "pyproject.toml").is_file()]
    if missing:
        parser.error(f"{suite} has no {missing[0]}/pyproject.toml; give a clone of NVIDIA/ai-cloud-validation")
    program = _installed(suite, wanted.python)
    shutil.rmtree(BUILD / "site", ignore_errors=True)
    name, place, suites = _what(wanted.lab_host)
    with (
        simulated_site(BUILD / "site") if wanted.lab_host is None else lab_site(BUILD / "site", wanted.lab_host) as site
    ):
        found = {one: _judged(program, suite, one, site) for one in suites}
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    place.write_text(page(place, version, name, found))
    passed = sum(verdict.outcome == "passed" for verdicts_ in found.values() for verdict in verdicts_)
    print(f"{place.relative_to(ROOT)}: {passed} passed")


def _what(lab_host: str | None) -> tuple[str, Path, Sequence[str]]:
    """What is judged, where the page goes, which suites. On a lab host: those that guests say more to."""
    if lab_host is None:
        return SITE, PAGE, tuple(SUITES)
    return f"a lab host ({lab_host})", LAB_PAGE, ("vm", "storage", "network")


def _installed(suite: Path, wanted: str) -> Path:
    """The suite's command, in an environment of its own."""
    environment = BUILD / "venv"
    python = environment / "bin/python"
    if not python.exists():
        quiet = ["--quiet", "--no-python-downloads"]
        made = subprocess.run([UV, "venv", *quiet, "--python", wanted, environment], check=False)
        if made.returncode:
            sys.exit(f"error: the suite needs Python {NEEDS}: make isv SUITE={suite} ISV_PYTHON=/path/to/python")
    editable = [word for part in PARTS for word in ("--editable", str(suite / part))]
    subprocess.run([UV, "pip", "install", "--quiet", "--python", python, *editable], check=True)
    return environment / "bin/isvctl"


def _judged(program: Path, suite: Path, name: str, site: Mapping[str, str]) -> list[Verdict]:
    """Runs one of its suites. Its exit code says only that something failed."""
    asked, ours, report = (BUILD / f"{name}.{kind}" for kind in ("log", "json", "xml"))
    theirs = suite / f"isvctl/configs/suites/{name}.yaml"
    rules = yaml.safe_load(theirs.read_text())
    ours.write_text(json.dumps(configuration(name)))
    report.unlink(missing_ok=True)
    words: list[str | Path] = ["-f", theirs, "-f", ours, "--exclude-label", IN_GUEST, "--working-dir", ROOT]
    words += [] if "capability" in rules["tests"] else ["--capability", CAPABILITY]
    words += ["--junitxml", report, "--no-upload", "--no-user-config", "--color", "no"]
    environment = {**os.environ, **site, "ISVTEST_INCLUDE_UNRELEASED": "1"}
    with asked.open("wb") as log:
        subprocess.run(
            [program, "test", "run", *words], cwd=BUILD, env=environment, stdout=log, stderr=log, check=False
        )  # fmt: skip
    if not report.exists():
        sys.exit(f"error: the suite {name} made no report; {asked} says why")
    return verdicts(rules, report, Path(site["ISV_WORK"]))


if __name__ == "__main__":
    main()
