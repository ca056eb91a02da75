# SPDX-License-Identifier: Apache-2.0
"""Implementations of the ports: the only places that know a library of the outside world."""
