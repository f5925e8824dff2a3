"""Imports point one way, heavy ones are late, and only the command line prints. Read off the files, nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "simbatch"

LAYERS = (
    ("errors", "version", "progression", "exact", "compiled", "world"),
    ("units", "facts", "checks", "places", "versions", "growth"),
    ("request", "stats", "deployment", "rows"),
    ("batch", "faults", "trace", "timing", "limits", "itl", "verdict", "warmup"),
    ("memory", "metrics"),
    ("scheduler", "conservation", "saved", "waits", "workload"),
    ("parts", "own_timing", "systems", "decisions", "describe", "record", "result", "options"),
    ("engine", "setup"),
    ("async_engine", "caveats", "replicas", "router"),
    ("simulate",),
    ("answers",),
    ("show", "testing"),
    ("cli",),
    ("__main__",),
)
"""Files and folders of the package; each imports from layers above it in this list, or from itself."""

LATE = {("result", "show"), ("answers", "show")}
"""Results and answers show themselves, and import what draws them when asked to."""

SIMPY = {"workload", "world", "engine", "async_engine", "simulate", "testing"}
HEAVY = {"pandas", "scipy", "matplotlib", "datasets", "tqdm", "rich", "joblib", "jinja2", "pyarrow"}
NEVER = {"torch", "triton", "validation", "tests"}


def modules() -> dict[str, ast.Module]:
    """Every module of the package by its dotted name without ``simbatch.``; the package itself is ''."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return found


MODULES = modules()


def imports(body: list[ast.stmt], late: bool) -> Iterator[tuple[str, bool]]:
    """(dotted name, is it imported late) of what *body* imports; what only type checkers see is left out."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from ((name.name, late) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from ((f"{node.module}.{name.name}", late) for name in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from imports(node.orelse, late)
        else:
            inside = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            for field in ("body", "orelse", "finalbody", "handlers"):
                yield from imports(getattr(node, field, []), inside)


def own(name: str) -> str | None:
    """The module of ours that an imported *name* is or lies in; None for others' modules."""
    if name.split(".")[0] != "simbatch":
        return None
    parts = name.split(".")[1:]
    while parts and ".".join(parts) not in MODULES:
        parts.pop()
    return ".".join(parts)


def room(module: str) -> str:
    return module.split(".")[0]


RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
EVERY = [(module, name, late) for module, tree in MODULES.items() for name, late in imports(tree.body, False)]


def test_every_file_has_a_place_in_the_layers() -> None:
    assert {room(module) for module in MODULES if module} <= RANK.keys()


def test_imports_point_one_way() -> None:
    wrong = []
    for module, name, late in EVERY:
        target = own(name)
        if not module or target is None or room(module) == room(target):
            continue
        assert target, f"{module} imports {name} from the package itself; name the module it lives in"
        if RANK[room(target)] >= RANK[room(module)] and not (late and (room(module), room(target)) in LATE):
            wrong.append(f"{module} imports {name}")
    assert wrong == []


def test_no_two_files_need_each_other() -> None:
    graph: dict[str, set[str]] = {module: set() for module in MODULES}
    for module, name, late in EVERY:
        target = own(name)
        if not late and target is not None and target != module:
            graph[module].add(target)
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' -> '.join(error.args[1])}")
    assert len(order) == len(MODULES)
    assert order.index("errors") < order.index("memory.paged") < order.index("engine") < order.index("simulate")


def test_the_check_sees_a_circle_and_a_late_import() -> None:
    tree = ast.parse("import a\nif TYPE_CHECKING:\n    import b\ndef f():\n    from c import d\nclass E:\n    import g")
    assert list(imports(tree.body, False)) == [("a", False), ("c.d", True), ("g", False)]


def test_only_those_who_run_the_clock_know_simpy() -> None:
    users = {room(module) for module, name, _ in EVERY if room(name) == "simpy"}
    assert {"engine", "simulate", "workload"} <= users <= SIMPY


def test_heavy_libraries_are_imported_where_they_are_used() -> None:
    early = {(module, name) for module, name, late in EVERY if not late and room(name) in HEAVY}
    assert early == set()
    assert {room(name) for _, name, late in EVERY if late} & HEAVY, "somebody uses one of them"


def test_the_package_never_imports_gpu_libraries_or_what_lies_outside() -> None:
    assert {name for _, name, _ in EVERY if room(name) in NEVER} == set()


def test_the_command_line_is_light_at_the_top() -> None:
    """Click, the standard library, and of ours only what is light itself."""
    early = {name for module, name, late in EVERY if room(module) == "cli" and not late}
    light = {own(name) for name in early} - {None}
    assert {target for target in light if room(str(target)) != "cli"} <= {"errors", "units", "version"}
    assert {room(name) for name in early} & {"numpy", "simpy"} == set()


def test_only_the_command_line_prints() -> None:
    talkers = set()
    for module, tree in MODULES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "click.echo", "sys.stdout.write"):
                talkers.add(room(module))
    assert talkers == {"cli"}
