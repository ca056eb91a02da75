# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from pathlib import Path

from tools.tree import files, project_files, text

# Put together so that this file does not contain what it looks for.
_HOSTS = ("deb.debian", "security.debian", "ftp.debian", "pypi", "pythonhosted", "registry.npmjs")
REGISTRY_HOSTS = re.compile("|".join(rf"\b{re.escape(host)}\.org\b" for host in _HOSTS), re.IGNORECASE)
MACHINE_PATHS = re.compile(r"(?<![\w.$}])/(?:work" + r"/\w|root" + r"/(?![.{]))")
INSIDE_OTHER_MACHINES = ("lab/image/", "lab/guest/", "tests/lab/")
SIMULATION = re.compile(r"\blab\b|\bsimulat", re.I)
MAY_SIMULATE = ("orchestrator/sim/", "orchestrator/server/bootstrap.py")
PLANNING = ("simulate_placement", "simulate placement", "Simulat")
DATA = {".csv", ".txt", ".json"}


def _hits(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    return [
        f"{path}:{number}: {line.strip()[:100]}"
        for path in paths
        for number, line in enumerate(text(path).splitlines(), start=1)
        if pattern.search(line)
    ]


def test_no_file_names_a_package_registry() -> None:
    assert _hits(REGISTRY_HOSTS, list(project_files())) == []


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    paths = [p for p in project_files() if p.suffix not in DATA and not p.as_posix().startswith(INSIDE_OTHER_MACHINES)]
    assert _hits(MACHINE_PATHS, paths) == []


def test_the_product_cannot_tell_a_real_host_from_another() -> None:
    product = [
        path
        for path in project_files()
        if path.suffix == ".py" and path.parts[0] == "orchestrator" and not path.as_posix().startswith(MAY_SIMULATE)
    ]
    hits = _hits(SIMULATION, product)
    assert [hit for hit in hits if not any(word.lower() in hit.lower() for word in PLANNING)] == []


SAME_NAME = {
    "Asked": "whether a client still may; who began an operation",
    "Connection": "of a client; of a client as the server counts it",
    "Content": "of a file that is sent; of a disk that is judged",
    "Fleet": "its rows; what services know of it; what placement plans on",
    "Found": "in an image; of a statement",
    "Group": "of commands; of VMs of one size on a GPU",
    "Kind": "of an attachment; of GPUs that are alike",
    "Request": "for a VM; over HTTP",
    "Room": "for requests that wait; for VMs",
}
"""Modules that no one reads together, each in the words of its trade."""


def test_a_class_has_a_name_of_its_own() -> None:
    homes: dict[str, set[str]] = {}
    for path in files(".py", under="orchestrator/"):
        for name in re.findall(r"^class ([A-Z]\w+)", text(path), re.MULTILINE):
            homes.setdefault(name, set()).add(path.as_posix())
    assert {name: sorted(where) for name, where in homes.items() if len(where) > 1 and name not in SAME_NAME} == {}


def test_a_bound_is_called_max_or_min() -> None:
    """docs/explanation/words.md."""
    bound = re.compile(r"^\s*_?(?:MOST|FEWEST)_[A-Z_]+\b.*=", re.MULTILINE)
    assert _hits(bound, [*files(".py")]) == []
