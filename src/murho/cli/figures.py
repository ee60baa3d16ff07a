"""Figures of commands as PNG files; they need vl-convert-python (the extra ``charts``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from murho.model.errors import OptionError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "check_figure",
    "draw_figure",
]


def check_figure(path: Path) -> None:
    """Check, before the work, that a figure can be drawn and written.

    Args:
        path: Path of the PNG file.

    Raises:
        OptionError: The extension is not ``.png``, or the directory or the package is missing.
    """
    if path.suffix.lower() != ".png":
        raise OptionError(f"--figure: {path} must end in .png")
    if not path.parent.is_dir():
        raise OptionError(f"--figure: the directory {path.parent} does not exist")
    try:
        import vl_convert  # noqa: F401 - only checks that it is installed
    except ModuleNotFoundError as error:
        raise OptionError(
            f"--figure needs {error.name}: run pip install '.[charts]' in a clone of Murho's repository"
        ) from error


def draw_figure(specification: dict[str, Any], path: Path) -> None:
    """Draw a chart.

    Args:
        specification: The chart as Vega-Lite, with its data.
        path: Path of the PNG file.

    Raises:
        OptionError: The file can't be written.
    """
    import vl_convert

    picture = vl_convert.vegalite_to_png(specification, scale=2.0)
    try:
        path.write_bytes(picture)
    except OSError as error:
        raise OptionError(f"--figure: {path} can't be written: {error.strerror or error}") from error
