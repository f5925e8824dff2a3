"""The validation job: the simulator's batches on a real GPU, measured, and a timing fitted from them.

It imports `simbatch` and is never imported by it. Only `validation.kernels` needs Triton, and only
what runs a model needs torch, imported where it is used; with ``--fake`` neither is touched.
"""
