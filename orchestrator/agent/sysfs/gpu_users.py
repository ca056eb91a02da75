# SPDX-License-Identifier: Apache-2.0
"""Processes that have a GPU open through its host's driver."""

from __future__ import annotations

import re
from collections.abc import Iterator

from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs import open_files, reading

_MINOR = re.compile(r"^Device Minor:\s*(?P<minor>[0-9]+)\s*$", re.ASCII | re.MULTILINE)


def users_of(paths: Paths, functions: tuple[str, ...]) -> tuple[str, ...] | None:
    """``name (pid)`` of each; None: could not tell."""
    return open_files.holders(paths, frozenset(node for function in functions for node in _nodes(paths, function)))


def _nodes(paths: Paths, address: str) -> Iterator[str]:
    """Device files of the function: NVIDIA's, of the display, of the sound card on its audio function."""
    said = reading.text(paths.proc / "driver/nvidia/gpus" / address / "information")
    match = None if said is None else _MINOR.search(said)
    if match is not None:
        yield f"/dev/nvidia{match['minor']}"
    directory = paths.pci(address)
    yield from (f"/dev/dri/{name}" for name in reading.names(directory / "drm"))
    for card in reading.names(directory / "sound"):
        yield from (f"/dev/snd/{name}" for name in reading.names(directory / "sound" / card))
    yield from open_files.vfio_nodes(directory)
