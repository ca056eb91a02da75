# SPDX-License-Identifier: Apache-2.0
"""The `nvidia-smi` of a lab host: the parts that operators, roles and scripts call, answered through NVML."""
