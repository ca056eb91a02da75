# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's drivers: bundles, locks, which versions go together."""
