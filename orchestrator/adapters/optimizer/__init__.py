# SPDX-License-Identifier: Apache-2.0
"""Optimizers behind the port."""
