# SPDX-License-Identifier: Apache-2.0
"""A host's fabric manager and its fmpm: the lab's own programs, over a unix socket, below the root of a test."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from threading import Thread
from typing import Any

from lab.tools.fabric import nv_fabricmanager
from lab.tools.gpu_tables import read_tables
from lab.tools.load import config_text, fabric_text
from orchestrator.agent.fabric.fmpm import FILE
from orchestrator.agent.paths import Paths
from tests.fakes.fmpm_program import fmpm

REPOSITORY = Path(__file__).parents[2]
MODULES = (7, 5, 6, 8, 1, 3, 4, 2)
"""Of the GPUs in the order of their addresses."""
GPUS = tuple(f"0000:0{number}:00.0" for number in range(1, 9))
BOARD = "HGX H100/H200 8-GPU"
VERSION = "580.105.06"


def fabric_of(gpus: int = 8) -> dict[str, Any]:
    """What the lab's loader writes for its fabric manager."""
    tables = read_tables(REPOSITORY / "vgpu_profiles" / "nvidia")
    models = [{"model": "H100 SXM5 80GB", "module_id": number} for number in MODULES[:gpus]]
    scenario = {"host": "h", "driver_version": VERSION, "baseboard": BOARD, "gpus": models}
    found: dict[str, Any] = json.loads(fabric_text(scenario, tables, config_text(scenario, tables, GPUS)))
    return found


class FabricHost:
    """``start`` and ``stop`` are systemctl's. Its socket is short, as such names must be."""

    def __init__(self, paths: Paths, socket: Path) -> None:
        self.paths, self.socket = paths, socket
        self.fabric = fabric_of()
        self._running: tuple[nv_fabricmanager._Tcp | nv_fabricmanager._Unix, Thread] | None = None
        programs = paths.root / "usr/bin"
        programs.mkdir(parents=True, exist_ok=True)
        self.fmpm, self.manager = programs / "fmpm", programs / "nv-fabricmanager"
        self.fmpm.symlink_to(fmpm())
        self.installed(VERSION)
        version = paths.proc / "driver/nvidia/version"
        version.parent.mkdir(parents=True, exist_ok=True)
        version.write_text(f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {VERSION}  Mon Oct\n")
        config = paths.etc / FILE
        config.parent.mkdir(parents=True)
        config.write_text(json.dumps({"socket": str(socket)}))

    def program(self, code: str) -> None:
        """What ``fmpm`` does, in Python; ``main`` does what the lab's own does."""
        main = f"def main(words):\n    return subprocess.run([{str(fmpm())!r}, *words]).returncode"
        head = f"#!{sys.executable}\nimport subprocess, sys\n{main}\n"
        self.fmpm.unlink()
        self.fmpm.write_text(f"{head}{code}\n")
        self.fmpm.chmod(0o755)

    def installed(self, version: str) -> None:
        """The fabric manager of that version."""
        self.manager.unlink(missing_ok=True)
        self.manager.write_text(f"#!/bin/sh\necho 'Fabric Manager version is : {version}'\n")
        self.manager.chmod(0o755)

    def start(self, **config: str) -> None:
        settings = {"FABRIC_MODE": "1", "FM_CMD_UNIX_SOCKET_PATH": str(self.socket)} | config
        bound = nv_fabricmanager.server(settings, self.fabric, self.paths.pci_devices)
        thread = Thread(target=bound.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        self._running = (bound, thread)

    def stop(self) -> None:
        if self._running is not None:
            bound, thread = self._running
            bound.shutdown()
            thread.join()
            bound.server_close()
            self._running = None
            self.socket.unlink(missing_ok=True)

    def restart(self, **config: str) -> None:
        self.stop()
        self.start(**config)

    def active(self) -> set[int]:
        """As the fabric manager itself has it."""
        assert self._running is not None
        rows = self._running[0].partitions.answer({"call": "list"})["body"]["partitionInfo"]
        return {row["partitionId"] for row in rows if row["isActive"]}

    def by_hand(self, call: str, partition: int) -> None:
        """What somebody else does with fmpm."""
        assert self._running is not None
        assert self._running[0].partitions.answer({"call": call, "ids": [partition]}) == {"code": 0}
