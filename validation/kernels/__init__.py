"""The Triton kernels of one decode step, each beside the Python that launches it.

`attention` and `decode` read the cache, `cache` writes it, `rows` holds the two small fused ones.
Modules here import Triton at the top and torch nowhere: compiling needs no torch, and a process that
only simulates never comes here.
"""
