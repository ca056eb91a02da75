#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the GPU tables that a lab host presents, out of the catalogue's CSV files.

Usage: gpu_tables.py CATALOGUE_DIRECTORY OUTPUT.json

The output maps a GPU model to its PCI ids, memory in MiB and vGPU types. Types whose id no source states carry the
catalogue's inferred one: a lab host has to number them somehow, and their ids are no contract anywhere.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from pathlib import Path
from typing import Any

Row = dict[str, str]
Table = dict[str, Any]


def _rows(path: Path) -> list[Row]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _number(text: str, default: int = 0) -> int:
    return int(text, 0) if text else default


def _vgpu_type(row: Row, gi_profiles: dict[tuple[str, str], int]) -> Table | None:
    type_id = row["type_id"] or row["type_id_inferred"]
    if not type_id or not row["framebuffer_mib"] or not row["max_per_gpu_equal"]:
        return None
    mig = row["mode"] == "mig-backed"
    device = row["vgpu_pci_device_id"] or row["pf_pci_device_id"]
    profile = gi_profiles.get((row["pf_pci_device_id"][2:].upper(), row["gi_profile"]))
    if mig and profile is None:
        return None
    return {
        "id": int(type_id),
        "name": row["type_name"],
        "framebuffer_mib": int(row["framebuffer_mib"]),
        "guest_fb_mib": _number(row["guest_fb_mib"], int(row["framebuffer_mib"])),
        "max_instances": int(row["max_per_gpu_equal"]),
        "max_per_vm": 16 if row["multi_vgpu"] == "1" else 1,
        "series": row["series"],
        "device": int(device, 16),
        "subsystem": _number(row["vgpu_pci_subsystem_id"]),
        "heads": _number(row["num_heads"], 1),
        "resolution": row["max_resolution"] or "3840x2400",
        "frl_fps": _number(row["frl_fps"]),
        "license": row["license"],
        "bar1_mib": _number(row["bar1_mib"]),
        "fb_reservation_mib": _number(row["fb_reservation_mib"]),
        "gsp_heap_mib": _number(row["gsp_heap_mib"]),
        "gi_profile": profile if mig else -1,
        "max_per_gi": _number(row["max_per_gi"], 1),
        "placement_size": _number(row["placement_size_gb"]),
        "placements": [int(start) for start in row["placement_ids_mixed"].split()],
    }


def _mig_profile(row: Row) -> Table:
    starts = re.fullmatch(r"\{([\d,]+)\}:(\d+)", row["placements"])
    enum = re.search(r"\(0x([0-9A-F]+)\)", row["nvml_profile_enum"], re.IGNORECASE)
    assert starts, row
    assert enum, row
    return {
        "id": int(row["profile_id"]),
        "name": row["gi_profile"],
        "enum": int(enum[1], 16),
        "slices": int(row["compute_slices"]),
        "size": int(starts[2]),
        "total": int(row["total_memory_slices"]),
        "max": int(row["max_instances"]),
        "starts": [int(start) for start in starts[1].split(",")],
        "memory_mib": _number(row["memory_mib"]) or int(float(row["memory_gib"] or 0) * 1024),
        "engines": [_number(row[name]) for name in ("sm_count", "copy_engines", "nvdec", "nvenc", "jpeg", "ofa")],
    }


def _gi_profiles(rows: list[Row]) -> dict[tuple[str, str], int]:
    return {
        (device.strip().upper(), row["gi_profile"]): int(row["profile_id"])
        for row in rows
        for device in row["pf_pci_device_ids"].split(",")
    }


def _model(row: Row) -> Table:
    return {
        "name": row["driver_marketing_names"].split(";")[0].split("|")[0].strip() or f"NVIDIA {row['gpu_model']}",
        "arch": row["arch"],
        "device": int(row["pci_device_id"], 16),
        "subsystem": int((row["pci_subsystem_ids"].split() or ["0"])[0], 16),
        "memory_mib": int(float(row["memory_gib"]) * 1024),
        "mig_capable": row["mig_capable"] == "yes",
        "vgpu_capable": row["vgpu_capable"] == "yes",
        "host_vgpu_mode": row["host_vgpu_mode"],
        "total_vfs": _number(row["sriov_total_vfs"]),
        "ecc": row["ecc"] == "yes",
        "power_limit_w": int(float(row["power_limit_max_w"] or 0)),
        "types": [],
        "mig_profiles": [],
    }


def _cuda_versions(rows: list[Row]) -> list[Table]:
    """CUDA version by the driver packaged with it, newest first."""
    found = []
    for row in rows:
        version = re.match(r"(\d+)\.(\d+)", row["name"])
        if row["kind"] == "cuda_toolkit" and row["cuda_packaged_driver_linux"] and version:
            driver = [int(part) for part in row["cuda_packaged_driver_linux"].split(".")]
            found.append({"driver": driver, "cuda": int(version[1]) * 1000 + int(version[2]) * 10})
    return sorted(found, key=lambda entry: entry["driver"], reverse=True)


def _fabrics(rows: list[Row]) -> dict[str, list[Table]]:
    """The partitions of each NVSwitch baseboard; GPUs by their module ids."""
    found: dict[str, list[Table]] = {}
    for row in rows:
        gpus = [int(module) for module in row["gpu_module_ids"].split()]
        entry = {"id": int(row["partition_id"]), "gpus": gpus, "nvlinks": int(row["nvlinks_per_gpu"])}
        found.setdefault(row["baseboard"], []).append(entry)
    return found


def read_tables(directory: Path) -> Table:
    """``{"models": {MODEL: …}, "cuda": [{"driver": [major, …], "cuda": 12040}, …], "fabrics": {BASEBOARD: …}}``."""
    models = {row["gpu_model"]: _model(row) for row in _rows(directory / "gpu_models.csv") if row["memory_gib"]}
    mig_rows = [row for row in _rows(directory / "mig_profiles.csv") if row["profile_id"]]
    profiles = _gi_profiles(mig_rows)
    for row in mig_rows:
        devices = {int(device, 16) for device in row["pf_pci_device_ids"].split(",")}
        for model in models.values():
            known = {profile["id"] for profile in model["mig_profiles"]}
            if model["device"] in devices and int(row["profile_id"]) not in known:
                model["mig_profiles"].append(_mig_profile(row))
    for row in _rows(directory / "vgpu_types.csv"):
        vgpu_type = _vgpu_type(row, profiles)
        types = models[row["gpu_model"]]["types"] if row["gpu_model"] in models else []
        if vgpu_type and vgpu_type["id"] not in {known["id"] for known in types}:
            types.append(vgpu_type)
    for model in models.values():
        model["types"].sort(key=lambda known: known["id"])
    return {
        "models": models,
        "cuda": _cuda_versions(_rows(directory / "driver_matrix.csv")),
        "fabrics": _fabrics(_rows(directory / "fabric_partitions.csv")),
    }


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    Path(arguments[1]).write_text(json.dumps(read_tables(Path(arguments[0])), separators=(",", ":")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
