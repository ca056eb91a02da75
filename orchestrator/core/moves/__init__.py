# SPDX-License-Identifier: Apache-2.0
"""Where a VM may move: with its state, or stopped; what keeps it from it, and what would cure that."""
