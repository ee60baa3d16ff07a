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
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from murho.model.bbb.likelihood import NOISE_FLOOR
from murho.model.bbb.numbers import (
    GaussianMixtureLikelihood,
    GaussianNoise,
    HeteroscedasticNoise,
    MixtureNoise,
)
from murho.model.distributions.transforms import Logarithm
from murho.model.encoding.transforms import Calendar, OneHot, PiecewiseLinear, Scaled
from murho.model.errors import OptionError
from murho.model.predictive.plans import PredictionPlan
from murho.model.predictive.prediction import PredictOptions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

    from murho.model.checkpoint.posterior import Posterior
    from murho.model.encoding.encoder import Encoder

__all__ = ["ENCODING_FILE", "GRAPH_FILE", "encoding_of", "export"]

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
    import onnx

    options = PredictOptions(samples, tuple(map(float, percentiles)))
    model = _graph(posterior, options)
    onnx.checker.check_model(model, full_check=True)
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / GRAPH_FILE)
    facts = {"samples": samples, "percentiles": list(options.percentiles), "seed": posterior.seed}
    document = facts | {"target": posterior.schema.target.name, **encoding_of(posterior.encoder)}
    (folder / ENCODING_FILE).write_text(json.dumps(document, indent=1, ensure_ascii=False))


def encoding_of(encoder: Encoder) -> dict[str, Any]:
    """The encoding of rows like the training rows: ``features`` with their ranges, and the D ``columns`` in order.

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


class _Graph:
    """Nodes and constants of a graph that is being built; values are known by their names."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self.number: Any = np.float32

    def constant(self, values: Any, kind: Any = None) -> str:
        """A constant, by default of the numbers that are computed with."""
        from onnx import numpy_helper

        array = np.asarray(values.double().numpy() if isinstance(values, torch.Tensor) else values)
        array = array.astype(kind or self.number)
        name = f"c{len(self.constants)}"
        self.constants[name] = numpy_helper.from_array(array, name)
        return name

    def __call__(self, kind: str, *inputs: Any, name: str | None = None, **attributes: Any) -> str:
        """A node of one result; numbers and arrays among its inputs become constants."""
        from onnx import helper

        names = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        made = name or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, names, [made], **attributes))
        return made

    def sum(self, values: str, axis: int, *, kind: str = "ReduceSum", keep: int = 0) -> str:
        """The sum over an axis, or another reduction."""
        return self(kind, values, self.constant([axis], np.int64), keepdims=keep)

    def part(self, values: str, start: int, stop: int, axis: int = 2) -> str:
        """Entries of an axis."""
        places = (self.constant([each], np.int64) for each in (start, stop, axis))
        return self("Slice", values, *places)

    def square(self, values: str) -> str:
        """Squares."""
        return self("Mul", values, values)

    def cast(self, values: str, number: Any) -> str:
        """Values as numbers of a kind, which all that follows computes with."""
        self.number = number
        return self("Cast", values, to={np.float32: 1, np.float64: 11}[number])

    def cdf(self, scores: str) -> str:
        """The standard normal distribution function; runtimes have it in single precision alone."""
        if self.number is np.float64:
            return self.cast(self.cdf(self.cast(scores, np.float32)), np.float64)
        return self("Mul", self("Add", self("Erf", self("Mul", scores, math.sqrt(0.5))), 1.0), 0.5)

    def hypot(self, one: str, other: str) -> str:
        """The root of a sum of squares."""
        return self("Sqrt", self("Add", self.square(one), self.square(other)))


