"""A model on GPUs: shapes, cards, and what fits."""

from __future__ import annotations

from simbatch.deployment.catalogue import find_model, list_models
from simbatch.deployment.defaults import EngineLimits, default_limits, engine_limits
from simbatch.deployment.deployment import Deployment
from simbatch.deployment.gpu import GPU, find_gpu, list_gpus
from simbatch.deployment.hf_config import read_model_folder
from simbatch.deployment.memory_budget import MemoryBudget
from simbatch.deployment.model import ModelShape

__all__ = [
    "GPU",
    "Deployment",
    "EngineLimits",
    "MemoryBudget",
    "ModelShape",
    "default_limits",
    "engine_limits",
    "find_gpu",
    "find_model",
    "list_gpus",
    "list_models",
    "read_model_folder",
]
