# SPDX-License-Identifier: Apache-2.0
"""``nv-fabricmanager -c FILE``: serves the partitions over TCP, or over a unix socket where the file names one."""

from __future__ import annotations

import json
import re
import socketserver
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from .partitions import Partitions

FABRIC = Path("/run/vgpu-lab/fabric.json")
DRIVER = Path("/proc/driver/nvidia/version")
DEVICES = Path("/sys/bus/pci/devices")
PORT = 6666


def settings(text: str) -> dict[str, str]:
    """The ``KEY=VALUE`` lines of fabricmanager.cfg."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines if line)}


def mismatch(driver: str, own: str) -> str:
    """What the service says when the driver is of another version; nothing when they match."""
    found = re.search(r"Kernel Module\s+(\S+)", driver)
    loaded = found[1] if found else "none"
    if loaded == own:
        return ""
    return (
        f"fabric manager NVIDIA GPU driver interface version {own} don't match with driver version {loaded}. "
        "Please update with matching NVIDIA driver package."
    )


@lru_cache(maxsize=64)
def _shown(body: str) -> str:
    """As the real one prints it; json writes with indents by interpreted code, a tenth of a second under emulation."""
    return json.dumps(json.loads(body), indent=3, sort_keys=True) + "\n"


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        server = self.server
        assert isinstance(server, (_Tcp, _Unix))
        answer = server.partitions.answer(json.loads(self.rfile.readline()))
        text = _shown(json.dumps(answer["body"])) if "body" in answer else ""
        self.wfile.write(f"{answer['code']}\n{text}".encode())


class _Tcp(socketserver.TCPServer):
    allow_reuse_address = True
    partitions: Partitions


class _Unix(socketserver.UnixStreamServer):
    partitions: Partitions


def server(config: dict[str, str], fabric: dict[str, Any], devices: Path = DEVICES) -> _Tcp | _Unix:
    """The service, bound and ready to serve."""
    path = config.get("FM_CMD_UNIX_SOCKET_PATH", "")
    bound: _Tcp | _Unix
    if path:
        Path(path).unlink(missing_ok=True)
        bound = _Unix(path, _Handler)
    else:
        address = (config.get("FM_CMD_BIND_INTERFACE", "127.0.0.1"), int(config.get("FM_CMD_PORT_NUMBER", PORT)))
        bound = _Tcp(address, _Handler)
    restarted = config.get("FABRIC_MODE_RESTART", "0") == "1"
    bound.partitions = Partitions(fabric, int(config.get("FABRIC_MODE", "0")), restarted, devices)
    return bound


def main(arguments: Sequence[str]) -> int:
    fabric = json.loads(FABRIC.read_text(encoding="utf-8"))
    if list(arguments) == ["-v"]:
        print(f"Fabric Manager version is : {fabric['version']}")
        return 0
    if len(arguments) != 2 or arguments[0] != "-c":
        print("usage: nv-fabricmanager -c CONFIG | -v", file=sys.stderr)
        return 1
    wrong = mismatch(DRIVER.read_text(encoding="utf-8"), fabric["version"])
    if wrong:
        print(wrong, file=sys.stderr)
        return 1
    with server(settings(Path(arguments[1]).read_text(encoding="utf-8")), fabric) as bound:
        bound.serve_forever()
    return 0
