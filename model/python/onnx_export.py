"""Export to ONNX: the answer for rows like the training rows as one graph, and the encoding of rows as JSON.

The graph takes encoded rows ``[B, D]`` and gives ``mean``, ``std``, ``epistemic_std``, ``aleatoric_std`` ``[B]`` and
``percentiles`` ``[B, K]``, calibrated where the checkpoint is. The S draws are in it. It is computed in single
precision, as small processors do; percentiles are found by bisection, with as many steps as single precision has bits.

Left out, because it takes the whole of Murho: warnings, rows beyond the training rows (the encoding tells the ranges),
missing cells that were never missing in training, classes, counts and capped targets.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

from murho.model.bbb.likelihood import NOISE_FLOOR
from murho.model.bbb.number_likelihoods import (
    GaussianMixtureLikelihood,
    GaussianNoise,
    HeteroscedasticNoise,
    MixtureNoise,
)
from murho.model.checkpoint.posterior import Posterior
from murho.model.distributions.target_transforms import Logarithm
from murho.model.encoding.encoder import Encoder
from murho.model.encoding.feature_encodings import Calendar, OneHot, PiecewiseLinear, Scaled
from murho.model.errors import OptionError
from murho.model.predictive.plans import PredictionPlan
from murho.model.predictive.prediction import PredictOptions

GRAPH_FILE, ENCODING_FILE = "model.onnx", "encoding.json"
OPSET = 18
STEPS = 40
"""Of a bisection: after them its interval is narrower than single precision tells apart."""
FURTHEST = 10.0
"""Ends of the search, in standard deviations of the outermost components."""
MOST_EXPONENT = 80.0


def export(
    posterior: Posterior, folder: Path, *, samples: int = 256, percentiles: Sequence[float] = (5, 50, 95)
) -> None:
    """Write ``model.onnx`` and ``encoding.json``.

    Args:
        posterior: A model of a number.
        folder: Where to; created if it does not exist.
        samples: S, the draws of the checkpoint's seed that go into the graph.
        percentiles: K levels, strictly between 0 and 100.

    Raises:
        OptionError: The model can't be exported, see the module.
    """
    options = PredictOptions(samples, tuple(map(float, percentiles)))
    model = _graph(posterior, options)
    onnx.checker.check_model(model, full_check=True)
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / GRAPH_FILE)
    facts = {"samples": samples, "percentiles": list(options.percentiles), "seed": posterior.seed}
    document = facts | {"target": posterior.schema.target.name, **encoding_of(posterior.encoder)}
    (folder / ENCODING_FILE).write_text(json.dumps(document, indent=1, ensure_ascii=False))


def encoding_of(encoder: Encoder) -> dict[str, Any]:
    """Return the encoding of ordinary rows: ``features`` with their ranges, and the D ``columns`` in order.

    A column is one of

    - ``{"feature", "mean", "std", "floor", "ceiling", "offset", "slope"}``: ``(x - mean) / std``, clipped to floor and
      ceiling (null: not), minus the offset, times the slope;
    - ``{"feature", "part", "wave"}``: the sine or cosine of the month, weekday (from Monday) or hour as an angle;
    - ``{"feature", "is"}``: 1 if the cell is this category; ``{"feature", "none_of"}``: 1 if it is none of these;
    - ``{"feature", "missing"}``: 1 if the cell is missing; all other columns of the feature are then 0;
    - ``{"numbers", "least", "most"}``: the sum of weight times ``(x - mean) / std``, clipped; a missing cell adds 0;
    - ``{"zero"}``: 0, because the row is like the training rows.

    Dates count in days since 1970-01-01 UTC.
    """
    columns: list[dict[str, Any]] = []
    for part in encoder.parts:
        name = {"feature": part.feature.name}
        if isinstance(part, OneHot):
            known = [category for category in part.codes if category is not None]
            columns += [name | {"is": category} for category in known]
            columns.append(name | {"none_of": known})
        elif isinstance(part, Scaled):
            scale = {"mean": part.scale.mean, "std": part.scale.std}
            limit = part.scale.limit
            lines = part._lines if isinstance(part, PiecewiseLinear) else np.array([[-limit], [limit], [0.0], [1.0]])
            for floor, ceiling, offset, slope in zip(*lines, strict=True):
                ends = {"floor": max(floor, -limit), "ceiling": min(ceiling, limit)}
                ends = {end: value if math.isfinite(value) else None for end, value in ends.items()}
                columns.append(name | scale | ends | {"offset": offset, "slope": slope})
            if isinstance(part, Calendar):
                columns += [name | {"part": each, "wave": wave} for each in part.parts for wave in ("sine", "cosine")]
        if part.names and part.feature.missing:
            columns.append(name | {"missing": True})
    if (whitening := encoder.whitening) is not None:
        for place, (least, most) in enumerate(zip(*whitening.training_range()[0].tolist(), strict=True)):
            numbers = {
                feature: {"mean": scale.mean, "std": scale.std, "weight": float(axis[place])}
                for (feature, scale), axis in zip(whitening.scales.items(), whitening.axes, strict=True)
            }
            columns.append({"numbers": numbers, "least": least, "most": most})
    columns += [{"zero": True}] * (encoder.width - len(columns))
    return {"features": [feature.describe() for feature in encoder.schema.features], "columns": columns}


@dataclass(frozen=True, slots=True)
class _Value:
    """What a node of a graph gives, by its name; arithmetic with it makes further nodes."""

    graph: _Graph
    name: str

    def __add__(self, other: Any) -> _Value:
        return self.graph("Add", self, other)

    def __sub__(self, other: Any) -> _Value:
        return self.graph("Sub", self, other)

    def __mul__(self, other: Any) -> _Value:
        return self.graph("Mul", self, other)

    def __truediv__(self, other: Any) -> _Value:
        return self.graph("Div", self, other)


class _Graph:
    """Nodes and constants of a graph that is being built."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self.number: Any = np.float32

    def constant(self, values: Any) -> _Value:
        """Return a constant: of the numbers that are computed with, or of whole numbers or truth values."""
        name, array = f"c{len(self.constants)}", np.asarray(values)
        array = array.astype(self.number) if array.dtype.kind == "f" else array
        self.constants[name] = numpy_helper.from_array(array, name)
        return _Value(self, name)

    def __call__(self, kind: str, *inputs: Any, name: str | None = None, **attributes: Any) -> _Value:
        """Return a node of one result; numbers and arrays among its inputs become constants."""
        values = [each if isinstance(each, _Value) else self.constant(each) for each in inputs]
        made = name or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, [value.name for value in values], [made], **attributes))
        return _Value(self, made)

    def sum(self, values: _Value, axis: int, *, kind: str = "ReduceSum", keep: int = 0) -> _Value:
        """Return the sum over an axis, or another reduction."""
        return self(kind, values, [axis], keepdims=keep)

    def part(self, values: _Value, start: int, stop: int, axis: int = 2) -> _Value:
        """Entries of an axis."""
        return self("Slice", values, [start], [stop], [axis])

    def expand(self, values: _Value, *axes: int) -> _Value:
        """Values with more axes."""
        return self("Unsqueeze", values, axes)

    def cast(self, values: _Value, number: Any) -> _Value:
        """Values as numbers of a kind, which all that follows computes with."""
        self.number = number
        return self("Cast", values, to={np.float32: 1, np.float64: 11}[number])

    def cdf(self, scores: _Value) -> _Value:
        """Return the standard normal distribution function; runtimes have it in single precision alone."""
        if self.number is np.float64:
            return self.cast(self.cdf(self.cast(scores, np.float32)), np.float64)
        return (self("Erf", scores * math.sqrt(0.5)) + 1.0) * 0.5

    def hypot(self, one: _Value, other: _Value) -> _Value:
        """Return the root of a sum of squares."""
        return self("Sqrt", one * one + other * other)


