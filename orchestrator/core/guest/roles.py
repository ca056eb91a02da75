# SPDX-License-Identifier: Apache-2.0
"""What can be put into a guest by ``vm provision``: roles by name, in the order in which they are run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from orchestrator.core.errors import InvalidInput
from orchestrator.core.names import near

ROLES: Final[dict[str, str]] = {
    "guest_driver": "NVIDIA's driver, in the version that goes with the host's",
    "guest_cuda": "The CUDA toolkit, in the locked version or the newest that goes with the driver; locked cuDNN",
    "guest_container_toolkit": "Docker with NVIDIA Container Toolkit, and a CDI specification of the GPUs",
    "guest_licence": "NVIDIA's licence token, and the service that fetches the licence",
    "guest_mps": "NVIDIA's Multi-Process Service with limits for each client",
    "guest_time_slice": "How long a program keeps a GPU before the next one has it",
    "guest_exporter": "DCGM's exporter of readings, for Prometheus",
    "guest_slurm_node": "slurmd with the guest's GPUs, as a node of your Slurm cluster",
    "guest_k8s_node": "containerd, kubelet and NVIDIA's device plugin, as a node of your Kubernetes cluster",
    "guest_check": "Driver, nvidia-smi and CUDA answer in the guest",
}
"""By name, in the order in which they are run: what each does."""


def check_roles(names: Sequence[str]) -> tuple[str, ...]:
    """The roles, each once and in their order.

    :raises InvalidInput: ``guest.role_unknown``, ``guest.no_roles``
    """
    for name in names:
        if name not in ROLES:
            raise InvalidInput(
                "guest.role_unknown",
                f"there is no role {ascii(name)[:60]}",
                hint=near(name, ROLES, "vgpuctl vm provision --help"),
            )
    if not names:
        raise InvalidInput("guest.no_roles", "no role was given", hint=f"give some of {', '.join(ROLES)}")
    return tuple(role for role in ROLES if role in names)
