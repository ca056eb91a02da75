# SPDX-License-Identifier: Apache-2.0
"""What is read of a host, and what an operator keeps of it."""
