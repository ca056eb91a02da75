# SPDX-License-Identifier: Apache-2.0
"""Ansible inventories: theirs read for ``host import``, ours written for Ansible."""
