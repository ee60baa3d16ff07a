"""The arguments that all commands take alike: ``[NAME] DATA``, or ``--model NAME``, and what they complete to."""

from __future__ import annotations

import inspect
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from murho.model.errors import MurhoError, OptionError
from murho.model.tables.overrides import FileForm

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FILES = "CSV, Parquet, Arrow, JSON or Excel file, .gz and .zip, too; - for stdin"


def uniform(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the arguments that all take alike.

    Args:
        command: A function for typer. If it asks a checkpoint, its parameter ``name``, an argument, or ``model`` gets
            the name, or None, and its argument ``data`` the file. Its parameter ``form`` gets a `FileForm`.
    """
    return _with_form(_with_places(command))


def _with_form(command: Callable[..., None]) -> Callable[..., None]:
    parameters = inspect.signature(command, eval_str=True).parameters
    if "form" not in parameters:
        return command

    @wraps(command)
    def called(
        *, sheet: str | None = None, skip_lines: int = 0, file_encoding: str | None = None, **given: Any
    ) -> None:
        command(form=FileForm(sheet, skip_lines, file_encoding), **given)

    options = {
        "sheet": (None, str | None, typer.Option(help="Sheet of a workbook; by default the first with cells.")),
        "skip_lines": (0, int, typer.Option(min=0, help="Lines of a CSV file before its header line.")),
        "file_encoding": (None, str | None, typer.Option(help="Encoding of a text; by default what it tells.")),
    }
    called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # what typer reads
        [
            *(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters.values() if each.name != "form"),
            *(
                inspect.Parameter(
                    name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
                )
                for name, (default, kind, option) in options.items()
            ),
        ]
    )
    return called


def _with_places(command: Callable[..., None]) -> Callable[..., None]:
    parameters = inspect.signature(command, eval_str=True).parameters
    takes = next((name for name in ("name", "model") if name in parameters and not _is_option(parameters[name])), None)
    takes = takes or ("model" if "model" in parameters else None)
    if takes is None:
        return command
    data = parameters.get("data")
    data = None if data is None or _is_option(data) else data
    needed = data is not None and data.default is inspect.Parameter.empty
    alone = "; may be left out where there is only one." if "checkpoints" in parameters else "."
    about = f"Name of the checkpoint, as of --model{alone}"
    place: Any = Annotated[str | None, typer.Argument(metavar="NAME", help=about, autocompletion=complete_places)]
    said = [each.help for each in getattr(data and data.annotation, "__metadata__", ())]
    purpose = (f"{said[0]}: a {FILES}" if said else f"A {FILES}") + ". Needed." * needed
    file: Any = Annotated[str | None, typer.Argument(metavar="DATA", help=purpose, autocompletion=complete_places)]
    model: Any = Annotated[
        str | None, typer.Option("--model", help="Name of the checkpoint.", autocompletion=complete_names)
    ]

    @wraps(command)
    def called(place: str | None = None, file: str | None = None, model: str | None = None, **given: Any) -> None:
        places = [each for each in (place, file) if each is not None]
        name, path = name_and_data(places, model, None if data is None else needed)
        if needed and path is None:
            raise OptionError("name the file: DATA")
        command(**{takes: name}, **({} if data is None else {"data": path}), **given)

    keyword = inspect.Parameter.KEYWORD_ONLY
    given = {"place": place, **({} if data is None else {"file": file}), "model": model}
    called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # what typer reads
        [
            *(inspect.Parameter(name, keyword, default=None, annotation=kind) for name, kind in given.items()),
            *(
                each.replace(kind=keyword)
                for each in parameters.values()
                if each.name != takes and (each.name != "data" or data is None)
            ),
        ]
    )
    return called


def _is_option(parameter: inspect.Parameter) -> bool:
    return any(isinstance(part, type(typer.Option())) for part in getattr(parameter.annotation, "__metadata__", ()))


def name_and_data(places: Sequence[str], model: str | None, needed: bool | None) -> tuple[str | None, Path | None]:
    """The name of a checkpoint and the file, from what was given.

    Args:
        places: The arguments.
        model: ``--model``.
        needed: Whether the command needs a file; None: it takes none.

    Raises:
        OptionError: There are too many arguments, or the name is given twice.
    """
    most = 1 + (needed is not None)
    if len(places) == most and model is not None and most > (needed is not None):
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


def complete_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names of the checkpoints that begin so."""
    from murho.model.checkpoint.stores import store_at

    try:
        names = {each.name for each in store_at(ctx.params.get("checkpoints") or "checkpoints").list()}
    except MurhoError:
        return []
    return sorted(name for name in names if name.startswith(incomplete))


def complete_places(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names of checkpoints, and the files, that begin so."""
    files = [f"{path}/" if path.is_dir() else str(path) for path in Path().glob(f"{incomplete}*")]
    return [*complete_names(ctx, incomplete), *sorted(files)]


def complete_columns(ctx: typer.Context, incomplete: str) -> list[str]:
    """The columns of the file that begin so."""
    from murho.model.tables.files import read_table

    try:
        names = read_table(Path(ctx.params["data"])).column_names
    except (KeyError, TypeError, MurhoError):
        return []
    return [name for name in names if name.startswith(incomplete)]
