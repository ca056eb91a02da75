# SPDX-License-Identifier: Apache-2.0
"""What is installed in a guest: driver, CUDA and what the roles bring."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GuestFacts:
    """What the role guest_check was told in the guest, and the role guest_cuda of its toolkit and cuDNN.

    None: nobody has looked, or there was no answer."""

    system: str | None = None
    """Its operating system; None: nobody has looked."""
    kernel: str | None = None
    """Release of its kernel."""
    driver: str | None = None
    """Version of the driver that is loaded in the guest."""
    gpus: tuple[str, ...] = ()
    """As nvidia-smi lists them: name, driver, memory."""
    cuda_driver: str | None = None
    """Newest CUDA that the driver runs."""
    cuda_devices: tuple[str, ...] = ()
    """Devices on which memory could be written and read back."""
    cuda_toolkit: str | None = None
    """Version of its CUDA toolkit."""
    cudnn: str | None = None
    """As its library tells it to the roles guest_cuda and guest_check."""
    nccl: str | None = None
    """Version of its NCCL."""
    nccl_devices: int | None = None
    """Over how many devices NCCL has added up numbers, rightly; None: there is no NCCL, or nobody has tried."""
    docker: str | None = None
    """Version of its Docker, as guest_container_toolkit found it."""
    container_toolkit: str | None = None
    """NVIDIA's; it, ``docker`` and those below are told by the roles that install them alone."""
    containerd: str | None = None
    """Version of its containerd, as guest_k8s_node found it."""
    kubelet: str | None = None
    """Version of its kubelet, from the same role."""
    device_plugin: str | None = None
    """NVIDIA's, of the kubelet."""
