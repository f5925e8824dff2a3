"""Plants one-line bugs in the kernels, one child process each, and says which the cases catch.

Run as a script under TRITON_INTERPRET=1; prints a JSON object from the bug's name to how it was caught:
``value`` (wrong or NaN), ``crash`` (the process died or raised), or ``survived``.
"""

# ruff: noqa: E501

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "validation" / "kernels"

BUGS = {
    # name: (file, old text, new text)
    "page id not looked up": ("attention", "page = tl.load(table + where // PAGE", "page = tl.load(table + 0 * where"),
    "slot in page forgotten": ("attention", "base = page * page_stride + (where % PAGE) * slot_stride", "base = page * page_stride + where * 0"),
    "page stride rebuilt": ("attention", "base = page * page_stride", "base = page * (PAGE * slot_stride)"),
    "score mask dropped": ("attention", 'scores = tl.where(inside[None, :], scores, float("-inf"))', "scores = scores"),
    "value mask dropped": ("attention", "v = tl.load(v_head + base[:, None] + offs_d[None, :], mask=inside[:, None], other=0.0)", "v = tl.load(v_head + base[:, None] + offs_d[None, :])"),
    "end not clipped": ("attention", "end = tl.minimum(start + size, length)", "end = start + size"),
    "one token too few": ("attention", "end = tl.minimum(start + size, length)", "end = tl.minimum(start + size, length - 1)"),
    "sum not rescaled": ("attention", "total = total * shrink + tl.sum(weights, 1)", "total = total + tl.sum(weights, 1)"),
    "accumulator not rescaled": ("attention", "acc = acc * shrink[:, None]", "acc = acc"),
    "maximum not subtracted": ("attention", "weights = tl.exp2(scores - new_top[:, None])", "weights = tl.exp2(scores)"),
    "not divided by the sum": ("attention", "acc = acc / total[:, None]", "acc = acc"),
    "scale forgotten": ("attention", 'input_precision="ieee") * scale_log2', 'input_precision="ieee")'),
    "wrong group": ("attention", "heads = head * GROUP + offs_h", "heads = head + offs_h * tl.num_programs(0)"),
    "head mask of the store dropped": ("attention", "tl.store(place, acc.to(out.dtype.element_ty), mask=real_h[:, None])", "tl.store(place, acc.to(out.dtype.element_ty))"),
    "wrong KV head": ("attention", "k_head = k_cache + head * head_stride", "k_head = k_cache"),
    "merge forgets the maximum": ("attention", "weights = tl.exp2(lse - new_top)", "weights = tl.exp2(lse)"),
    "merge does not rescale": ("attention", "acc = acc * shrink + tl.sum(weights[:, None] * values, 0)", "acc = acc + tl.sum(weights[:, None] * values, 0)"),
    "merge reads a split too many": ("attention", "real = split < count\n                slot", "real = split <= count\n                slot"),
    "merge ignores the weights": ("attention", "tl.sum(weights[:, None] * values, 0)", "tl.sum(values, 0)"),
    "merge of an empty row divides by 0": ("attention", "tl.where(total == 0.0, 1.0, total)", "total"),
    "log-sum without its maximum": ("attention", "top + tl.log2(total)", "tl.log2(total)"),
    "split start without its size": ("attention", "start = tl.load(item_split + item) * size", "start = tl.load(item_split + item) * TILE"),
    "planner counts short": ("attention", "count = (length + size - 1) // size", "count = length // size"),
    "planner shifts items": ("attention", "(end[None, :] <= item[:, None])", "(end[None, :] < item[:, None])"),
    "contiguous start forgotten": ("attention", "base = (first + where) * slot_stride", "base = where * slot_stride + first * 0"),
    "write ignores padding": ("cache", "if slot < 0:\n        return", "if slot < -1:\n        return"),
    "write to the wrong slot": ("cache", "slot // page_tokens * cache_page + head * cache_head + slot % page_tokens", "slot // page_tokens * cache_page + head * cache_head + (slot + 1) % page_tokens"),
    "rotation the other way": ("cache", "new_low = (low * cos - high * sin)", "new_low = (low * cos + high * sin)"),
    "values rotated away": ("cache", "value = here + KV_HEADS * 2 * HALF", "value = here"),
    "norm without its residual": ("rows", "if ADD:\n        value +=", "if ADD:\n        value = 1.0 *"),
    "norm of the block": ("rows", "tl.sum(value * value, 0) / WIDTH", "tl.sum(value * value, 0) / BLOCK"),
    "up and gate exchanged": ("rows", "gate / (1.0 + tl.exp(-gate)) * up", "up / (1.0 + tl.exp(-up)) * gate"),
}  # fmt: skip

HARMLESS = {
    "K mask dropped": ("attention", "k = tl.load(k_head + base[:, None] + offs_d[None, :], mask=inside[:, None], other=0.0)", "k = tl.load(k_head + base[:, None] + offs_d[None, :])"),
    "query mask dropped": ("attention", "query = tl.load(q + row64 * q_row + heads[:, None] * q_head + offs_d[None, :], mask=real_h[:, None], other=0.0)", "query = tl.load(q + row64 * q_row + heads[:, None] * q_head + offs_d[None, :])"),
}  # fmt: skip
"""Changes that only read data nobody uses: the score mask or the store mask hides them. They may survive."""


def caught(name: str, file: str, old: str, new: str) -> str:
    """In this process: load the changed module in the place of the real one and run the cases."""
    import torch

    from validation import checks
    from validation.kernels import cache, decode, rows

    text = (KERNELS / f"{file}.py").read_text()
    assert old in text, f"{name}: the text to change is not there"
    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as changed:
        changed.write(text.replace(old, new))
    spec = importlib.util.spec_from_file_location("planted_kernel", changed.name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["planted_kernel"] = module
    spec.loader.exec_module(module)
    target = {"attention": decode, "cache": cache, "rows": rows}[file]
    for attribute in dir(module):
        if attribute.endswith("_kernel"):
            setattr(target, attribute, getattr(module, attribute))
    os.unlink(changed.name)
    torch.manual_seed(0)
    f16 = torch.float16
    if file == "attention":
        names = {"edges", "many splits", "large scores", "contiguous", "group of 1"}
        found = (checks.attention(case, f16, "cpu") for case in checks.SMALL if case.name in names)
    else:
        found = checks.all_checks("cpu", (f16,), ())
    return "survived" if all(check.ok for check in found) else "value"


def main() -> None:
    import torch

    from validation import checks  # noqa: F401  # imported once, before the children are forked

    torch.set_num_threads(1)
    results = {}
    bugs = BUGS | HARMLESS
    for name, (file, old, new) in bugs.items():
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            code = 2
            try:
                code = 0 if caught(name, file, old, new) == "survived" else 1
            except AssertionError:
                code = 3
            finally:
                os._exit(code)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status != 3, f"{name}: the text to change is not in {file}.py"
        results[name] = {0: "survived", 1: "value"}.get(status, "crash")
    print(json.dumps(results))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
