"""KV memory: who holds which part of it. One manager per file."""

from simbatch.memory.base import Memory
from simbatch.memory.contiguous import ContiguousMemory
from simbatch.memory.copy_on_write import CopyOnWriteMemory
from simbatch.memory.own_prefix import OwnPrefixMemory
from simbatch.memory.paged import PagedMemory
from simbatch.memory.prefix import PrefixCachingMemory

__all__ = ["ContiguousMemory", "CopyOnWriteMemory", "Memory", "OwnPrefixMemory", "PagedMemory", "PrefixCachingMemory"]
