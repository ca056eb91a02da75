#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Present the GPUs of this host's scenario: write the module's configuration and load the module.

Runs once at boot, before libvirtd. A host whose scenario has no driver gets none: the module goes again at once, and
leaves the devices with the ids that their boards have.

Usage: load [--scenario FILE] [--tables FILE] [--print] [--configure]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SCENARIO = Path("/sys/firmware/qemu_fw_cfg/by_name/opt/vgpu-lab/scenario/raw")
TABLES = Path("/usr/lib/vgpu-lab/tables.json")
CONFIG = Path("/run/vgpu-lab/config")
KEPT_MIG_MODES = Path("/var/lib/vgpu-lab/mig")  # a file for each board whose InfoROM says that MIG is on
FABRIC = Path("/run/vgpu-lab/fabric.json")  # what the fabric manager serves, on hosts with NVSwitches
DEVICES = Path("/sys/bus/pci/devices")
EMULATED = ("0x1b36", "0x0010")
NVIDIA = "0x10de"  # what the module made of them when it was loaded before
FRAMEWORKS = ("mdev_pf", "mdev_vf", "vendor_vfio")
DEFAULT_DRIVER = "580.65.06"
INSTALLED = Path("/usr/lib/vgpu-lab/driver-version")  # of a driver that came after the image was made
NO_DRIVER = "none"
BOARD = "/usr/lib/vgpu-lab/board.ko"  # the module, where modprobe does not look
NEEDED = ("vfio_iommu_type1", "vfio-pci", "mdev")  # by the module
_SEED = uuid.UUID("6f0c1b0e-8f7e-4a2c-9f6c-3f1d5c1f8a55")


class ScenarioError(Exception):
    """The scenario names something that this host or the tables do not have."""


def emulated_pfs(devices: Path = DEVICES) -> list[str]:
    """PCI addresses of the emulated physical functions, in PCI order."""
    found = []
    for device in sorted(devices.iterdir()):
        ids = tuple((device / name).read_text(encoding="ascii").strip() for name in ("vendor", "device"))
        if (ids == EMULATED or ids[0] == NVIDIA) and not (device / "physfn").exists():
            found.append(device.name)
    return found


def cuda_version(driver: str, table: Sequence[dict[str, Any]]) -> int:
    """The newest CUDA version that a driver supports, as NVML writes it (12040 is 12.4); 0 when unknown."""
    version = [int(part) for part in driver.split(".") if part.isdigit()]
    return next((int(entry["cuda"]) for entry in table if entry["driver"] <= version), 0)


def type_line(vgpu_type: dict[str, Any]) -> str:
    """The module's line for one vGPU type."""
    more = {
        "guest_fb": vgpu_type["guest_fb_mib"],
        "per_vm": vgpu_type["max_per_vm"],
        "series": vgpu_type["series"],
        "license": vgpu_type["license"] or "NVIDIA-vCS",
        "bar1": vgpu_type["bar1_mib"],
        "reserved": vgpu_type["fb_reservation_mib"],
        "gsp_heap": vgpu_type["gsp_heap_mib"],
    }
    placements = ",".join(map(str, vgpu_type["placements"])) or "-"
    return (
        f"type {vgpu_type['id']} {vgpu_type['framebuffer_mib']} {vgpu_type['max_instances']} {vgpu_type['device']:x} "
        f"{vgpu_type['subsystem']:x} {vgpu_type['heads']} {vgpu_type['frl_fps']} {vgpu_type['resolution']} "
        f"{vgpu_type['gi_profile']} {vgpu_type['max_per_gi']} {vgpu_type['placement_size']} {placements} "
        f"{','.join(f'{key}={value}' for key, value in more.items())} {vgpu_type['name']}"
    )


def profile_line(profile: dict[str, Any]) -> str:
    """The module's line for one GPU instance profile."""
    place = f"{profile['id']} {profile['slices']} {profile['size']} {profile['total']} {profile['max']}"
    engines = " ".join(map(str, profile["engines"]))
    starts = ",".join(map(str, profile["starts"]))
    return f"profile {place} {starts} {profile['enum']} {profile['memory_mib']} {engines} {profile['name']}"


def mig_line(address: str, model: dict[str, Any], kept: Path = KEPT_MIG_MODES) -> str:
    """Ampere's boards change their MIG mode by a reset and keep it; later ones change at once and forget it."""
    keeps = model["arch"] == "ampere"
    return f"mig {int(keeps and (kept / address).exists())} {int(keeps)}"


def _facts(gpu: dict[str, Any], model: dict[str, Any], index: int, host: str) -> dict[str, object]:
    identity = uuid.uuid5(_SEED, f"{host}/{index}")
    facts: dict[str, object] = {
        "name": gpu.get("name", model["name"]),
        "arch": model["arch"],
        "uuid": gpu.get("uuid", f"GPU-{identity}"),
        "serial": gpu.get("serial", identity.int % 10**13),
        "memory_mib": model["memory_mib"],
        "mig_capable": int(model["mig_capable"]),
        "vgpu_capable": int(model["vgpu_capable"]),
        "ecc": int(model["ecc"]),
        "module_id": gpu.get("module_id", 0),
        "minor": index,
    }
    if model["power_limit_w"]:
        facts["power_limit_mw"] = model["power_limit_w"] * 1000
    return facts


