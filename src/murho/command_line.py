"""The `murho` script: lists all commands, and imports the module of a command only when it is called."""

from __future__ import annotations

import io
import sys
from importlib import import_module, metadata
from typing import Any

import typer
from typer.core import TyperGroup

from murho.cli.grammar import uniform
from murho.model.errors import MurhoError, OptionError
from murho.model.runtime import let_threads_sleep

__all__ = ["app", "main"]

COMMANDS = {
    "inspect": (
        "murho.cli.inspect",
        "Say how a file is read, column by column, and what is odd in it.",
        "Make a model",
    ),
    "train": (
        "murho.cli.train",
        "Fit a Bayesian network to a table and save it as a checkpoint.",
        "Make a model",
    ),
    "update": (
        "murho.cli.update",
        "Learn from new rows; writes the next version of a checkpoint.",
        "Make a model",
    ),
    "prune": (
        "murho.cli.prune",
        "Remove the weights with the lowest signal-to-noise ratio; writes the next version.",
        "Make a model",
    ),
    "predict": (
        "murho.cli.predict",
        "Score a file, offline or through a running service.",
        "Use and judge a model",
    ),
    "aggregate": (
        "murho.cli.aggregate",
        "Add up predictions: a sum, a mean or a count with error bars.",
        "Use and judge a model",
    ),
    "evaluate": (
        "murho.cli.evaluate",
        "Judge a checkpoint on labelled rows.",
        "Use and judge a model",
    ),
    "importance": (
        "murho.cli.importance",
        "Show which features the answers depend on.",
        "Use and judge a model",
    ),
    "explain": (
        "murho.cli.explain",
        "Say why rows have their answers, and which labels would teach most.",
        "Use and judge a model",
    ),
    "report": (
        "murho.cli.report",
        "Write the report of a checkpoint, or for new labelled rows.",
        "Use and judge a model",
    ),
    "models": ("murho.cli.models", "List the checkpoints of a directory.", "Use and judge a model"),
    "outcomes": (
        "murho.cli.outcomes",
        "Tell what came true of recorded predictions.",
        "Use and judge a model",
    ),
    "quality": (
        "murho.cli.outcomes",
        "Show how good recorded predictions were.",
        "Use and judge a model",
    ),
    "learn": (
        "murho.cli.learn",
        "Learn from recorded outcomes: the next version, if it is better.",
        "Use and judge a model",
    ),
    "export": ("murho.cli.export", "Write a checkpoint as an ONNX graph for other runtimes.", "Use and judge a model"),
    "publish": (
        "murho.cli.publish",
        "Put a version from disk into object storage.",
        "Run a service",
    ),
    "serve": ("murho.cli.serve", "Serve every checkpoint of a directory over HTTP.", "Run a service"),
    "adaptation": (
        "murho.cli.adaptation",
        "Show how bands have followed outcomes, and go back to an earlier state.",
        "Run a service",
    ),
    "mcp": ("murho.cli.mcp", "Give an agent tools: models, predictions, totals.", "Run a service"),
    "key": ("murho.cli.serve", "Make an API key for a service.", "Run a service"),
    "doctor": ("murho.cli.doctor", "Say what is wrong with this installation.", "Run a service"),
}
"""Command → the module with a function of that name, its line in ``murho --help``, and the group of lines there."""

EXAMPLES = """Examples:

  murho train examples/cars.csv --target Miles_per_Gallon

  murho predict examples/cars.csv --model cars --output scored.csv

  murho report cars

  murho serve --port 8000

  murho --install-completion   (completes commands and options in your shell)"""


class LazyGroup(TyperGroup):
    """The names and help lines of all commands; imports a command only when it is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Replaces the placeholder of the called command by the command."""
        if args and args[0] in COMMANDS:
            module, help_line, _ = COMMANDS[args[0]]
            single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
            single.command(args[0], help=help_line)(uniform(getattr(import_module(module), args[0])))
            self.commands[args[0]] = typer.main.get_command(single)
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="murho",
    cls=LazyGroup,
    help="Predictions with error bars: Bayes-by-Backprop networks for tables, and a service that answers from them.",
    no_args_is_help=True,
    epilog=EXAMPLES,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _entry(name: str) -> None:
    _, help_line, panel = COMMANDS[name]

    @app.command(name, help=help_line, rich_help_panel=panel)
    def listed() -> None:
        """A placeholder for the help page; `LazyGroup` replaces it."""


for _name in COMMANDS:
    _entry(_name)


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"murho {metadata.version('murho')}\n")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Options of `murho` itself."""


def main() -> None:
    """Runs the command line; prints a `MurhoError` as one line, without a traceback."""
    let_threads_sleep()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may not know ±
    try:
        app()
    except MurhoError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2 if isinstance(error, OptionError) else 1)


if __name__ == "__main__":
    main()
