"""The command line: one verb per file, and the only part of simbatch that prints.

`group` says how commands look and fail, `options` holds the flags that verbs share, `asked` makes
a trace and a deployment of them, `terminal` writes. Nothing heavy is imported at the top of these
files: `simbatch --help` answers before numpy would have loaded.
"""

from simbatch.cli.group import main

__all__ = ["main"]
