"""The start page: the loaded models, their metrics and features, and a request to try. Plain HTML, no script."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

from murho.model.data.schema import FeatureKind
from murho.model.errors import MurhoError
from murho.service.examples import curl_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from murho.model.data.schema import Feature, Schema
    from murho.model.distributions.calibration import ConformalMap
    from murho.service.registry import LoadedModel, Snapshot

__all__ = ["render_start_page"]

MAX_FEATURES = 200
MAX_CATEGORIES = 12
METRICS = (("rmse", "RMSE"), ("mae", "MAE"), ("crps", "CRPS"), ("nll", "NLL"))


def render_start_page(snapshot: Snapshot, address: str) -> str:
    """Returns the page as HTML.

    Args:
        snapshot: The checkpoints that are served.
        address: The URL of this service as the reader reached it, without a slash at the end.
    """
    sections: list[str] = []
    try:
        snapshot.require_models()
    except MurhoError as error:
        sections.append(f"<section><h2>Not ready</h2><p>{escape(str(error))}</p></section>")
    sections += [_model(model, address) for model in snapshot.models.values()]
    if snapshot.refused:
        rows = ((f"{item.name} {item.version}".strip(), item.reason) for item in snapshot.refused)
        table = _table(("Checkpoint", "Why it is refused"), rows)
        sections.append(f'<section class="refused"><h2>Refused</h2>{table}</section>')
    template = (files("murho.service") / "web" / "start.html").read_text(encoding="utf-8")
    return Template(template).substitute(content="\n".join(sections))


def _model(loaded: LoadedModel, address: str) -> str:
    model = loaded.latest
    target = model.schema.target
    predicts = f"<b>{escape(target.name)}</b>" + (f" ({escape(target.unit)})" if target.unit else "")
    others = [version for version in loaded.versions if version != model.version]
    older = f"; also served: {', '.join(others)}" if others else ""
    features = model.schema.features
    rows = (_feature(feature) for feature in features[:MAX_FEATURES])
    more = f"<p>and {len(features) - MAX_FEATURES} more</p>" if len(features) > MAX_FEATURES else ""
    return f"""<section>
<h2>{escape(model.name)}</h2>
<p>predicts {predicts} <span class="soft">· version {escape(model.version)}{older}</span></p>
{_metrics(model.spec.metrics, model.schema, model.spec.calibration)}
<h3>Features</h3>
<div class="scroll">{_table(("Feature", "Kind", "Training range", "Missing"), rows)}</div>{more}
<h3>Try it</h3>
<pre>{escape(curl_line(model, address))}</pre>
</section>"""


def _metrics(metrics: Mapping[str, Any], schema: Schema, calibration: ConformalMap | None) -> str:
    """Returns the checkpoint's held-out metrics, with standard errors where it has them, as HTML."""
    unit = f" {schema.target.unit}" if schema.target.unit else ""
    errors = metrics.get("standard_errors")
    errors = errors if isinstance(errors, dict) else {}
    shown = [
        (title, f"{_plus_minus(metrics[key], errors.get(key))}{' nats' if key == 'nll' else unit}")
        for key, title in METRICS
        if _is_number(metrics.get(key))
    ]
    for kind in ("calibrated", "raw"):
        coverage = _coverage(metrics.get(kind))
        if coverage:
            shown.append((f"90 % bands cover ({kind})", coverage))
    if calibration is not None:
        shown.append(("Bands", f"{calibration.method}, {calibration.rows:,} rows"))
    if not shown:
        return ""
    items = "".join(f"<div><dt>{escape(title)}</dt><dd>{escape(value)}</dd></div>" for title, value in shown)
    return f"<h3>On held-out rows</h3><dl>{items}</dl>"


def _coverage(judged: object) -> str | None:
    coverage: Mapping[str, Any] = judged.get("coverage", {}) if isinstance(judged, dict) else {}
    value = coverage.get("90")
    return f"{100 * value:.1f} %" if isinstance(value, int | float) else None


def _plus_minus(value: float, error: object) -> str:
    return f"{value:.4g} ± {error:.2g}" if isinstance(error, int | float) and error > 0 else f"{value:.4g}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _feature(feature: Feature) -> tuple[str, ...]:
    described = feature.describe()
    if feature.kind is FeatureKind.CATEGORICAL:
        shown = ", ".join(feature.categories[:MAX_CATEGORIES])
        more = len(feature.categories) - MAX_CATEGORIES
        values = f"{shown} and {more} more" if more > 0 else shown
    elif feature.kind is FeatureKind.BOOLEAN:
        values = "false, true"
    elif described["min"] is None:
        values = "no training row has a value"
    else:
        unit = f" {feature.unit}" if feature.unit else ""
        values = f"{_short(described['min'])} to {_short(described['max'])}{unit}"
    return feature.name, str(feature.kind), values, "null is accepted" if feature.accepts_missing else "no"


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
