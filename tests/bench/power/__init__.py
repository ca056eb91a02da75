# SPDX-License-Identifier: Apache-2.0
"""GPUs of a fleet in memory under budgets of power, for hours of virtual time."""
