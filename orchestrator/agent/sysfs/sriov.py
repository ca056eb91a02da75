# SPDX-License-Identifier: Apache-2.0
"""Virtual functions on and off with NVIDIA's sriov-manage: current drivers refuse a raw write of sriov_numvfs."""

from __future__ import annotations

from orchestrator.agent.paths import Paths
from orchestrator.agent.process import ChildHangs, run
from orchestrator.agent.timing import Timing
from orchestrator.core.errors import Fatal, Retryable, Unknown

_TRIES = 5
_PAUSE_SECONDS = 1.0
_LIMIT_SECONDS = 120.0
_TRANSIENT = "Cannot obtain unbindLock"
"""Some process is an NVML client at this moment; the only text after which another try makes sense."""


def manage(paths: Paths, timing: Timing, option: str, gpu: str) -> None:
    """``sriov-manage -e GPU`` or ``-d GPU``.

    :raises Retryable: ``gpu.nvml_busy`` after five tries
    :raises Fatal: ``gpu.sriov_failed``
    :raises Unknown: ``gpu.sriov_hung``
    """
    output = ""
    for attempt in range(_TRIES):
        if attempt:
            timing.sleep(_PAUSE_SECONDS)
        code, output = _once(paths, option, gpu)
        if code == 0:
            return
        if _TRANSIENT not in output:
            raise Fatal(
                "gpu.sriov_failed",
                "the virtual functions could not be switched",
                hint="is SR-IOV on in the host's firmware?",
                details=f"exit code {code}: {output}",
            )
    raise Retryable(
        "gpu.nvml_busy",
        "another program keeps the GPU busy",
        hint="stop monitoring programs that hold the NVIDIA driver open",
        details=output,
    )


def _once(paths: Paths, option: str, gpu: str) -> tuple[int, str]:
    try:
        finished = run([str(paths.sriov_manage), option, gpu], limit_s=_LIMIT_SECONDS)
    except ChildHangs as error:
        raise Unknown("gpu.sriov_hung", "sriov-manage did not end in time", hint="look at the host") from error
    except OSError as error:
        raise Fatal(
            "gpu.sriov_failed",
            "the host has no sriov-manage",
            hint="install NVIDIA's vGPU host driver",
            details=str(error),
        ) from error
    return finished.code, finished.output
