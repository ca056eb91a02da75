# SPDX-License-Identifier: Apache-2.0
"""A fabric manager without a fabric: the service that keeps the partitions of an NVSwitch baseboard, and fmpm."""
