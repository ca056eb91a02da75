# SPDX-License-Identifier: Apache-2.0
"""Driver files for lab hosts."""
