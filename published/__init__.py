"""Published results, set up from their configurations and computed again.

``python -m published`` runs every scenario of `published/scenarios` and compares what comes out with what was
published; ``--write`` puts it into docs/published-results.md. A scenario is a TOML file: what was served, on what,
with which step cost, how often, and the published values with the tolerances that were stated before the first
run. So a further row of the same source is a copy of the file with other numbers. Everything goes through the public
API of `simbatch`. The way of a number: `scenario` reads it, `runs` simulates, `expression` combines,
`verdict` compares, `page` tells.
"""
