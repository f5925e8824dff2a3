"""``python -m validation``: check, compile, measure, replay, fit, report. Only this and `cli_kernels` print.

Results go to standard output, progress to standard error. Everything of a run lies in one folder, --out.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from simbatch.errors import SimbatchError, UsageError
from validation import cli_kernels

STARTED = time.monotonic()
"""Minutes are counted from here: imports and weights are part of what a card is rented for."""
_WHOLE_PROMPTS_TOKENS = 32_768
"""Room for an iteration of naive, static and orca-*, which compute all prompts that they admit at once."""
REPLAYABLE = ("vllm", "vllm-v0", "sarathi", "static", "naive", "orca-max", "orca-pow2", "orca-oracle")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 done, 1 failed, 2 wrong usage, 3 targets missed under --require."""
    given = _parser().parse_args(arguments)
    try:
        code: int = given.verb(given)
    except SimbatchError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m validation",
        description="Runs the simulator's batches on a GPU and fits a timing. With --fake: everything but the GPU.",
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    def verb(name: str, run: Any, about: str) -> argparse.ArgumentParser:
        made = verbs.add_parser(name, help=about, description=about)
        made.set_defaults(verb=run)
        made.add_argument("--out", type=Path, default=Path("validation-out"), help="folder of this run (%(default)s)")
        made.add_argument("--fake", action="store_true", help="a stand-in for the card; nothing is measured")
        return made

    check = verb("check", cli_kernels.check, "kernels and loop against float64 on this device")
    check.add_argument("--quick", action="store_true", help="small cases only")
    check.add_argument("--dtypes", default="float16,bfloat16", help="of float16, bfloat16, float32 (%(default)s)")
    compiled = verb("compile", cli_kernels.compile_kernels, "compile every kernel variant for sm_90, no GPU needed")
    compiled.add_argument("--quick", action="store_true", help="one type and the default cut only")
    measure = verb("measure", _measure, "time the sweep, the most valuable points first")
    replay = verb("replay", _replay, "the same requests through the GPU and through the simulator")
    for made in (measure, replay):
        made.add_argument("--model", default="llama-2-13b", help="a dense LLaMA shape, or tiny (%(default)s)")
        made.add_argument("--layers", type=int, help="cut the model to so many; default: as many as fit")
        made.add_argument("--dtype", choices=("float16", "bfloat16"), default="float16")
        made.add_argument("--gpu", help="name in simbatch's table; default: this card, or h100 with --fake")
        made.add_argument("--kv-tokens", type=int, help="size of the KV cache; default: what is left of the memory")
        made.add_argument("--block-size", type=int, default=16, choices=(16, 32, 64, 128))
        made.add_argument("--seed", type=int, default=0)
    measure.add_argument("--minutes", type=float, help="stop cleanly before so many have passed")
    measure.add_argument("--first", action="store_true", help="the 21 most valuable points only")
    replay.add_argument("trace", metavar="TRACE", help="a file, or a bundled name such as sharegpt")
    replay.add_argument(
        "--systems", default="vllm", help=f"of {', '.join(REPLAYABLE)}; comma between them (%(default)s)"
    )
    replay.add_argument("--requests", type=int, default=100)
    replay.add_argument("--rate", type=float, help="requests a second; default: all at once")
    replay.add_argument("--max-model-len", type=int, default=2048)
    replay.add_argument("--max-num-seqs", type=int, default=256)
    replay.add_argument("--max-num-batched-tokens", type=int, default=2048)
    replay.add_argument("--batch-size", type=int, help="of static")
    replay.add_argument("--host-in-time", action="store_true", help="host time between steps counts as time")
    fitted = verb("fit", _fit, "from the measurements to a profile card")
    fitted.add_argument("--also", type=Path, action="append", default=[], help="folder of another depth, same card")
    report = verb("report", _report, "predicted against measured, bandwidth reached, where it is worst")
    report.add_argument("--require", action="store_true", help="exit 3 if a target is missed")
    return parser


# -- runs ------------------------------------------------------------------------------------------


def _setting(given: argparse.Namespace) -> tuple[Any, Any, int, dict[str, Any]]:
    """(shape, GPU, KV tokens, machine) of a run: as the folder has them, else as asked for and as the memory allows."""
    from simbatch.deployment import find_gpu
    from validation.machine import fake_machine, machine
    from validation.measurements import MACHINE, keep_machine, read_machine
    from validation.shape import find_shape, sized

    about = fake_machine(find_gpu(given.gpu or "h100")) if given.fake else machine(given.gpu)
    card = find_gpu(about["gpu"])
    layers, kv_tokens = given.layers, given.kv_tokens
    if (given.out / MACHINE).exists():
        before = read_machine(given.out)
        layers, kv_tokens = layers or before.get("layers"), kv_tokens or before.get("kv_tokens")
    whole = find_shape(given.model, layers)
    shape, kv_tokens = sized(whole, about.get("memory_bytes", card.memory_bytes), kv_tokens, given.block_size)
    if shape.layers < whole.layers:
        _tell(f"{shape.name} is cut to {shape.layers} of {shape.full_layers} layers: that is what fits.")
    about |= {"model": shape.name, "layers": shape.layers, "dtype": given.dtype, "page_tokens": given.block_size}
    about |= {"kv_tokens": kv_tokens, "seed": given.seed}
    keep_machine(given.out, about)
    return shape, card, kv_tokens, about


def _backend(given: argparse.Namespace, shape: Any, card: Any, kv_tokens: int, most_tokens: int) -> Any:
    if given.fake:
        from validation.fake import FakeGPU

        return FakeGPU(shape, card, seed=given.seed)
    from validation.card import Card

    return Card(
        shape,
        dtype=given.dtype,
        kv_tokens=kv_tokens,
        page_tokens=given.block_size,
        most_tokens=most_tokens,
        seed=given.seed,
    )


