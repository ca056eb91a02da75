# SPDX-License-Identifier: Apache-2.0
"""VMs and what they hold: claims, leases, images, networks, volumes."""
