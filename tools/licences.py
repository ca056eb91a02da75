# SPDX-License-Identifier: Apache-2.0
"""What we ship with and under which licences: ``python -m tools.licences`` writes the notices.

The packages are those of requirements/base.txt, their licences what their own metadata says (core metadata 2.4:
``License-Expression``, before that ``License`` and classifiers). ``--check`` compares and is a part of ``make lint``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement

from tools.tree import ROOT
from tools.vendor_assets import DIRECTORIES, packages_of

LOCK = ROOT / "requirements/base.txt"
PAGE = ROOT / "docs/reference/third-party.md"
_PIN = re.compile(r"^([A-Za-z0-9][^\\]*==[^\\]*)", re.MULTILINE)

FREE = (
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0", "MPL-2.0", "PSF-2.0",
    "Zlib",
)  # fmt: skip
"""May be part of an Apache-2.0 program without asking anybody."""
AS_A_LIBRARY = ("LGPL-2.1", "LGPL-2.1-only", "LGPL-3.0-only", "LGPL-2.0-or-later")
"""Imported as a package of its own that its user can exchange."""
AS_A_PROCESS = {"ansible-core": "GPL-3.0-or-later"}
"""Run as a process of its own, never imported (tests/architecture/test_library_homes.py)."""

_SPELLINGS = {
    "Apache Software License": "Apache-2.0",
    "Apache Software License, Version 2.0": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "3-Clause BSD License": "BSD-3-Clause",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "GNU General Public License v3 or later (GPLv3+)": "GPL-3.0-or-later",
    "ISC License (ISCL)": "ISC",
    "ISC license": "ISC",
    "LGPL-v2.0-or-later": "LGPL-2.0-or-later",
    "MIT License": "MIT",
    "ISC License": "ISC",
}
_SAID_ELSEWHERE = {"pyrage": "MIT", "pysqlite3": "Zlib"}
"""Their metadata is silent; the file LICENSE that comes with them says this."""
_HEAD = """\
<!-- SPDX-License-Identifier: Apache-2.0 -->
# Third-party packages

Written by `make docs` from the lock file and the packages' own metadata. `make sbom` writes the same packages as
CycloneDX. Nothing of NVIDIA's driver is among them: `nvidia-ml-py` is NVIDIA's binding, under a BSD licence.

| package | version | licence | how it is used |
|---|---|---|---|
"""


@dataclass(frozen=True)
class Package:
    """One package of the lock file."""

    name: str
    version: str
    licence: str
    """SPDX expression; empty when its metadata says nothing that we know."""

    @property
    def use(self) -> str:
        """How it is bound to us; empty when its licence allows none of the ways."""
        if AS_A_PROCESS.get(self.name) == self.licence:
            return "a process of its own"
        terms = re.findall(r"[A-Za-z0-9.-]+", re.sub(r"\b(AND|OR)\b", " ", self.licence))
        if terms and all(term in FREE for term in terms):
            return "imported"
        return "imported, exchangeable" if self.licence in AS_A_LIBRARY else ""


def packages() -> Iterator[Package]:
    """Those of the lock file that this Python takes, by name."""
    for pin in _PIN.findall(LOCK.read_text(encoding="utf-8")):
        wanted = Requirement(pin.strip())
        if wanted.marker is not None and not wanted.marker.evaluate():
            continue
        try:
            found = distribution(wanted.name)
        except PackageNotFoundError:
            yield Package(wanted.name, str(wanted.specifier).removeprefix("=="), "")
            continue
        yield Package(wanted.name, found.version, _licence(wanted.name, found))


def for_browsers() -> Iterator[Package]:
    """Those whose files the pages serve."""
    for vendored in packages_of(DIRECTORIES[0]):
        yield Package(vendored["name"], vendored["version"], vendored["licence"])


def _licence(name: str, found: Distribution) -> str:
    expressions = _field(found, "License-Expression")
    if expressions:
        return _SPELLINGS.get(expressions[0], expressions[0])
    classifiers = [line.rsplit(" :: ", 1)[-1] for line in _field(found, "Classifier") if line.startswith("License :: ")]
    for one in (*classifiers, *_field(found, "License")):
        known = _SPELLINGS.get(one, one)
        if known in {*FREE, *AS_A_LIBRARY, *AS_A_PROCESS.values()}:
            return known
    return _SAID_ELSEWHERE.get(name, "")


def _field(found: Distribution, name: str) -> list[str]:
    values: list[str] = found.metadata.get_all(name) or []
    return values


def page() -> str:
    imported = [f"| {one.name} | {one.version} | {one.licence} | {one.use} |\n" for one in packages()]
    sent = [f"| {one.name} | {one.version} | {one.licence} | sent to browsers |\n" for one in for_browsers()]
    return _HEAD + "".join(imported + sent)


def problems() -> list[str]:
    """Packages that may not be shipped, and a page that is out of date."""
    wrong = [
        f"{one.name} {one.version}: licence {one.licence or 'unknown'!r} is not one that we may ship with"
        for one in (*packages(), *for_browsers())
        if not one.use
    ]
    # Another Python takes other versions of a few packages; the names are the same everywhere.
    listed = set(re.findall(r"^\| ([^ |]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)) - {"package"}
    if listed != {one.name for one in (*packages(), *for_browsers())}:
        wrong.append(f"{PAGE.relative_to(ROOT)} is out of date: run make docs")
    return wrong


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit("\n".join(problems()) or 0)
    PAGE.write_text(page(), encoding="utf-8")
