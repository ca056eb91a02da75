# SPDX-License-Identifier: Apache-2.0
"""OVN's databases."""
