# SPDX-License-Identifier: Apache-2.0
"""Hosts and their GPUs."""
