# SPDX-License-Identifier: Apache-2.0
"""A second implementation of the ports: thousands of hosts in one process, virtual time, faults from a seed."""
