# SPDX-License-Identifier: Apache-2.0
"""Where VMs go and why: one engine for single decisions, what-if and planning. Entry point: ``place``."""
