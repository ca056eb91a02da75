# SPDX-License-Identifier: Apache-2.0
"""What ``--profile`` names, and which combinations work."""
