# SPDX-License-Identifier: Apache-2.0
"""A thin typed client of the HTTP API. Standard library only, so that importing it costs almost nothing."""
