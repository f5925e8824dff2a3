"""Tests that run Triton kernels in its interpreter: a process of their own, begun with TRITON_INTERPRET=1.

    TRITON_INTERPRET=1 python -m pytest tests/gpu

`tests/test_validation_kernels.py` does that where torch and Triton are installed. Without the variable nothing
here is collected, because whether kernels are compiled or interpreted is decided when Triton is first imported.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

collect_ignore_glob = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["*.py"]
