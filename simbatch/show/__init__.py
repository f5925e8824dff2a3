"""Ways to look at results: text, and later pictures, pages and timelines.

Each takes what a run gave and returns something to show; nothing here prints or computes a metric.
"""
