# SPDX-License-Identifier: Apache-2.0
"""Reaching the agents over SSH: the only importer of paramiko."""
