# SPDX-License-Identifier: Apache-2.0
"""Runs in guests and ways into them."""
