# SPDX-License-Identifier: Apache-2.0
"""Runs our playbooks through ansible-runner, as processes; Ansible itself is never imported."""
