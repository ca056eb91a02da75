# SPDX-License-Identifier: Apache-2.0
"""Plans of moves, for the benchmark: nothing carries them out yet."""