def _graph(posterior: Posterior, options: PredictOptions) -> Any:
    spec, likelihood = posterior.spec, posterior.likelihood
    if not isinstance(likelihood, GaussianMixtureLikelihood):
        raise OptionError("only numbers with Gaussian noise are exported, no classes and no counts")
    if spec.target.limits is not None and not spec.target.limits.are_none:
        raise OptionError("capped targets are not exported: train with --target-minimum=-inf --target-maximum=inf")
    g, width, levels = _Graph(), posterior.architecture.inputs, len(options.percentiles)
    outputs, members = _network(g, posterior, options.samples)
    means, noise, weights = _components(g, likelihood, outputs, members)
    scale = spec.target.scale
    means, noise = means * scale + spec.target.location, noise * scale  # [S, B, K]
    values, deviations = _moments(g, spec.target.transform, means, noise)
    shares = weights * (1.0 / options.samples)

    def total(each: _Value) -> _Value:
        return g.sum(g.sum(shares * each, 2), 0)  # [B]

    of_draw = g.sum(weights * values, 2)  # [S, B]
    mean = g.sum(of_draw, 0, kind="ReduceMean")
    apart = of_draw - mean
    epistemic = g("Sqrt", g.sum(apart * apart, 0, kind="ReduceMean"))
    apart = values - g.expand(of_draw, 2)
    aleatoric = g("Sqrt", total(deviations * deviations + apart * apart))
    centre = total(means)
    apart = means - g("Reshape", centre, [1, -1, 1])
    spread = g("Sqrt", total(apart * apart + noise * noise))
    wide: tuple[_Value, _Value, float] | None = None
    if (rule := spec.likelihood.wide) is not None:
        std = g.hypot(epistemic, aleatoric)
        wider = g("Min", spread * (aleatoric / g("Max", std, 1e-30)) * rule.widening, rule.most * scale)
        wider = g.hypot(spread, wider)
        at, deviation = _moments(g, spec.target.transform, centre, wider)
        moved = at - mean
        added = (deviation * deviation - std * std + moved * moved * (1.0 - rule.weight)) * rule.weight
        aleatoric = g("Sqrt", g("Max", aleatoric * aleatoric + added, 0.0))
        mean = mean + moved * rule.weight
        wide = (centre, wider, rule.weight)
    plan = PredictionPlan.of(options, spec.calibration, torch.device("cpu"))  # type: ignore[arg-type]  # of a number
    scores = plan.scores.numpy()
    quantiles = _inverse(g, spec.target.transform, _quantiles(g, means, noise, shares, wide, scores))
    if plan.spread is not None:
        nodes = g.part(quantiles, levels, len(scores), axis=1)
        middle = (len(scores) - levels) // 2
        nodes = nodes - g.part(nodes, middle, middle + 1, axis=1)
        nodes = nodes / g("Max", g.sum(g("Abs", nodes), 1, kind="ReduceMax", keep=1), 1e-30)
        raw, inside = (g.sum(g("MatMul", nodes, form) * nodes, 1) for form in plan.spread.forms[:2])
        ratio = g("Sqrt", inside / raw)
        epistemic, aleatoric = epistemic * ratio, aleatoric * ratio
    told = {
        "mean": mean,
        "std": g.hypot(epistemic, aleatoric),
        "epistemic_std": epistemic,
        "aleatoric_std": aleatoric,
        "percentiles": g.part(quantiles, 0, levels, axis=1),
    }
    shapes = {"rows": ["B", width], "percentiles": ["B", levels]}
    for name, value in told.items():
        g("Identity", value, name=name)
    described = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes.get(name, ["B"])) for name in ("rows", *told)
    ]
    graph = helper.make_graph(g.nodes, "murho", described[:1], described[1:], list(g.constants.values()))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9, producer_name="murho")


