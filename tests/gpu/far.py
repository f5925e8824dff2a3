"""Kernels at offsets beyond 2³¹ elements, in a process that may die of it; exits with 1 where they go wrong."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from validation.far import far

if __name__ == "__main__":
    torch.manual_seed(0)
    found = [far("cpu", paged) for paged in (True, False)]
    print(*found, sep="\n")
    sys.exit(0 if all(check.ok for check in found) else 1)
