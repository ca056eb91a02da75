# SPDX-License-Identifier: Apache-2.0
"""How soon a page is painted, how large it is, and what a fragment of it costs the server's processor."""
