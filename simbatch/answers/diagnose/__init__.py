"""What is wrong with the server I have: signals in, findings out.

`signals` reads what was observed, `view` works quantities out of it, the files in `rules` judge them,
`diagnose` puts it together. `source` tells what an input is: a saved run (`from_run`), a `/metrics` page
(`page`, `names`, `from_pages`), an engine's log (`from_log`). `effect` asks the simulator.
"""
