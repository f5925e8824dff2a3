"""Questions that take more than one run, or none: which system, what fits.

Each file is one question and one function that answers it with an object that shows itself, gives
the JSON object of its verb, and can be asked again with other limits. Nothing here prints.
"""
