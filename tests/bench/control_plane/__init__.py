# SPDX-License-Identifier: Apache-2.0
"""How fast the control plane itself is: claims, operations."""
