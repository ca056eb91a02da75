# SPDX-License-Identifier: Apache-2.0
"""What-if for capacity planning: a fleet from a file, requests from a file, placed by the engine."""
