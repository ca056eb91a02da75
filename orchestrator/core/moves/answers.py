# SPDX-License-Identifier: Apache-2.0
"""What the driver of a host says of a VM's vGPUs that would go on there, as limits of its moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from orchestrator.core.gpu.vgpu_metadata import Compatibility, VgpuQuestion
from orchestrator.core.moves.verdicts import WITH_MEMORY, Bars, MoveKind, MoveLimit
from orchestrator.core.vms.vm import VmShape

NOT_ASKED: Final = "has not been asked yet"
DriverAnswer = Compatibility | str | None
"""None: the driver has no such call, and data has to say it; text: why it is not known."""

_STATES: Final[Mapping[MoveKind, int]] = {"hibernated": 2, "suspended": 4, "live": 8}
"""Bits of nvmlVgpuVmCompatibility_t. Of its COLD nothing is asked: a stopped VM gets another vGPU, by placement."""
_LIMITS: Final = (
    (1, "move.host_driver", "the driver of {host} does not take what its own host's has of the vGPU",
     "'vgpuctl driver upgrade --to VERSION' gives hosts one driver"),
    (2, "move.guest_driver", "the driver of {host} does not go with its guest's", "another driver in its guest"),
    (4, "move.gpu", "the driver of {host} does not take the vGPU onto this GPU", "a GPU of the same board, set alike"),
)  # fmt: skip
"""Bits of nvmlVgpuPgpuCompatibilityLimitCode_t, code, words, cure."""
_KNOWN: Final = 1 | 2 | 4


@dataclass(frozen=True, kw_only=True)
class DriverAnswers:
    """What is known of one VM."""

    metadata: Mapping[str, tuple[str, ...]]
    """PCI address of each GPU that it has, or had, vGPUs on → what their driver said of them."""
    answer: Callable[[str, VgpuQuestion], DriverAnswer]
    """Of the host of that name."""

    def questions(self, gpu: str, target: str | None) -> tuple[VgpuQuestion, ...]:
        """Of vGPUs on that GPU, towards the one with the metadata ``target``. None: nobody can be asked."""
        return () if target is None else tuple(VgpuQuestion(vgpu, target) for vgpu in self.metadata.get(gpu, ()))


NO_DRIVER: Final = DriverAnswers(metadata={}, answer=lambda *_: NOT_ASKED)
"""No driver is asked."""


def limits_of_answer(answer: Compatibility | str, host: str, vm: VmShape) -> Iterator[Bars]:
    """What it rules out for the VM."""
    if isinstance(answer, str):
        cure = f"'vgpuctl show-vm {vm.name} --tenant {vm.tenant} --moves --host {host}' asks it"
        words = f"the driver of {host} {answer}, which alone knows whether it takes the vGPU's state"
        yield WITH_MEMORY, MoveLimit(code="move.not_asked", message=words, cure=cure)
        return
    refused = frozenset(kind for kind, bit in _STATES.items() if not answer.states & bit)
    if not refused:
        return
    for bit, code, words, cure in _LIMITS:
        if answer.limits & bit:
            yield refused, MoveLimit(code=code, message=words.format(host=host), cure=cure)
    if not answer.limits & _KNOWN:
        words = f"the driver of {host} does not take the vGPU's state, and does not say why"
        yield refused, MoveLimit(code="move.driver_refuses", message=words)
