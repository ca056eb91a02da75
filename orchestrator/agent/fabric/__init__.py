# SPDX-License-Identifier: Apache-2.0
"""NVSwitch baseboards: what their fabric manager says, and partitions for VMs."""
