# SPDX-License-Identifier: Apache-2.0
"""What servers of the tests' own have in common: loaded, and made, in the process that they are forked from."""

from __future__ import annotations

from tests.fakes import serve
from tests.fakes.new_database import migrated
from tests.fakes.tenancy import KEY

__all__ = ["serve"]

migrated(KEY)
