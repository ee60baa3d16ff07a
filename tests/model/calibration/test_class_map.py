"""The map of class probabilities: known distortions are undone, right probabilities stay, chance is not followed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from murho.model.calibration.class_map import ClassMap, Rows, fit_class_map, fit_scaling, fit_temperature
from murho.model.errors import CheckpointError


def _rows(count: int, classes: int, seed: int = 0, spread: float = 1.5) -> tuple[Tensor, Tensor]:
    """Right log-probabilities ``[n, C]``, and labels drawn from them, ``[n]``."""
    generator = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(count, classes, generator=generator, dtype=torch.float64)
    logits -= torch.linspace(0.0, 1.0, classes, dtype=torch.float64)
    logs = torch.log_softmax(logits, dim=1)
    return logs, torch.multinomial(logs.exp(), 1, generator=generator)[:, 0]


def _loss(fitted: ClassMap, logs: Tensor, labels: Tensor) -> float:
    return float(torch.nn.functional.nll_loss(fitted.log_probabilities(logs), labels))


def test_a_temperature_is_found() -> None:
    right, labels = _rows(2000, 5)
    fitted = fit_class_map(right * 2.5, labels)
    assert fitted.method == "temperature"
    assert fitted.weights[0] == pytest.approx(1.0 / 2.5, rel=0.05)
    torch.testing.assert_close(fitted.log_probabilities(right * 2.5).exp(), right.exp(), rtol=0.0, atol=0.03)


def test_beta_calibration_undoes_its_own_kind_of_distortion() -> None:
    right, labels = _rows(8000, 2, spread=2.0)
    # logit q = 0.5 log p_1 - 2 log p_0 + 1, undone numerically on a grid.
    grid = torch.linspace(-30.0, 30.0, 60_001, dtype=torch.float64)
    mapped = 0.5 * torch.nn.functional.logsigmoid(grid) - 2.0 * torch.nn.functional.logsigmoid(-grid) + 1.0
    logit = np.interp((right[:, 1] - right[:, 0]).numpy(), mapped.numpy(), grid.numpy())
    distorted = torch.nn.functional.logsigmoid(torch.from_numpy(np.stack([-logit, logit], axis=1)))
    fitted = fit_class_map(distorted, labels)
    assert fitted.method == "beta"
    best, before = _loss(ClassMap(), right, labels), _loss(ClassMap(), distorted, labels)
    assert _loss(fitted, distorted, labels) - best < 0.02 * (before - best)


@pytest.mark.parametrize("full", [False, True])
def test_matrix_scaling_undoes_its_own_kind_of_distortion(full: bool) -> None:
    right, labels = _rows(20_000, 3)
    matrix = torch.diag(torch.tensor([1.5, 0.8, 0.6], dtype=torch.float64))
    if full:
        matrix[0, 1] = matrix[1, 2] = -0.4
    offsets = torch.tensor([0.8, -0.8, 0.0], dtype=torch.float64)
    distorted = torch.log_softmax(torch.linalg.solve(matrix, (right - offsets).T).T, dim=1)
    fitted = fit_class_map(distorted, labels)
    assert fitted.method == "matrix"
    best, before = _loss(ClassMap(), right, labels), _loss(ClassMap(), distorted, labels)
    assert _loss(fitted, distorted, labels) - best < 0.03 * (before - best)


@pytest.mark.parametrize(
    ("count", "classes"),
    [
        (30, 2),
        (100, 4),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((30, 4), (100, 2), (1000, 2), (1000, 4))),
    ],
)
def test_right_probabilities_are_left_about_alone(classes: int, count: int) -> None:
    """Mean loss over ten sets of held-out rows, on rows that the map has not seen."""
    new, truth = _rows(4000, classes, seed=99)
    worse = []
    for seed in range(10):
        logs, labels = _rows(count, classes, seed)
        worse.append(_loss(fit_class_map(logs, labels), new, truth) - _loss(ClassMap(), new, truth))
    assert np.mean(worse) < 0.5 / count
    assert max(worse) < 3.0 * classes / count


def test_few_rows_change_nothing() -> None:
    logs, labels = _rows(19, 3)
    assert fit_class_map(logs * 3.0, labels).method == "none"
    assert fit_class_map(logs[:0], labels[:0]).method == "none"
    copies = np.repeat(np.arange(15), 10)
    logs, labels = _rows(150, 3)
    assert fit_class_map(logs * 3.0, labels, units=copies).method == "none"


def test_none_changes_nothing_but_the_norm() -> None:
    logits = torch.randn(7, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(ClassMap().log_probabilities(logits), torch.log_softmax(logits, dim=1))


@pytest.mark.parametrize(("factor", "method"), [(3.0, "temperature"), (1.0, "matrix")])
def test_the_order_of_the_classes_does_not_matter(factor: float, method: str) -> None:
    right, labels = _rows(3000, 4)
    logs = right * factor + (torch.tensor([1.5, 0.0, -1.0, 0.0]) if method == "matrix" else 0.0)
    order = torch.tensor([2, 0, 3, 1])
    place = torch.argsort(order)
    fitted, permuted = fit_class_map(logs, labels), fit_class_map(logs[:, order], place[labels])
    assert fitted.method == permuted.method == method
    torch.testing.assert_close(
        fitted.log_probabilities(logs)[:, order], permuted.log_probabilities(logs[:, order]), rtol=0.0, atol=1e-4
    )


def test_swapping_two_classes_does_not_matter() -> None:
    right, labels = _rows(3000, 2)
    logs = right + torch.tensor([1.0, -0.5])
    fitted, swapped = fit_class_map(logs, labels), fit_class_map(logs.flip(1), 1 - labels)
    assert fitted.method == swapped.method == "beta"
    torch.testing.assert_close(
        fitted.log_probabilities(logs).flip(1), swapped.log_probabilities(logs.flip(1)), rtol=0.0, atol=1e-4
    )


def test_beta_calibration_never_falls() -> None:
    """Labels against the probabilities: a slope below 0 becomes 0."""
    right, labels = _rows(500, 2)
    rows = Rows(right, 1 - labels, torch.ones(500, dtype=torch.float64))
    weights, _ = fit_scaling(rows, fit_temperature(rows), full=False)
    assert bool((weights >= 0.0).all())


@pytest.mark.parametrize("classes", [2, 6])
def test_classes_of_one_row_or_none_and_sure_mistakes_are_finite(classes: int) -> None:
    logs, labels = _rows(60, classes)
    labels = torch.where(labels == classes - 1, 0, labels)
    labels[0] = classes - 1
    logs[0] = torch.log_softmax(torch.tensor([0.0] * (classes - 1) + [-torch.inf], dtype=torch.float64), dim=0)
    assert bool(torch.isfinite(fit_class_map(logs, labels).log_probabilities(logs)).all())
    only = fit_class_map(logs, torch.zeros(60, dtype=torch.int64))
    assert bool(torch.isfinite(only.log_probabilities(logs)).all())
    every = ClassMap("temperature", (40.0,), (), 100).log_probabilities(logs)
    assert bool((every.exp() > 0.0).all())
    torch.testing.assert_close(every.exp().sum(dim=1), torch.ones(60, dtype=torch.float64))


def test_separable_rows_do_not_make_probabilities_certain() -> None:
    logs = torch.log_softmax(torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64).repeat(50, 1), dim=1)
    fitted = fit_class_map(logs, torch.tensor([0, 1]).repeat(50))
    surest = float(fitted.log_probabilities(logs).exp().max())
    assert 0.95 < surest < 0.9995


def test_a_weight_is_a_number_of_copies_of_a_unit() -> None:
    right, labels = _rows(300, 3)
    rows = Rows(2.0 * right, labels, torch.full((300,), 2.0, dtype=torch.float64))
    twice = Rows(2.0 * right.repeat(2, 1), labels.repeat(2), torch.ones(600, dtype=torch.float64))
    temperature = fit_temperature(rows)
    assert temperature == pytest.approx(fit_temperature(twice))
    both = (fit_scaling(some, temperature, full=True) for some in (rows, twice))
    for ours, theirs in zip(*both, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_rows_of_weight_0_do_not_count() -> None:
    right, labels = _rows(400, 3)
    weights = torch.ones(400)
    weights[200:] = 0.0
    weighted = fit_class_map(2.0 * right, labels, weights=weights)
    assert weighted == fit_class_map(2.0 * right[:200], labels[:200])


def test_the_derivatives_are_at_zero_where_the_fit_ends() -> None:
    """The least penalised loss, checked by automatic derivatives of the published objective."""
    right, labels = _rows(400, 3)
    rows = Rows(1.4 * right + torch.tensor([0.5, 0.0, -0.5]), labels, torch.ones(400, dtype=torch.float64))
    temperature = fit_temperature(rows)
    inverse = 1.0 / temperature
    matrix, offsets = fit_scaling(rows, temperature, full=True)
    changes = (matrix / inverse - torch.eye(3)).requires_grad_()
    shift = offsets.clone().requires_grad_()
    loss = rows.loss(rows.logs * inverse @ (torch.eye(3) + changes).T + shift)
    diagonal = torch.diag(changes)
    others = changes.square().sum() - diagonal.square().sum()
    objective = loss + 5.0 * (3.0 * diagonal.square().sum() + 3.0 * shift.square().sum() + 6.0 * others)
    for slope in torch.autograd.grad(objective, [changes, shift]):
        assert float(slope.abs().max()) < 1e-2


@pytest.mark.parametrize(
    "fitted",
    [
        ClassMap("none", (), (), 12),
        ClassMap("temperature", (0.7,), (), 100),
        ClassMap("beta", (0.0, 1.2), (0.1, -0.1), 100),
        ClassMap("matrix", (1.0, 0.9, 1.1), (0.1, 0.0, -0.1), 500),
        ClassMap("matrix", (1.0, 0.0, 0.1, 0.0, 0.9, 0.0, 0.0, 0.0, 1.1), (0.1, 0.0, -0.1), 500),
    ],
)
def test_json(fitted: ClassMap) -> None:
    assert ClassMap.from_json(fitted.to_json()) == fitted


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "isotonic"}, r"map\.method: expected 'none',"),
        ({"weights": [-1.0]}, r"map\.weights: expected the weights of the method temperature"),
        ({"weights": [1.0, 1.0]}, r"map\.weights"),
        ({"method": "matrix", "weights": [1.0], "intercept": [0.0, 0.0]}, r"map\.weights"),
        ({"intercept": [0.0]}, r"map\.weights"),
        ({"rows": -1}, r"map\.rows: expected greater than or equal to 0"),
        ({"other": 1}, r"map\.other: the field is not known"),
        ({"weights": ["a"]}, r"map\.weights\[0\]: expected a valid number"),
    ],
)
def test_damaged_json_is_refused(changes: dict[str, object], message: str) -> None:
    data = ClassMap("temperature", (0.7,), (), 100).to_json() | changes
    with pytest.raises(CheckpointError, match=message):
        ClassMap.from_json(data, "map")
