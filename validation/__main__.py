"""``python -m validation VERB``: see `validation.cli`."""

import sys

from validation.cli import main

sys.exit(main())
