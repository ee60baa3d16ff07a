"""The reports: the page and the facts of a training, an update, a pruning and labelled rows.

The page is one HTML file with everything in it, which asks nothing of a network. ``page.html`` beside this module is
its template, and has all that is said on it; what ``model.json`` knows it takes from there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from jinja2 import ChainableUndefined, Environment, FileSystemLoader

from murho.model.checkpoint.posterior import Posterior
from murho.model.checkpoint.spec import ModelSpec
from murho.model.checkpoint.stores import PAGE_FILE
from murho.model.errors import TableError
from murho.model.evaluation.judging import judge_columns
from murho.model.evaluation.summary import per_cent, plus_minus, significant, verdict
from murho.model.files import JSON
from murho.model.report.charts import COLOURS, PAPER, Chart, charts, name_with_unit
from murho.model.report.facts import FACTS_PATH, FORMAT, SEED, curve, facts_of_rows, surprising_rows
from murho.model.tables.schema_inference import columns_from_table, read_targets
from murho.model.training.candidates import FULL, LONGER, SETTLING
from murho.model.training.revisions import LabelledRows, Revised
from murho.model.training.train import Trained

HOW_TO_GET_CHARTS = "pip install '.[charts]' in a clone of Murho's repository"
MOST_ROWS = 20_000
"""Most labelled rows that a report looks at; of more, it takes some by chance. A chart shows no difference."""


def draw_chart(chart: Chart) -> str:
    """Return a chart as an SVG element, without background, for a page that defines the variables of `COLOURS`."""
    import vl_convert

    label = f'role="img" aria-label="{escape(chart.title)}"'
    picture = vl_convert.vegalite_to_svg(chart.specification)
    picture = re.sub(rf'<rect width="[^"]*" height="[^"]*" fill="{PAPER}"/>', "", picture, count=1)
    # It shrinks with the page as far as its words can be read.
    picture = re.sub(
        r'width="([\d.]+)" height="[\d.]+"', rf'style="width:clamp(\1px * .7, 100%, \1px)" {label}', picture, count=1
    )
    return re.sub("|".join(COLOURS), lambda colour: f"var(--{COLOURS[colour[0]]})", picture)


def html_page(name: str, spec: ModelSpec, facts: Mapping[str, Any], rows: Sequence[JSON] | None = None) -> str:
    """Return the whole page; without charts where the extra ``charts`` is missing.

    Args:
        name: Name of the checkpoint, and its version if it is known.
        spec: The specification of the version.
        facts: Its facts, `model.report.facts`.
        rows: The surprising rows, `model.report.facts.surprising_rows`; None: no rows.
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
        "named": name_with_unit,
        "count": lambda value: f"{value:,}",
        "cell": _cell,
        "error": lambda value, error: plus_minus(value, error or None) if _is_number(value) else None,
        "number": lambda value, digits=4: significant(value, digits) if _is_number(value) else None,
        "percent": lambda share, error=None: per_cent(share, error) if _is_number(share) else None,
    }
    scores, target, can = facts.get("held_out") or spec.metrics, spec.schema.target, find_spec("vl_convert") is not None
    revisions = [spec.records[kind] for kind in ("update", "pruning") if kind in spec.records]
    return pages.get_template("page.html").render(
        name=name,
        spec=spec,
        facts=facts,
        scores=scores,
        verdict=verdict(scores, target.unit) if scores else None,
        figures=[(chart, draw_chart(chart)) for chart in charts(target, facts)] if can else None,
        rows=rows,
        revision=max(revisions, key=lambda of: int(of["from_version"]), default=None),
        how_to_get_charts=HOW_TO_GET_CHARTS,
    )


def _is_number(value: object) -> bool:
    """Whether it is a number, and neither None nor missing in the facts."""
    return isinstance(value, int | float)


def _cell(value: str | float | bool | None) -> str:
    if value is None or isinstance(value, bool):
        return {None: "missing", True: "yes", False: "no"}[value]
    return value if isinstance(value, str) else f"{value + 0.0:.6g}"  # no "-0"


def _report_files(
    name: str, spec: ModelSpec, facts: Mapping[str, Any], rows: Sequence[JSON] | None
) -> dict[str, bytes]:
    page = html_page(name, spec, facts, rows).encode()
    return {PAGE_FILE: page, str(FACTS_PATH): orjson.dumps({"format": FORMAT, **facts})}


def training_report(name: str, trained: Trained, *, with_rows: bool = True) -> dict[str, bytes]:
    """Return the files of the report of a training, by path in the directory of the version.

    Args:
        name: Name of the checkpoint.
        trained: The training.
        with_rows: Whether to show the most surprising rows of the table.
    """
    posterior, evidence = trained.posterior, trained.evidence
    facts = facts_of_rows(posterior, evidence.columns, evidence.held_out, trained.spec.metrics)
    fits = [evidence.chosen]
    if evidence.chosen.stage in (SETTLING, LONGER):  # it continued the full fit
        fits = [*[of for of in evidence.attempts if of.stage == FULL][-1:], *fits]
    facts["curves"] = [curve(fit.stage, fit.history) for fit in fits if fit.history]
    rows = surprising_rows(evidence.held_out, posterior, evidence.columns, evidence.row_numbers) if with_rows else None
    return _report_files(name, trained.spec, facts, rows)


def revision_report(
    name: str, revised: Revised, rows: LabelledRows | None, *, with_rows: bool = True
) -> dict[str, bytes]:
    """Return the files of the report of an update or a pruning, by path in the directory of the version.

    Args:
        name: Name of the checkpoint.
        revised: The version.
        rows: The labelled rows that it was judged by; None: there were none.
        with_rows: Whether to show these rows.
    """
    posterior, judged, facts, shown = revised.posterior, revised.judged, {}, None
    if rows is not None:
        facts = facts_of_rows(posterior, rows.columns, judged, revised.after or {})
        if with_rows and judged is not None:
            shown = surprising_rows(judged, posterior, rows.columns, rows.numbers)
    if revised.history:
        facts["curves"] = [curve(revised.kind, revised.history)]
    return _report_files(name, posterior.spec, facts, shown)


def report_of_rows(posterior: Posterior, table: pa.Table, source: str) -> tuple[JSON, list[JSON], int]:
    """Predict and judge the labelled rows of a table.

    Args:
        posterior: The posterior of the checkpoint.
        table: The table, as `model.tables.table_files.read_table` returns it.
        source: Name of its file.

    Returns:
        The facts of the rows, with the ``source``; the surprising rows; and the number of rows without a target.

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
        {"source": source, **facts_of_rows(posterior, columns, judged, {})},
        surprising_rows(judged, posterior, columns, chosen + 1),
        len(targets) - len(labelled),
    )
