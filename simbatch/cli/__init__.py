"""The command line: one verb per file, and the only part of simbatch that prints.

`group` says how commands look and fail, `options` holds the flags that verbs share, `asked` makes
a trace and a deployment of them, `terminal` writes. Nothing heavy is imported at the top of these
files: `simbatch --help` answers before numpy would have loaded.
"""

import _signal as signal  # type: ignore[import-not-found]  # the built-in half of `signal`, there at once

# A Ctrl-C while the verbs are being imported ends the program without a traceback; after that, `group` reports it.
_interrupts = signal.getsignal(signal.SIGINT)
try:
    if _interrupts is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
except ValueError:  # not in the main thread, where nobody's Ctrl-C arrives
    _interrupts = None

from simbatch.cli.group import main  # noqa: E402

if _interrupts is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.default_int_handler)

__all__ = ["main"]