def _graph(posterior: Posterior, options: PredictOptions) -> Any:
    from onnx import TensorProto, helper

    spec, likelihood = posterior.spec, posterior.likelihood
    if not isinstance(likelihood, GaussianMixtureLikelihood):
        raise OptionError("only numbers with Gaussian noise are exported, no classes and no counts")
    if spec.target.limits is not None and not spec.target.limits.are_none:
        raise OptionError("capped targets are not exported: train with --target-minimum=-inf --target-maximum=inf")
    g, width, levels = _Graph(), posterior.architecture.inputs, len(options.percentiles)
    outputs, members = _network(g, posterior, options.samples)
    means, noise, weights = _components(g, likelihood, outputs, members)
    scale, location = spec.target.scale, spec.target.location
    means, noise = g("Add", g("Mul", means, scale), location), g("Mul", noise, scale)  # [S, B, K]
    values, deviations = _moments(g, spec.target.transform, means, noise)
    shares = g("Mul", weights, 1.0 / options.samples)

    def total(each: str) -> str:
        return g.sum(g.sum(g("Mul", shares, each), 2), 0)  # [B]

    of_draw = g.sum(g("Mul", weights, values), 2)  # [S, B]
    mean = g.sum(of_draw, 0, kind="ReduceMean")
    epistemic = g("Sqrt", g.sum(g.square(g("Sub", of_draw, mean)), 0, kind="ReduceMean"))
    within = g(
        "Add", g.square(deviations), g.square(g("Sub", values, g("Unsqueeze", of_draw, g.constant([2], np.int64))))
    )
    aleatoric = g("Sqrt", total(within))
    centre = total(means)
    apart = g("Sub", means, g("Reshape", centre, g.constant([1, -1, 1], np.int64)))
    spread = g("Sqrt", total(g("Add", g.square(apart), g.square(noise))))
    wide: tuple[str, str, float] | None = None
    if spec.likelihood.wide is not None:
        rule = spec.likelihood.wide
        std = g.hypot(epistemic, aleatoric)
        wider = g("Min", g("Mul", g("Mul", spread, g("Div", aleatoric, g("Max", std, 1e-30))), rule.widening), scale)
        wider = g.hypot(spread, wider)
        at, deviation = _moments(g, spec.target.transform, centre, wider)
        moved = g("Sub", at, mean)
        added = g("Sub", g.square(deviation), g.square(std))
        added = g("Mul", g("Add", added, g("Mul", g.square(moved), 1.0 - rule.weight)), rule.weight)
        aleatoric = g("Sqrt", g("Max", g("Add", g.square(aleatoric), added), 0.0))
        mean = g("Add", mean, g("Mul", moved, rule.weight))
        wide = (centre, wider, rule.weight)
    plan = PredictionPlan.of(options, spec.calibration, torch.device("cpu"))  # type: ignore[arg-type]  # of a number
    scores = plan.scores.numpy()
    quantiles = _inverse(g, spec.target.transform, _quantiles(g, means, noise, shares, wide, scores))
    if plan.spread is not None:
        nodes = g.part(quantiles, levels, len(scores), axis=1)
        middle = g.part(nodes, (len(scores) - levels) // 2, (len(scores) - levels) // 2 + 1, axis=1)
        nodes = g("Sub", nodes, middle)
        nodes = g("Div", nodes, g("Max", g.sum(g("Abs", nodes), 1, kind="ReduceMax", keep=1), 1e-30))
        raw, inside = (g.sum(g("Mul", g("MatMul", nodes, form), nodes), 1) for form in plan.spread.forms[:2])
        ratio = g("Sqrt", g("Div", inside, raw))
        epistemic, aleatoric = g("Mul", epistemic, ratio), g("Mul", aleatoric, ratio)
    told = {
        "mean": mean,
        "std": g.hypot(epistemic, aleatoric),
        "epistemic_std": epistemic,
        "aleatoric_std": aleatoric,
        "percentiles": g.part(quantiles, 0, levels, axis=1),
    }
    for name, value in told.items():
        g("Identity", value, name=name)
    shapes = {name: ["B", levels] if name == "percentiles" else ["B"] for name in told}
    graph = helper.make_graph(
        g.nodes,
        "murho",
        [helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["B", width])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()],
        list(g.constants.values()),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9, producer_name="murho")


def _network(g: _Graph, posterior: Posterior, samples: int) -> tuple[str, Tensor]:
    """Outputs of B rows under S draws, ``[S, B, P]``, and the member of each draw."""
    draws = posterior.draws.first(samples, posterior.seed)
    activations = {"relu": lambda x: g("Relu", x), "sigmoid": lambda x: g("Sigmoid", x)}
    activations["silu"] = lambda x: g("Mul", x, g("Sigmoid", x))
    hidden, last = "rows", len(draws.weights) - 1
    for place, (weight, bias) in enumerate(zip(draws.weights, draws.biases, strict=True)):
        units = weight.shape[1] - (posterior.architecture.inputs if draws.skip and 0 < place == last else 0)
        following = g("Add", g("MatMul", hidden, weight[:, :units]), bias)
        if units < weight.shape[1]:
            following = g("Add", following, g("MatMul", "rows", weight[:, units:]))
        hidden = following if place == last else activations[draws.activation](following)
    return hidden, draws.members


def _components(
    g: _Graph, likelihood: GaussianMixtureLikelihood, outputs: str, members: Tensor
) -> tuple[str, str, str]:
    """Means, noise and weights of the Gaussians under each draw, broadcastable to ``[S, B, K]``, standardised."""
    count = likelihood.means
    means = g.part(outputs, 0, count)
    if isinstance(likelihood, MixtureNoise):
        noise = g("Add", g("Softplus", g.part(outputs, count, 2 * count)), NOISE_FLOOR)
        return means, noise, g("Softmax", g.part(outputs, 2 * count, 3 * count), axis=2)
    if isinstance(likelihood, HeteroscedasticNoise):
        return means, g("Add", g("Softplus", g.part(outputs, 1, 2)), NOISE_FLOOR), g.constant([[[1.0]]])
    assert isinstance(likelihood, GaussianNoise)  # noqa: S101 - the other ones have the same noise for all rows
    noise_of_draw = likelihood.noise(torch.zeros(len(members), 1, likelihood.outputs), members)
    return (
        means,
        g("Expand", g.constant(noise_of_draw.detach().reshape(-1, 1, 1)), g("Shape", means)),
        g.constant([[[1.0]]]),
    )


