# SPDX-License-Identifier: Apache-2.0
"""Fence agents as distributions package them."""
