# SPDX-License-Identifier: Apache-2.0
"""Durable operations: lists of steps, each with its way back, walked by one runner."""
