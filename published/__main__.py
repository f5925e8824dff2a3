"""``python -m published [NAME …] [--write]``: see `published.cli`."""

import sys

from published.cli import main

sys.exit(main())
