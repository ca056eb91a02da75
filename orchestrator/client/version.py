# SPDX-License-Identifier: Apache-2.0
"""The program's version; command line and server compare theirs before they talk."""

from __future__ import annotations

VERSION = "0.1.0"
"""As in pyproject.toml. Written here too because reading a package's metadata takes longer than a whole command."""
