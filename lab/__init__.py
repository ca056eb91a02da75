# SPDX-License-Identifier: Apache-2.0
"""GPU hosts without a GPU: QEMU machines that present NVIDIA's kernel, library and command surface."""
