"""What a measurement was made on: card, memory, clocks, driver and versions. Stands beside every table."""

from __future__ import annotations

import platform
import subprocess
import sys
from typing import Any

from simbatch.deployment import GPU, find_gpu
from simbatch.errors import UsageError
from simbatch.version import __version__

_QUERY = "driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.limit,temperature.gpu,pcie.link.gen.current"


def fake_machine(card: GPU) -> dict[str, Any]:
    """Of the stand-in: nothing was measured, and it says so."""
    return {"fake": True, "device": f"fake {card.name}", "gpu": card.name, **_host()}


def machine(gpu: str | None = None) -> dict[str, Any]:
    """Of the card in this machine; *gpu* names it where its own name is not in the table.

    Raises UsageError without a CUDA device.
    """
    import torch
    import triton

    if not torch.cuda.is_available():
        raise UsageError(
            "there is no CUDA device here. Run with --fake to try everything without one, or on a machine with a card."
        )
    properties = torch.cuda.get_device_properties(0)
    return {
        "fake": False,
        "device": properties.name,
        "gpu": find_gpu(gpu or properties.name).name,
        "memory_bytes": properties.total_memory,
        "multiprocessors": properties.multi_processor_count,
        "capability": f"{properties.major}.{properties.minor}",
        "l2_bytes": getattr(properties, "L2_cache_size", None),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "triton": triton.__version__,
        **_host(),
        **nvidia_smi(),
    }


def _host() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "platform": f"{sys.platform} {platform.machine()}",
        "simbatch": __version__,
    }


def nvidia_smi() -> dict[str, str]:
    """Driver and clocks as the driver's own tool says them; empty where it does not answer."""
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=20, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return {}
    values = done.stdout.strip().splitlines()[0].split(", ")
    return {f"nvidia_smi {name}": value for name, value in zip(_QUERY.split(","), values, strict=False)}
