# SPDX-License-Identifier: Apache-2.0
"""Base images on this machine."""
