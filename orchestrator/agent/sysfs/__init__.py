# SPDX-License-Identifier: Apache-2.0
"""The kernel's files: PCI functions, mediated devices, vendor-specific VFIO, who holds VFIO devices open."""
