# SPDX-License-Identifier: Apache-2.0
"""What GPUs, vGPUs and VMs do now: the quantities, and one frame of a host."""
