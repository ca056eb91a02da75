# SPDX-License-Identifier: Apache-2.0
"""Driver bundles, locks, provisioning and rolling upgrades."""
