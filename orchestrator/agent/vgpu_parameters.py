# SPDX-License-Identifier: Apache-2.0
"""Parameters of vGPUs: one line in one file of each, written whole while no VM has the vGPU, and read back.

NVIDIA's driver lets no single parameter go: a blank clears all of them, and then they are written anew. They go with
the vGPU, and hold from its VM's next start on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from orchestrator.agent.attachments.device_files import DeviceFiles
from orchestrator.agent.attachments.kind import Handlers, Kinds
from orchestrator.agent.sysfs import reading
from orchestrator.core.actions.host_actions import ActionResult
from orchestrator.core.actions.vgpu_settings import ClearVgpuParameters, SetVgpuParameters
from orchestrator.core.errors import Conflict, Fatal

_BETWEEN = re.compile(r"[\s,]+")


@dataclass(frozen=True)
class VgpuParameterFiles:
    files: DeviceFiles
    kinds: Kinds

    @property
    def handlers(self) -> Handlers:
        return {SetVgpuParameters: self.set, ClearVgpuParameters: self.clear}

    def set(self, action: SetVgpuParameters) -> ActionResult:
        """:raises Conflict: ``vgpu.foreign``, ``vgpu.in_use``; :raises Fatal: ``vgpu.parameters_refused``"""
        file = self._file_of(action.vm, action.name)
        if file is None:
            raise Conflict("vgpu.foreign", "the vGPU there is not this VM's", hint="look at the host")
        return ActionResult(changed=self._write(file, action.text, action.name))

    def clear(self, action: ClearVgpuParameters) -> ActionResult:
        """Of a vGPU that is gone, or another VM's by now, there are none. :raises Conflict: ``vgpu.in_use``"""
        file = self._file_of(action.vm, action.name)
        changed = file is not None and reading.text(file) is not None and self._write(file, "", action.name)
        return ActionResult(changed=changed)

    def _file_of(self, vm: str, name: str) -> Path | None:
        return next((kind.parameters_file(name) for kind in self.kinds.values() if kind.owner_of(name) == vm), None)

    def _write(self, file: Path, text: str, shown: str) -> bool:
        there = _pairs(file)
        if there == _split(text):
            return False
        self.files.check_unused(file.parents[1], shown)
        if there:
            self.files.write_file(file, " ")
        if text:
            self.files.write_file(file, text)
        if _pairs(file) != _split(text):
            raise Fatal(
                "vgpu.parameters_refused",
                "the driver does not have the vGPU's parameters as they were written",
                hint="the offering asks for what this driver or vGPU type lacks: read the NVRM lines of the host's log",
                details=f"{shown}: wrote {text or 'none'!r}, reads {reading.text(file)!r}",
            )
        return True


def _pairs(file: Path) -> frozenset[str] | None:
    """None: it cannot be read."""
    text = reading.text(file)
    return None if text is None else _split(text)


def _split(text: str) -> frozenset[str]:
    return frozenset(pair for pair in _BETWEEN.split(text) if pair)
