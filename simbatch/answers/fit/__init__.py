"""Measurements in, a timing profile out, with its error on what it has not seen and what it was made from.

`fit` (in `fitted`) is the one function. `rows`, `tables` and `benchmarks` read what was measured; `cells` and
`problem` make observations of it; `identify` decides what the data can tell, `solve` finds it, `correct`
adds what a smooth formula misses; `validate` says how good it is. `client` fits by simulating.
"""

from simbatch.answers.fit.client import ClientRun
from simbatch.answers.fit.fitted import fit
from simbatch.answers.fit.outcome import Fit
from simbatch.answers.fit.rows import Iterations, iterations_of

__all__ = ["ClientRun", "Fit", "Iterations", "fit", "iterations_of"]
