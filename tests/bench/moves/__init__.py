# SPDX-License-Identifier: Apache-2.0
"""Moves of VMs: between two lab hosts against virsh alone, forecasts, and a drain of sixteen VMs in virtual time."""
