# SPDX-License-Identifier: Apache-2.0
"""vgpuctl: VMs with NVIDIA vGPUs, MIG partitions and whole GPUs on KVM hosts."""
