# SPDX-License-Identifier: Apache-2.0
"""Everything that is done to a host, each with its inverse or why it has none."""
