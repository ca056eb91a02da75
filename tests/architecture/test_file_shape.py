# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

from tools.tree import ROOT, files, project_files, text

LONGEST_FILE = 400
NAMES_THAT_SAY_NOTHING = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}
SOURCE_SUFFIXES = (".py", ".sh", ".yml", ".yaml", ".c", ".h", ".mk", ".toml", ".ini")
OF_THE_KERNEL = ("lab/kernel/", "lab/machine/kvm_probe.c", "lab/driver/guest/Kbuild", "lab/driver/guest/nvidia.c")
SOURCES_WITHOUT_SUFFIX = {"Makefile", "Kbuild", "ensure", "run", "end"}


def _is_source(path: Path) -> bool:
    return path.suffix in SOURCE_SUFFIXES or path.name in SOURCES_WITHOUT_SUFFIX


def _licence(path: Path) -> str:
    if path.as_posix().startswith("collections/"):  # what is loaded into Ansible has Ansible's licence
        return "GPL-3.0-or-later"
    return "GPL-2.0" if path.as_posix().startswith(OF_THE_KERNEL) else "Apache-2.0"


def test_every_source_file_names_its_licence_at_the_top() -> None:
    wanting = [
        str(path)
        for path in project_files()
        if _is_source(path) and not any(
            f"SPDX-License-Identifier: {_licence(path)}" in line for line in text(path).splitlines()[:2]
        )
    ]  # fmt: skip
    assert wanting == []


def test_no_source_file_is_too_long_to_read() -> None:
    sizes = {str(path): text(path).count("\n") for path in files(".py", ".c", ".h", ".sh", ".mk")}
    assert {path: size for path, size in sizes.items() if size > LONGEST_FILE} == {}


def test_every_module_is_named_for_what_it_does() -> None:
    vague = [
        str(path) for path in files(".py") if NAMES_THAT_SAY_NOTHING & {part.removesuffix(".py") for part in path.parts}
    ]
    assert vague == []


def test_no_file_is_empty() -> None:
    markers = {"py.typed", ".gitkeep"}
    assert [str(p) for p in project_files() if p.name not in markers and (ROOT / p).stat().st_size == 0] == []
