# SPDX-License-Identifier: Apache-2.0
"""Rolling upgrades of drivers: of 1,000 hosts in virtual time, and of three lab hosts."""
