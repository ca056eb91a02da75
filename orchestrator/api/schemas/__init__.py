# SPDX-License-Identifier: Apache-2.0
"""Bodies of requests and answers, one file per noun."""
