# SPDX-License-Identifier: Apache-2.0
"""Domains and networks of the host's libvirt; the only importer of its binding."""
