# SPDX-License-Identifier: Apache-2.0
"""The steps, grouped by what they are about."""
