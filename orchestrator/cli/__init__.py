# SPDX-License-Identifier: Apache-2.0
"""The command line: a thin client of the API. Nothing heavy is imported on the way to a list."""
