"""A command and its options: help in sections after an example that works, and the command line that repeats it.

A section is a title and its options; a row of help may stand for several options that belong
together, so that the help of a verb with forty flags still fits on a screen.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class Option(click.Option):
    """An option that knows its section of the help, and may have its row written otherwise."""

    def __init__(self, *args: Any, section: str = "Other", row: str | None = None, repeats: bool = True, **kw: Any):
        super().__init__(*args, **kw)
        self.section = section
        self.row = row
        self.repeats = repeats
        """Is it part of the run, and not of what is done with its results?"""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        return record if record is None or self.row is None else (self.row, record[1])


def option(*names: str, **attributes: Any) -> Callable[[str], Decorator]:
    """An option that waits for the title of its section."""
    return lambda section: click.option(*names, cls=Option, section=section, **attributes)


def section(title: str, *options: Callable[[str], Decorator]) -> Decorator:
    """A decorator that gives a command *options*, shown under *title*."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        # The decorator nearest to a function is the last in its help.
        for make in reversed(options):
            function = make(title)(function)
        return function

    return decorate


class Verb(click.Command):
    """A command whose help opens with an *example* and shows options by section."""

    def __init__(self, *args: Any, example: str, **kw: Any) -> None:
        super().__init__(*args, **kw)
        self.example = example

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(f"Example: {self.example}\n")
        self.format_usage(ctx, formatter)
        formatter.write(f"{self.help}\n")
        self.format_options(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        title = ""
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                # Click's own --help goes where the options before it are.
                title = param.section if isinstance(param, Option) else title
                sections.setdefault(title, []).append(record)
        # One column for all sections: the widest name decides, but for those that stand alone on their line.
        width = max(len(name) for rows in sections.values() for name, text in rows if text)
        for title, rows in sections.items():
            formatter.write(f"{title}:\n")
            with formatter.indentation():
                for name, text in rows:
                    formatter.write_dl([(name.ljust(width) if text else name, text)], col_max=width + 2)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given, _, order = self.make_parser(ctx).parse_args(list(args))
        ctx.meta[_COMMAND] = shlex.join(["simbatch", self.name or "", *_repeating(order, given)])
        return super().parse_args(ctx, args)


_COMMAND = "simbatch.command"


def command_line(ctx: click.Context) -> str:
    """The command that repeats the run of *ctx*: what was typed, with options for output left out."""
    command: str = ctx.meta[_COMMAND]
    return command


def _repeating(order: Iterable[click.Parameter], given: dict[str, Any]) -> list[str]:
    """Arguments, then options in their full spelling, each once and in the order in which they were typed."""
    arguments: list[str] = []
    options: list[str] = []
    for param in dict.fromkeys(order):
        value = given[param.name or ""]
        if isinstance(param, click.Argument):
            arguments.append(str(value))
        elif isinstance(param, Option) and param.repeats:
            names = param.opts if value is not False else param.secondary_opts
            name = max(names, key=len)
            for one in value if isinstance(value, list) else [value]:
                options += [name] if isinstance(one, bool) else [name, str(one)]
    return [*arguments, *options]
