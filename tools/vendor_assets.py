# SPDX-License-Identifier: Apache-2.0
"""``python -m tools.vendor_assets``: makes the vendored files of browsers again, through the ordinary npm client.

Two directories have a manifest each: what the pages serve, and what only their tests load. It names package, version,
licence, the registry's integrity value and every file with its SHA-256. ``--pin`` writes versions that the manifest
names with the integrity and hashes of what came; without it, what differs from the manifest is refused.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
DIRECTORIES: Final = (ROOT / "orchestrator/web/static/vendor", ROOT / "tests/browser/vendor")
MANIFEST: Final = "manifest.json"


def packages_of(directory: Path) -> list[dict[str, Any]]:
    """The manifest's packages: ``name``, ``version``, ``licence``, ``integrity``, and ``files``, each with its path in
    the package (``source``), its ``name`` here, below this directory, and ``sha256``."""
    read: list[dict[str, Any]] = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
    return read


def differing(directory: Path) -> list[str]:
    """Files that are not as the manifest says, and files that it does not name."""
    named = {file["name"]: file["sha256"] for package in packages_of(directory) for file in package["files"]}
    files = (path for path in directory.rglob("*") if path.is_file())
    present = {path.relative_to(directory).as_posix() for path in files} - {MANIFEST}
    wrong = {name for name in named.keys() & present if sha256_of((directory / name).read_bytes()) != named[name]}
    return sorted(wrong | (named.keys() ^ present))


def sha256_of(content: bytes) -> str:
    """In hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def integrity_of(archive: bytes) -> str:
    """As npm writes it."""
    return "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()


def _archive(package: dict[str, Any], work: Path) -> Path:
    words = ["npm", "pack", "--silent", "--ignore-scripts", f"{package['name']}@{package['version']}"]
    written = subprocess.run(words, cwd=work, check=True, capture_output=True, text=True).stdout.split()
    return work / written[-1]


def _vendor(directory: Path, package: dict[str, Any], *, pin: bool) -> list[str]:
    """What differs from the manifest; nothing is written then."""
    with tempfile.TemporaryDirectory() as work:
        archive = _archive(package, Path(work))
        integrity = integrity_of(archive.read_bytes())
        with tarfile.open(archive) as tar:
            contents = {file["name"]: _member(tar, file["source"]) for file in package["files"]}
    if pin:
        package["integrity"] = integrity
        for file in package["files"]:
            file["sha256"] = sha256_of(contents[file["name"]])
    wrong = [f"{package['name']}: integrity"] if integrity != package["integrity"] else []
    wrong += [file["name"] for file in package["files"] if sha256_of(contents[file["name"]]) != file["sha256"]]
    if not wrong:
        for name, content in contents.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(content)
    return wrong


def _member(tar: tarfile.TarFile, source: str) -> bytes:
    opened = tar.extractfile(f"package/{source}")
    if opened is None:
        raise SystemExit(f"{source} is no file of the package")
    return opened.read()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pin", action="store_true", help="take what comes as right and write it down")
    pin: bool = parser.parse_args().pin
    wrong = []
    for directory in DIRECTORIES:
        packages = packages_of(directory)
        for package in packages:
            wrong += _vendor(directory, package, pin=pin)
        if pin:
            (directory / MANIFEST).write_text(json.dumps(packages, indent=2) + "\n", encoding="utf-8")
    if wrong:
        print("not as the manifests say:", ", ".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