def _network(g: _Graph, posterior: Posterior, samples: int) -> tuple[_Value, Tensor]:
    """Return outputs of B rows under S draws, ``[S, B, P]``, and the member of each draw."""
    draws = posterior.draws.first(samples, posterior.seed)
    activations: dict[str, Callable[[_Value], _Value]] = {
        "relu": lambda x: g("Relu", x),
        "silu": lambda x: x * g("Sigmoid", x),
        "sigmoid": lambda x: g("Sigmoid", x),
    }
    *layers, last = (layer.transpose(1, 2) for layer in draws.layers)
    inputs = hidden = g("Pad", _Value(g, "rows"), [0, 0, 0, 1], 1.0)  # the 1 of biases, see `Draws`
    for layer in layers:
        hidden = activations[draws.activation](g("MatMul", hidden, layer))
    if not layers or not draws.skip:
        return g("MatMul", hidden, last), draws.members
    units = last.shape[1] - posterior.architecture.inputs - 1
    return g("MatMul", hidden, last[:, :units]) + g("MatMul", inputs, last[:, units:]), draws.members


def _components(
    g: _Graph, likelihood: GaussianMixtureLikelihood, outputs: _Value, members: Tensor
) -> tuple[_Value, _Value, _Value]:
    """Means, noise and weights of the Gaussians under each draw, broadcastable to ``[S, B, K]``, standardised."""
    count = likelihood.means
    means = g.part(outputs, 0, count)
    if isinstance(likelihood, MixtureNoise):
        noise = g("Softplus", g.part(outputs, count, 2 * count)) + NOISE_FLOOR
        return means, noise, g("Softmax", g.part(outputs, 2 * count, 3 * count), axis=2)
    one = g.constant([[[1.0]]])
    if isinstance(likelihood, HeteroscedasticNoise):
        return means, g("Softplus", g.part(outputs, 1, 2)) + NOISE_FLOOR, one
    assert isinstance(likelihood, GaussianNoise)  # noqa: S101 - the other ones have the same noise for all rows
    noise_of_draw = likelihood.noise(torch.zeros(len(members), 1, likelihood.outputs), members)
    return means, g("Expand", noise_of_draw.detach().reshape(-1, 1, 1), g("Shape", means)), one


