# SPDX-License-Identifier: Apache-2.0
"""UEFI variables of VMs: a file each, made by libvirt at the VM's first start and gone with its definition."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.agent.images import files
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.paths import Paths
from orchestrator.core.domain_xml.firmware import nvram_file


@dataclass(frozen=True)
class NvramFiles:
    paths: Paths
    ledger: Ledger

    @contextmanager
    def owned(self, vm: str) -> Iterator[None]:
        """Record the owner before a definition names the file, and take it back when no definition came of it. The
        directory comes with the first VM that boots by UEFI.

        :raises Conflict: ``host.owned_by_other``; :raises Fatal: ``host.storage_failed``"""
        try:
            self.paths.nvram.mkdir(exist_ok=True)
            self.paths.nvram.chmod(0o711)  # QEMU's account has to get through to its file
        except OSError as error:
            raise files.storage_error(error) from error
        self.ledger.claim(_key(vm), vm)
        try:
            yield
        except BaseException:
            if not self._file(vm).exists():
                self.ledger.release(_key(vm))
            raise

    def settle(self, vm: str) -> None:
        """Write down again whose it is, if it is there.

        :raises Conflict: ``host.owned_by_other``"""
        if self._file(vm).exists():
            self.ledger.claim(_key(vm), vm)

    def remove(self, vm: str) -> None:
        """Gone already is fine, and so is that it never was."""
        owner = self.ledger.owner(_key(vm))
        if owner is not None and owner.vm == vm:
            files.remove(self._file(vm))
            self.ledger.release(_key(vm))

    def _file(self, vm: str) -> Path:
        return self.paths.nvram / files.check_file_name(nvram_file(vm))


def _key(vm: str) -> str:
    return f"nvram:{nvram_file(vm)}"
