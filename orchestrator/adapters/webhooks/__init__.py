# SPDX-License-Identifier: Apache-2.0
"""NoCloud seeds: what a guest reads at its first boot."""
