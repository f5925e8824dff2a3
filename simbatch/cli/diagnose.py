"""`simbatch diagnose`: what is wrong with the server I have."""

from __future__ import annotations

from typing import Any

import click

from simbatch.cli import options
from simbatch.cli.params import count, duration
from simbatch.cli.verb import Verb, option, section


@click.command(
    "diagnose",
    cls=Verb,
    example="simbatch diagnose running=61,waiting=117,kv_usage=0.99",
    help=(
        "What holds a server back. SOURCE is a saved run, an address or a page of\n"
        "/metrics (vLLM, SGLang, TGI), a vLLM log, or signals, also as JSON; SECOND\n"
        "is a later page of the same server. For rates: http://localhost:8000/metrics\n"
        "--interval 10s."
    ),
    short_help="What is wrong: from a saved run, /metrics or a log.",
)
@click.argument("source", metavar="SOURCE")
@click.argument("second", metavar="[SECOND]", required=False)
@section(
    "Reading",
    option("--interval", "interval_s", type=duration, metavar="TIME", help="between two scrapes, for rates: 10s"),
    option("--timeout", "timeout_s", type=duration, metavar="TIME", help="for an address to answer (10s)"),
)
@section(
    "What the source does not tell",
    option("--model", metavar="NAME", help="with --gpu, the change is simulated"),
    option("--gpu", metavar="NAME", help="see: simbatch list gpus"),
    option("-tp", "--tensor-parallel-size", "tensor_parallel", type=count, metavar="N", help="GPUs that share it"),
    option("--max-num-seqs", type=count, metavar="N", help="sequences that may run at once"),
    option("--client-concurrency", type=count, metavar="N", help="most that the client has in flight"),
    option("--gpu-utilisation", type=float, metavar="SHARE", help="how busy the GPU is, 0 to 1"),
)
@section("Answer", option("--no-effect", is_flag=True, help="do not simulate the change"))
@options.output
def diagnose_verb(**asked: Any) -> None:
    """The verb `diagnose`."""
    from simbatch.answers.diagnose.diagnose import diagnose
    from simbatch.answers.diagnose.source import read_source
    from simbatch.cli import asked as ask
    from simbatch.cli import terminal
    from simbatch.errors import UsageError
    from simbatch.result import Result
    from simbatch.show.diagnosis import diagnosis_text

    signals = read_source(asked["source"], asked["second"], **ask.given(asked, ("interval_s", "timeout_s")))
    told = ask.given(
        asked, ("model", "gpu", "tensor_parallel", "max_num_seqs", "client_concurrency", "gpu_utilisation")
    )
    if isinstance(signals, dict):
        signals = {**signals, **told}
    elif told and isinstance(signals, Result):
        raise UsageError(f"--{next(iter(told)).replace('_', '-')} is known of a saved run. Leave it out.")
    elif told:
        signals = {"series": signals, **told}
    found = diagnose(signals, effect=not asked["no_effect"])
    if asked["as_json"]:
        terminal.write_json(found.metrics())
    else:
        terminal.write(diagnosis_text(found))
    if not asked["quiet"]:
        terminal.warn([f"signals that nothing here knows: {', '.join(found.ignored)}"] if found.ignored else [])
