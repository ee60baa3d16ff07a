"""The reports: the page, its charts as PNG and the facts, of a training, an update, a pruning and labelled rows.

The page is one HTML file with everything in it, which asks nothing of a network. ``page.html`` beside this module is
its template, and has all that is said on it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from jinja2 import ChainableUndefined, Environment, FileSystemLoader

from murho.model.errors import TableError
from murho.model.evaluation.judging import judge_columns
from murho.model.evaluation.summary import plus_minus, significant, verdict
from murho.model.report import PAGE_FILE
from murho.model.report.charts import COLOURS, PAPER, Chart, charts, named
from murho.model.report.facts import FACTS_PATH, SEED, facts_of_data, facts_of_revision, facts_of_training, shown_rows
from murho.model.tables.schema_inference import columns_from_table, read_targets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from murho.model.checkpoint.posterior import Posterior
    from murho.model.training.revisions import LabelledRows, Revised
    from murho.model.training.train import Trained

HOW_TO_GET_CHARTS = "pip install '.[charts]' in a clone of Murho's repository"


PNG_SCALE = 1.5
"""Pixels per pixel of a chart."""


def can_draw() -> bool:
    """Whether the package that draws is installed."""
    return find_spec("vl_convert") is not None


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart that was drawn once, for a page and for a file.

    Attributes:
        chart: The chart.
        picture: An SVG document with its colours and its background.
    """

    chart: Chart
    picture: str

    def png(self) -> bytes:
        """The picture as a PNG file."""
        import vl_convert

        picture: bytes = vl_convert.svg_to_png(self.picture, scale=PNG_SCALE)
        return picture

    def element(self) -> str:
        """An SVG element, without background, for a page that defines the variables of `COLOURS`."""
        label = f'role="img" aria-label="{escape(self.chart.title)}"'
        drawn = re.sub(rf'<rect width="[^"]*" height="[^"]*" fill="{PAPER}"/>', "", self.picture, count=1)
        # It shrinks with the page.
        drawn = re.sub(r'width="([\d.]+)" height="[\d.]+"', rf'style="width:\1px" {label}', drawn, count=1)
        return re.sub("|".join(COLOURS), lambda colour: f"var(--{COLOURS[colour[0]]})", drawn)


def draw(facts: Mapping[str, Any], rows: Mapping[str, Any] | None = None) -> list[Drawing]:
    """The charts of a report; none where the extra ``charts`` is missing.

    Args:
        facts: The facts of the report.
        rows: Rows to show; None: no rows.
    """
    if not can_draw():
        return []
    import vl_convert

    return [Drawing(chart, vl_convert.vegalite_to_svg(chart.specification)) for chart in charts(facts, rows)]


def html_page(
    name: str, facts: Mapping[str, Any], drawn: Sequence[Drawing], rows: Mapping[str, Any] | None = None
) -> str:
    """The whole page.

    Args:
        name: Name of the checkpoint, and its version if it is known.
        facts: The facts of the report.
        drawn: Its charts.
        rows: Rows to show, `model.report.facts.shown_rows`; None: no rows.
    """
    pages = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=ChainableUndefined,
        finalize=lambda value: "\u2013" if value is None else value,
    )
    pages.filters |= {
        "named": named,
        "count": lambda value: f"{value:,}",
        "end": lambda value: value if isinstance(value, str) else f"{value:.6g}",
        "error": lambda value, error: plus_minus(value, error or None) if _known(value) else None,
        "number": lambda value, digits=4: significant(value, digits) if _known(value) else None,
        "percent": lambda share, decimals=1: f"{100.0 * share:.{decimals}f} %" if _known(share) else None,
    }
    return pages.get_template("page.html").render(
        name=name,
        facts=facts,
        verdict=verdict(facts["scores"], facts["target"]["unit"]) if facts["scores"] else None,
        drawn=drawn,
        rows=rows,
        can_draw=can_draw(),
        how_to_get_charts=HOW_TO_GET_CHARTS,
    )


def _known(value: object) -> bool:
    """Whether it is a number, and neither None nor missing in the facts."""
    return isinstance(value, int | float)


PICTURES = "report"
MOST_ROWS = 20_000
"""Most labelled rows that a report looks at; of more, it takes some by chance. A chart shows no difference."""


def report_files(
    name: str, facts: Mapping[str, Any], rows: Mapping[str, Any] | None = None, *, stored: bool = False
) -> dict[str, bytes]:
    """The page and its charts as PNG, by path; without charts where the extra ``charts`` is missing.

    Args:
        name: Name of the checkpoint, and its version if it is known.
        facts: The facts of the report.
        rows: Rows to show; None: no rows.
        stored: Whether the facts are to be kept, too.
    """
    drawn = draw(facts, rows)
    files = {f"{PICTURES}/{drawing.chart.name}.png": drawing.png() for drawing in drawn}
    files[PAGE_FILE] = html_page(name, facts, drawn, rows).encode()
    return files | ({str(FACTS_PATH): orjson.dumps(facts)} if stored else {})


def training_report(name: str, trained: Trained, *, with_rows: bool = True) -> dict[str, bytes]:
    """The files of the report of a training, by path in the directory of the version.

    Args:
        name: Name of the checkpoint.
        trained: The training.
        with_rows: Whether to show rows of the table: points, and the most surprising rows.
    """
    evidence = trained.evidence
    shown = shown_rows(evidence.held_out, trained.posterior, evidence.columns, evidence.row_numbers)
    return report_files(name, facts_of_training(trained), shown if with_rows else None, stored=True)


def revision_report(
    name: str,
    revised: Revised,
    rows: LabelledRows | None,
    before: Mapping[str, Any],
    *,
    with_rows: bool = True,
) -> dict[str, bytes]:
    """The files of the report of an update or a pruning, by path in the directory of the version.

    Args:
        name: Name of the checkpoint.
        revised: The version.
        rows: The labelled rows that it was judged by; None: there were none.
        before: The facts of the version that it was made from.
        with_rows: Whether to show these rows.
    """
    facts, judged, shown = facts_of_revision(revised, rows, before), revised.judged, None
    if with_rows and rows is not None and judged is not None:
        shown = shown_rows(judged, revised.posterior, rows.columns, rows.numbers)
    return report_files(name, facts, shown, stored=True)


def report_of_rows(
    posterior: Posterior, stored: Mapping[str, Any], table: pa.Table, source: str
) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Predict and judge the labelled rows of a table.

    Args:
        posterior: The posterior of the checkpoint.
        stored: Facts of the checkpoint.
        table: The table, as `model.tables.files.read_table` returns it.
        source: Name of its file.

    Returns:
        The facts, with the rows in place of the held-out ones; the rows to show, `model.report.facts.shown_rows`; and
        the number of rows without a target.

    Raises:
        TableError: The target column is missing, no row has a target, or a cell can't be used.
    """
    target = posterior.schema.target
    targets = read_targets(table, target)
    labelled = np.flatnonzero(~np.isnan(targets))
    if not len(labelled):
        raise TableError(f"no row has a value in the target column {target.name!r}; there is nothing to judge by")
    most = min(len(labelled), MOST_ROWS)
    chosen = np.sort(np.random.default_rng(SEED).choice(labelled, most, replace=False))
    columns = columns_from_table(table, posterior.schema, rows=chosen)
    judged = judge_columns(posterior, columns, targets[chosen])
    return (
        facts_of_data(posterior, stored, columns, judged, source),
        shown_rows(judged, posterior, columns, chosen + 1),
        len(targets) - len(labelled),
    )
