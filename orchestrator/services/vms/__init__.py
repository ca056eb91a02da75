# SPDX-License-Identifier: Apache-2.0
"""VMs and their volumes: planning, capacity, adopting."""
