# SPDX-License-Identifier: Apache-2.0
"""How quickly API and command line answer, over a server process of a fleet that only exists in memory."""
