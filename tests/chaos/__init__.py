# SPDX-License-Identifier: Apache-2.0
"""Real servers on a real database, struck while they work."""
