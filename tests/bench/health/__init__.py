# SPDX-License-Identifier: Apache-2.0
"""A year of faults on a fleet in memory, with everything that is done by itself about them."""