def _moments(g: _Graph, transform: Any, means: _Value, noise: _Value) -> tuple[_Value, _Value]:
    """Mean and standard deviation of the target of Gaussians, see `model.distributions.target_transforms`."""
    if not isinstance(transform, Logarithm):
        return means, noise
    unit = math.exp(transform.top)  # in double precision: variances are small differences here
    means, noise = g.cast(means, np.float64), g.cast(noise, np.float64)
    means = means - transform.top
    start = g("Neg", means) / noise
    share = g.cdf(g("Neg", start))
    low = noise * g("Exp", start * start * -0.5) * (1.0 / math.sqrt(2.0 * math.pi))
    line = means + 1.0
    first = line * share + low
    second = (line * line + noise * noise) * share + (line * 2.0 - means) * low  # noise * start is -means
    found = []
    for power, moment in ((1.0, first), (2.0, second)):
        exponent = means * power + noise * noise * (0.5 * power * power)
        found.append(moment + g("Exp", g("Min", exponent, MOST_EXPONENT)) * g.cdf(start - noise * power))
    deviation = g("Sqrt", g("Max", found[1] - found[0] * found[0], 1e-12))
    told = found[0] * unit - transform.shift, deviation * unit
    return g.cast(told[0], np.float32), g.cast(told[1], np.float32)


def _inverse(g: _Graph, transform: Any, values: _Value) -> _Value:
    """Return the target of transformed values."""
    if not isinstance(transform, Logarithm):
        return values
    inside = g("Exp", g("Min", values, transform.top))
    return inside * (g("Max", values - transform.top, 0.0) + 1.0) - transform.shift


def _quantiles(
    g: _Graph, means: _Value, noise: _Value, shares: _Value, wide: tuple[_Value, _Value, float] | None, scores: Any
) -> _Value:
    """Values at normal scores of the mixtures, ``[B, L]``, by bisection on the smaller of both tails."""
    column = [-1, 1]
    reach = noise * FURTHEST
    ends = [
        g("Reshape", g.sum(g.sum(end, 2, kind=kind), 0, kind=kind), column)
        for end, kind in ((means - reach, "ReduceMin"), (means + reach, "ReduceMax"))
    ]
    if wide is not None:
        centre, wider = (g("Reshape", each, column) for each in wide[:2])
        reach = wider * FURTHEST
        ends = [g("Min", ends[0], centre - reach), g("Max", ends[1], centre + reach)]
    sign = g.constant(np.where(scores <= 0.0, 1.0, -1.0)[None])
    tail = torch.special.ndtr(torch.from_numpy(-np.abs(scores))).numpy()[None]
    upper = g.constant(scores[None] > 0.0)
    means, noise, shares = (g.expand(each, 3) for each in (means, noise, shares))
    low, high = (g("Add", end, np.zeros_like(scores)[None]) for end in ends)
    for _ in range(STEPS):
        middle = (low + high) * 0.5
        below = g.cdf((g.expand(middle, 0, 2) - means) / noise * sign)
        found = g.sum(g.sum(shares * below, 2), 0)
        if wide is not None:
            found = found * (1.0 - wide[2]) + g.cdf((middle - centre) / wider * sign) * wide[2]
        right = g("Xor", g("Less", found, tail), upper)
        low, high = g("Where", right, middle, low), g("Where", right, high, middle)
    return (low + high) * 0.5
