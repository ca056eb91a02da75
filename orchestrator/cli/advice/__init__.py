# SPDX-License-Identifier: Apache-2.0
"""Answers about what would fit, drawn for a terminal from the data of the API."""
