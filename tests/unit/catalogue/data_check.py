# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.unit.catalogue.data_check FOLDER``: what drivers were recorded to say and the tables lack.

Files are known by their content or place, however deep: ``nvidia-smi -q -x``, ``nvidia-smi mig -lgip``,
``creatable_vgpu_types`` of vendor VFIO, ``mdev_supported_types/nvidia-N``. One line a difference; exit code 1 if any.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

from orchestrator.catalogue.catalogue import Catalogue, shipped

_CREATABLE = re.compile(r"^\s*(?P<id>\d+)\s*: (?P<name>.+?)\s*$", re.MULTILINE)
_PROFILE = re.compile(r"MIG (?P<name>\S+)\s+(?P<id>\d+)\s+\d+/(?P<most>\d+)\s")
_MDEV = re.compile(r"framebuffer=(?P<mib>\d+)M.*max_instance=(?P<most>\d+)")


def _gpus(catalogue: Catalogue, path: Path, text: str) -> Iterator[str]:
    if "<nvidia_smi_log>" not in text:
        return
    for gpu in ET.fromstring(text).iter("gpu"):
        device, subsystem = (
            gpu.findtext(f"pci/{name}", "")[:4].lower() for name in ("pci_device_id", "pci_sub_system_id")
        )
        memory_mib = int(gpu.findtext("fb_memory_usage/total", "0").split()[0])
        if catalogue.model_of_pci(device, subsystem, memory_mib) is None:
            yield f"gpu_models.csv has no {gpu.findtext('product_name')} ({device}:{subsystem}, {memory_mib} MiB)"


def _types(catalogue: Catalogue, path: Path, text: str) -> Iterator[str]:
    if "vGPU Name" not in text:
        return
    for row in _CREATABLE.finditer(text):
        yield from _type(catalogue, row["name"], type_id=int(row["id"]))


def _mediated(catalogue: Catalogue, path: Path, text: str) -> Iterator[str]:
    said = _MDEV.search(text) if path.name == "description" else None
    name = path.with_name("name")
    if said is not None and name.exists():
        facts = {"framebuffer_mib": int(said["mib"]), "max_per_gpu": int(said["most"])}
        type_id = int(path.parent.name.removeprefix("nvidia-"))
        yield from _type(catalogue, name.read_text(encoding="utf-8").strip(), type_id=type_id, **facts)


def _type(catalogue: Catalogue, name: str, *, type_id: int, **facts: int) -> Iterator[str]:
    known = catalogue.vgpu_type(name)
    if known is None:
        yield f"vgpu_types.csv has no {name}"
        return
    tables = {"type_id": known.type_id_hint, "framebuffer_mib": known.framebuffer_mib, "max_per_gpu": known.max_per_gpu}
    for fact, value in {"type_id": type_id, **facts}.items():
        if tables[fact] != value:
            yield f"vgpu_types.csv, {name}: {fact} is {tables[fact]}, the driver says {value}"


def _profiles(catalogue: Catalogue, path: Path, text: str) -> Iterator[str]:
    """The text does not name the board, so that the board counts which has most of its rows."""
    said = {(row["name"], int(row["id"]), int(row["most"])) for row in _PROFILE.finditer(text)}
    boards: dict[str, set[tuple[str, int | None, int]]] = {}
    for profile in catalogue.mig_profiles:
        row = (profile.name, profile.profile_id, profile.max_instances)
        boards.setdefault(profile.board, set()).add(row)
    if said:
        nearest = max(boards, key=lambda board: len(said & boards[board]))
        for name, profile_id, most in sorted(said - boards[nearest]):
            yield f"mig_profiles.csv, {nearest}: no {name} with id {profile_id}, {most} at most"


READERS: tuple[Callable[[Catalogue, Path, str], Iterator[str]], ...] = (_gpus, _types, _mediated, _profiles)


def differences(catalogue: Catalogue, folder: Path) -> list[str]:
    """One line each, with the file that says otherwise. Files that are no text are passed over."""
    found = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        try:
            text = path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, OSError):
            continue
        said = (line for read in READERS for line in read(catalogue, path, text))
        found += [f"{path.relative_to(folder)}: {line}" for line in dict.fromkeys(said)]
    return found


if __name__ == "__main__":
    lines = differences(shipped(), Path(sys.argv[1]))
    print("\n".join(lines) or "the tables have all that the captures say")
    sys.exit(1 if lines else 0)
