# SPDX-License-Identifier: Apache-2.0
"""What people ask of a fleet: where and why, what is left, what would help, what lies where. Data, never text."""
