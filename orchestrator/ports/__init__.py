# SPDX-License-Identifier: Apache-2.0
"""What we need from the world, one screen each. ``bootstrap`` chooses who implements them."""
