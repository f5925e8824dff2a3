"""How vLLM lays the KV cache of a model with several kinds of attention out: groups of layers that share pages.

Layers that look back over all tokens and layers with a window get pages of one size. Each group
holds layers of one kind, and a sequence takes pages from every group: for all its tokens from those
that keep everything, for a window and one iteration from those that do not. A model with one kind is
one group. Checked against the start-up logs of Gemma 2, Gemma 3 and gpt-oss.
"""

from __future__ import annotations

from dataclasses import dataclass

from simbatch.deployment.model import ModelShape

NEARLY_EQUAL = 1.25
"""Up to this ratio of their numbers, the smaller kind is padded to the larger rather than the larger cut."""


@dataclass(frozen=True)
class KvLayout:
    """Groups of the KV cache; *layers_per_group* of them are in a page, padding counted."""

    full_groups: int
    window_groups: int
    layers_per_group: int
    window_tokens: int = 0

    @property
    def groups(self) -> int:
        return self.full_groups + self.window_groups

    @property
    def is_hybrid(self) -> bool:
        return self.window_groups > 0 and self.full_groups > 0

    def pages_of(self, tokens: int, block_size: int, max_num_batched_tokens: int) -> int:
        """Pages that a sequence of *tokens* can hold at most, all groups together."""
        full = -(-tokens // block_size)
        if not self.is_hybrid:
            return full
        seen = min(self.window_tokens - 1 + max_num_batched_tokens, tokens)
        return self.full_groups * full + self.window_groups * (-(-seen // block_size) + 1)


def kv_layout(shape: ModelShape) -> KvLayout:
    """The groups of *shape*."""
    window = shape.local_layers
    full = shape.kv_layers - window
    if not window or not full or shape.latent is not None:
        return KvLayout(1, 0, shape.kv_layers)
    small, large = sorted((full, window))
    each = large if large < small * NEARLY_EQUAL else small
    return KvLayout(-(-full // each), -(-window // each), each, shape.window_tokens)
