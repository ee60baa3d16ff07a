"""The arguments that all commands take alike: ``[NAME] DATA``, or ``--model NAME``, and what they complete to."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from murho.model.errors import MurhoError, OptionError
from murho.model.tables.overrides import FileForm

FILES = "CSV, Parquet, Arrow, JSON or Excel file, .gz and .zip, too; - for stdin"


def uniform(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the arguments that all take alike.

    Args:
        command: A function for typer. If it asks a checkpoint, its parameter ``name`` or ``model`` gets the name, or
            None, and its argument ``data`` the file. Its parameter ``form`` gets a `FileForm`.
    """
    parameters = inspect.signature(command, eval_str=True).parameters
    takes = next((name for name in ("name", "model") if name in parameters and not _is_option(parameters[name])), None)
    data = parameters.get("data")
    data = None if takes is None or data is None or _is_option(data) else data
    needed = data is not None and data.default is inspect.Parameter.empty
    places, form = [], FORM if "form" in parameters else []
    if takes is not None:
        alone = "; may be left out where there is only one." if "checkpoints" in parameters else "."
        about = f"Name of the checkpoint, same as --model{alone}"
        places.append(parameter("place", typer.Argument(metavar="NAME", help=about, autocompletion=complete_places)))
    if data is not None:
        said = [each.help for each in getattr(data.annotation, "__metadata__", ())]
        purpose = (f"{said[0]}: a {FILES}" if said else f"A {FILES}") + ".  [required]" * needed
        places.append(parameter("file", typer.Argument(metavar="DATA", help=purpose, autocompletion=complete_places)))
    if takes is not None:
        name = typer.Option("--model", help="Name of the checkpoint.", autocompletion=complete_names)
        places.append(parameter("model", name))

    @wraps(command)
    def called(
        *,
        place: str | None = None,
        file: str | None = None,
        model: str | None = None,
        sheet: str | None = None,
        skip_lines: int = 0,
        file_encoding: str | None = None,
        no_header: bool = False,
        **given: Any,
    ) -> None:
        if form:
            given["form"] = FileForm(sheet, skip_lines, file_encoding, not no_header)
        if takes is not None:
            found = [each for each in (place, file) if each is not None]
            given[takes], path = name_and_data(found, model, None if data is None else needed)
            if needed and path is None:
                raise OptionError("missing DATA: the file to score")
            _check_file(given[takes], path, given.get("checkpoints") or "checkpoints")
            if data is not None:
                given["data"] = path
        command(**given)

    replaced = [takes, "form", *(["data"] if data else [])]
    declare(called, [*places, *(each for each in parameters.values() if each.name not in replaced), *form])
    return called


def parameter(name: str, option: Any, kind: Any = str | None, default: Any = None) -> inspect.Parameter:
    """Return a parameter of a command, with typer's argument or option for it."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def declare(command: Callable[..., None], parameters: Iterable[inspect.Parameter]) -> None:
    """Declare the parameters that typer reads, and gives by name; one for any others is left out."""
    keyword, others = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD
    kept = [each.replace(kind=keyword) for each in parameters if each.kind is not others]
    command.__signature__ = inspect.Signature(kept)  # type: ignore[attr-defined]  # mypy knows no attributes of functions


FORM = [
    parameter("sheet", typer.Option(help="Sheet of a workbook; by default the first with cells.")),
    parameter("skip_lines", typer.Option(min=0, help="Lines of a CSV file or sheet before its header line."), int, 0),
    parameter("file_encoding", typer.Option(help="Text encoding (default: detected).")),
    parameter("no_header", typer.Option("--no-header", help="The first line has cells, not names."), bool, False),
]
"""Options of every command that reads a file, for its `FileForm`."""


def _is_option(parameter: inspect.Parameter) -> bool:
    return any(isinstance(part, type(typer.Option())) for part in getattr(parameter.annotation, "__metadata__", ()))


def name_and_data(places: Sequence[str], model: str | None, needed: bool | None) -> tuple[str | None, Path | None]:
    """Return the name of a checkpoint and the file, from what was given.

    Args:
        places: The arguments.
        model: ``--model``.
        needed: Whether the command needs a file; None: it takes none.

    Raises:
        OptionError: There are too many arguments, or the name is given twice.
    """
    most = 1 + (needed is not None)
    if len(places) == most and model is not None:
        raise OptionError(f"the checkpoint is named twice: {places[0]} and --model {model}")
    if len(places) > most:
        raise OptionError(f"{' '.join(places)}: expected {'a name and a file' if most > 1 else 'a name'} at most")
    if len(places) == most == 2:
        return places[0], Path(places[1])
    if not places:
        return model, None
    if needed is None or (not needed and model is None):
        return places[0], None
    return model, Path(places[0])


def _check_file(name: str | None, path: Path | None, checkpoints: str) -> None:
    """Check that no name of a checkpoint stands where a file should.

    Raises:
        OptionError: One does; the message says what is missing, or swapped.
    """
    if path is None or path.exists():
        return
    if name is not None and Path(name).is_file():
        raise OptionError(f"{name} is a file, and {path} is not: did you swap NAME and DATA?")
    if (Path(checkpoints) / path).is_dir():
        raise OptionError(f"{str(path)!r} is a model; also give the file")


def complete_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of the checkpoints that begin so."""
    from murho.model.checkpoint.stores import store_at

    try:
        names = {each.name for each in store_at(ctx.params.get("checkpoints") or "checkpoints").list()}
    except MurhoError:
        return []
    return sorted(name for name in names if name.startswith(incomplete))


def complete_places(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of checkpoints, and the files, that begin so."""
    files = [f"{path}/" if path.is_dir() else str(path) for path in Path().glob(f"{incomplete}*")]
    return [*complete_names(ctx, incomplete), *sorted(files)]


def complete_columns(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the columns of the file that begin so."""
    from murho.model.tables.table_files import read_table

    try:
        names = read_table(Path(ctx.params["data"])).column_names
    except (KeyError, TypeError, MurhoError):
        return []
    return [name for name in names if name.startswith(incomplete)]
