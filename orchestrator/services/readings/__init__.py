# SPDX-License-Identifier: Apache-2.0
"""What hosts send of their GPUs and VMs: kept for minutes, and shown as far as the database agrees."""
