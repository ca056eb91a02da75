# SPDX-License-Identifier: Apache-2.0
"""The fleet as placement sees it: index, and what is free of CPUs, memory, NICs and GPUs."""
