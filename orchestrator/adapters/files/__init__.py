# SPDX-License-Identifier: Apache-2.0
"""Files of other people: how they are opened, and how a private copy of one is made."""
