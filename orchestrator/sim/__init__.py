# SPDX-License-Identifier: Apache-2.0
"""Hosts that exist in memory only: what `vgpuctl serve --simulate` serves and what tests put under faults."""