def _measure(given: argparse.Namespace) -> int:
    from validation.jobs import jobs
    from validation.kernels.configs import CONFIGS
    from validation.measure import measure
    from validation.measurements import FILE, Table

    shape, card, kv_tokens, _ = _setting(given)
    table = Table(given.out)
    backend = _backend(given, shape, card, kv_tokens, 8192)
    if not given.fake:
        backend.warm()
    wanted = jobs(shape, card, kv_tokens, [config.name for config in CONFIGS])
    if given.first:
        wanted = [job for job in wanted if job.stage == "copy" or (job.point is not None and job.point.first)]
    progress = measure(backend, table, wanted, minutes=given.minutes, started=STARTED, say=_tell)
    print(
        f"{progress.measured} rows measured, {progress.skipped} were there, {progress.left} left for want of time: "
        f"{given.out / FILE}" + (" (FAKE)" if given.fake else "")
    )
    return 0


def _replay(given: argparse.Namespace) -> int:
    from simbatch.systems import find_system
    from simbatch.trace import Trace
    from validation.profile import Profile

    systems = [name.strip() for name in given.systems.split(",") if name.strip()]
    bundles = {name: find_system(name) for name in systems}
    trace = Trace.load(given.trace).head(given.requests)
    if given.rate:
        trace = trace.at_rate(given.rate, seed=given.seed)
    shape, card, kv_tokens, _ = _setting(given)
    path = given.out / "profile.json"
    profile = Profile.load(path) if path.exists() else None
    if profile is None:
        _tell(f"there is no {path}: the replay is compared step by step, and nothing is predicted.")
    backend = _backend(given, shape, card, kv_tokens, max(given.max_num_batched_tokens, _WHOLE_PROMPTS_TOKENS))
    for name, bundle in bundles.items():
        # One after the other and nothing kept: the next cache needs the memory of the one before.
        _replay_one(given, trace, name, bundle.memory == "contiguous", backend, shape.vocab, kv_tokens, profile)
    return 0


def _replay_one(
    given: argparse.Namespace,
    trace: Any,
    system: str,
    contiguous: bool,
    backend: Any,
    vocab: int,
    kv_tokens: int,
    profile: Any,
) -> None:
    from validation.replay import replay, write

    executor = backend
    if not given.fake:
        executor = backend.executor(contiguous=contiguous, most_rows=given.max_num_seqs)
        executor.capture()
        backend.load(1.0)
    found = replay(
        trace,
        system,
        executor,
        vocab=vocab,
        kv_tokens=kv_tokens,
        page_tokens=given.block_size,
        max_model_len=given.max_model_len,
        max_num_seqs=given.max_num_seqs,
        max_num_batched_tokens=given.max_num_batched_tokens,
        batch_size=given.batch_size,
        host_in_time=given.host_in_time,
        profile=profile,
    )
    summary = write(found, given.out / f"replay-{system}")
    same = "the same decisions" if summary["same_decisions"] else f"OTHER DECISIONS: {summary['first_difference']}"
    print(f"{system}: {summary['iterations']} iterations, {summary['gpu_s']:.3f} s on the device, {same}")
    for what, end in summary["ends"].items():
        if end["error"] is not None:
            both = f"measured {end['measured_s']:.4g} s, predicted {end['predicted_s']:.4g} s"
            print(f"  {what}: {both} ({end['error']:+.2%})")


def _fit(given: argparse.Namespace) -> int:
    from simbatch.deployment import find_gpu
    from validation.fit import fit
    from validation.measurements import read, read_machine
    from validation.package_fit import package_fit
    from validation.profile import card_of, write_card
    from validation.shape import find_shape

    machine = read_machine(given.out)
    shape = find_shape(machine["model"], machine["layers"])
    rows = read(given.out)
    also = []
    for folder in given.also:
        other = read_machine(folder)
        if (other["gpu"], other["fake"]) != (machine["gpu"], machine["fake"]):
            raise UsageError(f"{folder} was measured on {other['device']}, not on {machine['device']}. Leave it out.")
        also.append((read(folder), find_shape(other["model"], other["layers"])))
    found = fit(rows, shape, find_gpu(machine["gpu"]), also)
    path = given.out / "profile.json"
    write_card(card_of(found, shape, machine), path)
    for name, value in asdict(found.coefficients).items():
        print(f"{name:18} {value:10.4g}  {found.pinned.get(name, '')}")
    for name, groups in (("fitted", found.fitted), ("held back", found.held_back)):
        for form, errors in groups.items():
            print(
                f"{name:10} {form:10} {errors.n:3} iterations: median {errors.median:.2%}, mean {errors.mean:.2%}, "
                f"p95 {errors.p95:.2%}, worst {errors.worst:.2%} at {errors.worst_at}"
            )
    print(f"{path}{' (FAKE)' if machine.get('fake') else ''}")
    if find_spec("simbatch.answers.fit") is None:
        return 0
    ours = package_fit(rows, shape, machine, found.coefficients.weight_efficiency)
    ours.save(given.out / "profile.toml")
    print(f"{given.out / 'profile.toml'}: for simbatch run --timing, median error {ours.card.error.median:.2%}")
    return 0


def _report(given: argparse.Namespace) -> int:
    from validation.report import report

    text, missed = report(given.out)
    (given.out / "report.txt").write_text(text, encoding="utf-8")
    print(text, end="")
    return 3 if missed and given.require else 0


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
