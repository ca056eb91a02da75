# SPDX-License-Identifier: Apache-2.0
"""What runs on a GPU host: the only part of vgpuctl that touches libvirt, NVML and sysfs.

Runs under the host's own python3 (3.10 or newer) out of one zip file, so: standard library,
the distribution's libvirt binding, and pynvml. Imports of orchestrator.core only.
"""
