"""The `murho` script: lists all commands, and imports the module of a command only when it is called."""

from __future__ import annotations

import io
import os
import sys
from importlib import import_module, metadata
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from murho.cli.grammar import uniform
from murho.model.errors import MurhoError, OptionError, printable
from murho.model.runtime import let_threads_sleep

PANELS = {
    "Make a model": {
        "inspect": "Say how a file is read, column by column, and what is odd in it.",
        "train": "Fit a Bayesian network to a table and save it as a checkpoint.",
        "update": "Learn from new rows; writes the next version of a checkpoint.",
        "prune": "Remove the weights with the lowest signal-to-noise ratio; writes the next version.",
    },
    "Use and judge a model": {
        "predict": "Score a file, offline or through a running service.",
        "aggregate": "Add up predictions: a sum, a mean or a count with error bars.",
        "evaluate": "Judge a checkpoint on labelled rows.",
        "importance": "Show which features the predictions depend on.",
        "explain": "Say why rows have their predictions, and which rows are most worth labelling.",
        "report": "Write the report of a checkpoint, or for new labelled rows.",
        "models": "List the checkpoints of a directory.",
        "outcomes": "Tell what came true of recorded predictions.",
        "quality": "Show how good recorded predictions were.",
        "learn": "Learn from recorded outcomes: the next version, if it is better.",
        "export": "Write a checkpoint as an ONNX graph for other runtimes.",
    },
    "Run a service": {
        "publish": "Put a version from disk into object storage.",
        "serve": "Serve every checkpoint of a directory over HTTP.",
        "adaptation": "Show how bands have followed outcomes, and go back to an earlier state.",
        "mcp": "Give an agent tools: models, predictions, totals.",
        "key": "Make an API key for a service.",
        "doctor": "Say what is wrong with this installation.",
    },
}
"""Group of lines in ``murho --help`` → its commands, with the line of each."""
MODULES = {"quality": "outcomes", "key": "serve"}
"""Commands whose function is not in a module of `murho.cli` with their name."""
COMMANDS = {name: (line, panel) for panel, commands in PANELS.items() for name, line in commands.items()}

EXAMPLES = """Examples:

  murho train examples/cars.csv --target Miles_per_Gallon

  murho predict examples/cars.csv --model cars --output scored.csv

  murho report cars

  murho serve --port 8000

  murho --install-completion   (completes commands and options in your shell)"""


class GroupedCommand(TyperCommand):
    """A command whose help lists options by their ``rich_help_panel``, as plain text."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each group, in the order in which they first appear."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for each in self.get_params(ctx):
            if (line := each.get_help_record(ctx)) is not None:
                panel = getattr(each, "rich_help_panel", None)
                groups.setdefault(panel or f"{each.param_type_name.capitalize()}s", []).append(line)
        for name, lines in groups.items():
            with formatter.section(name):
                formatter.write_dl(lines)


class LazyGroup(TyperGroup):
    """The names and help lines of all commands; imports a command only when it is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Replace the placeholder of the called command by the command."""
        if args and args[0] in COMMANDS:
            name = args[0]
            module = import_module(f"murho.cli.{MODULES.get(name, name)}")
            single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
            single.command(name, cls=GroupedCommand, help=COMMANDS[name][0])(uniform(getattr(module, name)))
            self.commands[name] = typer.main.get_command(single)
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


def _listed() -> None:
    """Return a placeholder for the help page; `LazyGroup` replaces it."""


for _name, (_line, _panel) in COMMANDS.items():
    app.command(_name, help=_line, rich_help_panel=_panel)(_listed)


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
    """Run the command line; print a `MurhoError`, or what the system refused, as one line, without a traceback."""
    let_threads_sleep()
    if None in (sys.stdout, sys.stderr):  # what is closed
        nowhere = open(os.devnull, "w")  # noqa: PTH123, SIM115 - until the end
        sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may not know ±
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except MurhoError as error:
        sys.stderr.write(f"error: {printable(str(error))}\n")
        sys.exit(2 if isinstance(error, OptionError) else 1)
    except OSError as error:
        if not isinstance(error, BrokenPipeError):  # whoever reads stdout may have enough
            sys.stderr.write(f"error: {error.filename or 'output'}: {error.strerror or error}\n")
        sys.stdout = None  # Python would write what is left once more at its end
        sys.exit(1)


if __name__ == "__main__":
    main()
