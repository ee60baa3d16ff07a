"""The command `murho export`: a checkpoint as a file that other runtimes read."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import typer

from murho.cli.shared import CheckpointsOption, JsonOption, find_version, prediction_options, print_json, print_lines
from murho.model.errors import OptionError


def export(
    model: Annotated[str | None, typer.Argument(help="Name of the checkpoint.")],
    to: Annotated[Literal["onnx"], typer.Option(help="What to write: onnx, a graph and the encoding of its rows.")],
    checkpoints: CheckpointsOption = "checkpoints",
    output: Annotated[Path | None, typer.Option(help="Folder to write.  [default: NAME-onnx]")] = None,
    samples: Annotated[int, typer.Option(min=1, max=4096, help="Draws in the graph.")] = 256,
    percentiles: Annotated[str, typer.Option(help="Levels, separated by commas.")] = "5,50,95",
    json: JsonOption = False,
) -> None:
    """Export a model of a number to ONNX: mean, std and percentiles of rows like the training rows."""
    levels = prediction_options(percentiles, None, raw=False).percentiles
    from murho.cli.output_files import naming_failures
    from murho.model.checkpoint.posterior import Posterior

    if find_spec("onnx") is None:
        raise OptionError("murho export needs the extra: pip install 'murho[onnx]'")
    from murho.model.python.onnx_export import ENCODING_FILE, GRAPH_FILE, export

    _store, directory = find_version(checkpoints, model, None)
    posterior = Posterior.load(directory, engine="torch")
    folder = output or Path(f"{posterior.name}-onnx")
    with naming_failures(folder):
        export(posterior, folder, samples=samples, percentiles=levels)
    files = [str(folder / name) for name in (GRAPH_FILE, ENCODING_FILE)]
    if json:
        print_json({"files": files})
    else:
        print_lines([f"{to}: wrote {' and '.join(files)}"])
