# SPDX-License-Identifier: Apache-2.0
"""What writes generated files of the tree, and what judges files that no linter knows."""
