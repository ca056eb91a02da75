# SPDX-License-Identifier: Apache-2.0
"""Declared maintenance: what is done to hosts that their VMs notice, when, and how far it is."""
