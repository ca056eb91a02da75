# SPDX-License-Identifier: Apache-2.0
"""One file per noun: arguments in, one or two API calls, output."""