def _moments(g: _Graph, transform: Any, means: str, noise: str) -> tuple[str, str]:
    """Mean and standard deviation of the target of Gaussians, see `model.distributions.transforms`."""
    if not isinstance(transform, Logarithm):
        return means, noise
    unit = math.exp(transform.top)  # in double precision: variances are small differences here
    means, noise = g.cast(means, np.float64), g.cast(noise, np.float64)
    means = g("Sub", means, transform.top)
    start = g("Div", g("Neg", means), noise)
    share = g.cdf(g("Neg", start))
    low = g("Mul", noise, g("Mul", g("Exp", g("Mul", g.square(start), -0.5)), 1.0 / math.sqrt(2.0 * math.pi)))
    line = g("Add", means, 1.0)
    first = g("Add", g("Mul", line, share), low)
    second = g("Mul", g("Add", g.square(line), g.square(noise)), share)
    second = g("Add", second, g("Mul", g("Sub", g("Mul", line, 2.0), means), low))  # noise * start is -means
    found = []
    for power, moment in ((1.0, first), (2.0, second)):
        excess = g("Sub", g("Mul", noise, power), start)
        exponent = g("Add", g("Mul", means, power), g("Mul", g.square(noise), 0.5 * power * power))
        below = g("Mul", g("Exp", g("Min", exponent, MOST_EXPONENT)), g.cdf(g("Neg", excess)))
        found.append(g("Add", moment, below))
    deviation = g("Sqrt", g("Max", g("Sub", found[1], g.square(found[0])), 1e-12))
    told = g("Sub", g("Mul", found[0], unit), transform.shift), g("Mul", deviation, unit)
    return g.cast(told[0], np.float32), g.cast(told[1], np.float32)


def _inverse(g: _Graph, transform: Any, values: str) -> str:
    """The target of transformed values."""
    if not isinstance(transform, Logarithm):
        return values
    inside = g("Exp", g("Min", values, transform.top))
    beyond = g("Add", g("Max", g("Sub", values, transform.top), 0.0), 1.0)
    return g("Sub", g("Mul", inside, beyond), transform.shift)


def _quantiles(g: _Graph, means: str, noise: str, shares: str, wide: tuple[str, str, float] | None, scores: Any) -> str:
    """Values at normal scores of the mixtures, ``[B, L]``, by bisection on the smaller of both tails."""
    column = g.constant([-1, 1], np.int64)
    ends = [
        g("Reshape", g.sum(g.sum(g(step, means, g("Mul", noise, FURTHEST)), 2, kind=kind), 0, kind=kind), column)
        for step, kind in (("Sub", "ReduceMin"), ("Add", "ReduceMax"))
    ]
    if wide is not None:
        centre, wider = (g("Reshape", each, column) for each in wide[:2])
        reach = g("Mul", wider, FURTHEST)
        ends = [g("Min", ends[0], g("Sub", centre, reach)), g("Max", ends[1], g("Add", centre, reach))]
    sign = g.constant(np.where(scores <= 0.0, 1.0, -1.0)[None])
    tail = torch.special.ndtr(torch.from_numpy(-np.abs(scores))).numpy()[None]
    upper = g.constant(scores[None] > 0.0, np.bool_)
    means, noise, shares = (g("Unsqueeze", each, g.constant([3], np.int64)) for each in (means, noise, shares))
    low, high = (g("Add", end, np.zeros_like(scores)[None]) for end in ends)
    for _ in range(STEPS):
        middle = g("Mul", g("Add", low, high), 0.5)
        deviates = g("Div", g("Sub", g("Unsqueeze", middle, g.constant([0, 2], np.int64)), means), noise)
        found = g.sum(g.sum(g("Mul", shares, g.cdf(g("Mul", deviates, sign))), 2), 0)
        if wide is not None:
            of_wide = g.cdf(g("Mul", g("Div", g("Sub", middle, centre), wider), sign))
            found = g("Add", g("Mul", found, 1.0 - wide[2]), g("Mul", of_wide, wide[2]))
        right = g("Xor", g("Less", found, tail), upper)
        low, high = g("Where", right, middle, low), g("Where", right, high, middle)
    return g("Mul", g("Add", low, high), 0.5)
