# SPDX-License-Identifier: Apache-2.0
"""The database: intent, claims, the journal of operations."""
