# SPDX-License-Identifier: Apache-2.0
"""The database: SQLAlchemy on SQLite or PostgreSQL."""
