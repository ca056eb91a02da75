# SPDX-License-Identifier: Apache-2.0
"""What GPUs, vGPUs and VMs do now, read for controllers that watch."""
