# SPDX-License-Identifier: Apache-2.0
"""A typed client of the HTTP API, for the command line and for programs: ``opening.open_client()``.

Standard library only, so that importing it costs almost nothing.
"""
