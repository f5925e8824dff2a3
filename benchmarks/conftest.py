"""Puts this folder on the path, so that `loads` is found from wherever pytest is started."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
