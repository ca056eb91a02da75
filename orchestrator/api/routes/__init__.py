# SPDX-License-Identifier: Apache-2.0
"""Paths below /v1, one file per noun."""
