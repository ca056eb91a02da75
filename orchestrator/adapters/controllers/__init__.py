# SPDX-License-Identifier: Apache-2.0
"""The other controllers of this database."""
