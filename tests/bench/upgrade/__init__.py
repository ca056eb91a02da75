# SPDX-License-Identifier: Apache-2.0
"""Rolling upgrades of drivers, in virtual time."""