def _gpu_lines(gpu: dict[str, Any], index: int, host: str, tables: dict[str, Any], pfs: Sequence[str]) -> list[str]:
    model = tables["models"].get(gpu.get("model"))
    if model is None:
        raise ScenarioError(f"GPU {index}: the tables have no model {gpu.get('model')!r}")
    framework = gpu.get("framework") or ("mdev_pf" if model["host_vgpu_mode"] == "non_sriov" else "vendor_vfio")
    if framework not in FRAMEWORKS:
        raise ScenarioError(f"GPU {index}: framework {framework!r} is none of {', '.join(FRAMEWORKS)}")
    address = gpu.get("pci") or (pfs[index] if index < len(pfs) else None)
    if address is None or address not in pfs:
        raise ScenarioError(f"GPU {index}: no emulated device at {address or 'any address'}, this host has {pfs}")
    vfs = 0 if framework == "mdev_pf" else gpu.get("vfs", model["total_vfs"] or 16)
    ids = f"{model['device']:x} {gpu.get('subsystem', model['subsystem']):x}"
    lines = [f"gpu {address} {framework} {ids} {vfs} {gpu.get('numa', -1)}"]
    lines += [f"fact {key} {value}" for key, value in _facts(gpu, model, index, host).items()]
    if model["mig_profiles"]:
        lines += [mig_line(address, model), *map(profile_line, model["mig_profiles"])]
    return lines + [type_line(vgpu_type) for vgpu_type in model["types"]]


def config_text(scenario: dict[str, Any], tables: dict[str, Any], pfs: Sequence[str]) -> str:
    """The module's configuration for a host of a scenario; raises ScenarioError when they do not fit."""
    driver = scenario.get("driver_version", DEFAULT_DRIVER)
    lines = [f"driver {driver}"]
    for index, gpu in enumerate(scenario.get("gpus", [])):
        lines += _gpu_lines(gpu, index, scenario.get("host", ""), tables, pfs)
        lines.append(f"fact cuda_version {cuda_version(driver, tables['cuda'])}")
    return "\n".join(lines) + "\n"


def fabric_text(scenario: dict[str, Any], tables: dict[str, Any], config: str) -> str:
    """What the fabric manager serves; empty on a host without NVSwitches. ``config`` is the module's configuration.

    Raises ScenarioError for a baseboard that the tables do not have.
    """
    board = scenario.get("baseboard")
    if not board:
        return ""
    if board not in tables["fabrics"]:
        raise ScenarioError(f"the tables have no baseboard {board!r}")
    gpus: list[dict[str, Any]] = []
    for word, _, rest in (line.partition(" ") for line in config.splitlines()):
        key, _, value = rest.partition(" ")
        if word == "gpu":
            gpus.append({"pci": key})
        if word == "fact" and key in {"uuid", "module_id"}:
            gpus[-1][key] = int(value) if key == "module_id" else value
    version = scenario.get("driver_version", DEFAULT_DRIVER)
    return json.dumps({"version": version, "partitions": tables["fabrics"][board], "gpus": gpus})


def load_modules() -> None:
    """Let go of the emulated devices, then load VFIO and the module; raises CalledProcessError."""
    subprocess.run(["modprobe", "-q", "-r", "nvme"], check=False)
    for module in (*NEEDED, "nvidia"):
        subprocess.run(["modprobe", module], check=True)


def show_boards() -> None:
    """The devices as they are without a driver: with NVIDIA's ids, bound to nothing, and no module is left; raises
    CalledProcessError."""
    subprocess.run(["modprobe", "-q", "-r", "nvme"], check=False)
    for module in NEEDED:
        subprocess.run(["modprobe", module], check=True)
    subprocess.run(["insmod", BOARD], check=True)
    subprocess.run(["rmmod", "nvidia"], check=True)
    subprocess.run(["modprobe", "-r", *reversed(NEEDED)], check=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="load", description=__doc__.partition("\n")[0])
    parser.add_argument("--scenario", type=Path, default=SCENARIO)
    parser.add_argument("--tables", type=Path, default=TABLES)
    parser.add_argument("--print", action="store_true", help="print the configuration and load nothing")
    parser.add_argument("--configure", action="store_true", help="write the configuration and load nothing")
    options = parser.parse_args(arguments)
    try:
        scenario = json.loads(options.scenario.read_text(encoding="utf-8"))
        tables = json.loads(options.tables.read_text(encoding="utf-8"))
        if INSTALLED.exists():
            scenario["driver_version"] = INSTALLED.read_text(encoding="ascii").strip()
        bare = scenario.get("driver_version") == NO_DRIVER
        if bare:
            del scenario["driver_version"]
        text = config_text(scenario, tables, emulated_pfs())
        if options.print:
            print(text, end="")
            return 0
        CONFIG.parent.mkdir(exist_ok=True)
        CONFIG.write_text(text, encoding="utf-8")
        if fabric := fabric_text(scenario, tables, text):
            FABRIC.write_text(fabric, encoding="utf-8")
        KEPT_MIG_MODES.mkdir(parents=True, exist_ok=True)
        if not options.configure:
            (show_boards if bare else load_modules)()
    except (OSError, ValueError, ScenarioError, subprocess.CalledProcessError) as error:
        print(f"load: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
