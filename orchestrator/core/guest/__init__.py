# SPDX-License-Identifier: Apache-2.0
"""What is run and set in guests."""
