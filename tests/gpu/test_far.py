"""Offsets beyond 2³¹ elements: an address formed in 32 bits wraps, and then usually takes the process with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
KERNELS = HERE.parents[1] / "validation" / "kernels"


def far(folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    script = (folder or HERE) / "far.py"
    return subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=120)


def test_offsets_beyond_32_bits() -> None:
    done = far()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("offsets beyond 2^31") == 2


def test_a_32_bit_page_offset_would_be_found(tmp_path: Path) -> None:
    """The same, in a copy of the kernels that multiplies the page id before it is widened."""
    import shutil

    root = HERE.parents[1]
    shutil.copytree(root / "validation", tmp_path / "validation")
    (tmp_path / "simbatch").symlink_to(root / "simbatch")
    (tmp_path / "tests" / "gpu").mkdir(parents=True)
    shutil.copy(HERE / "far.py", tmp_path / "tests" / "gpu" / "far.py")
    kernel = tmp_path / "validation" / "kernels" / "attention.py"
    text = kernel.read_text()
    narrow = text.replace("mask=inside, other=0).to(tl.int64)\n", "mask=inside, other=0)\n")
    assert narrow != text
    kernel.write_text(narrow)
    assert far(tmp_path / "tests" / "gpu").returncode != 0
