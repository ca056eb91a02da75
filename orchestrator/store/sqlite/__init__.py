# SPDX-License-Identifier: Apache-2.0
"""What SQLite alone needs."""
