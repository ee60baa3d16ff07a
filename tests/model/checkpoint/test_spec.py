"""The specification: read, checked with the path of a wrong field, and written again unchanged."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest

from murho.model.checkpoint.checkpoint import FILE_FIELDS, read_stored
from murho.model.checkpoint.posterior import Posterior
from murho.model.checkpoint.spec import ModelSpec
from murho.model.errors import CheckpointError
from murho.model.training.pruning import prune
from tests.model.conftest import make_table, train_quickly

FACTS: dict[str, Any] = {
    "created": "2026-01-02T03:04:05+00:00",
    "murho": "0.1.0",
    "architecture": {
        "inputs": 2,
        "hidden": [8],
        "outputs": 1,
        "activation": "relu",
        "members": 2,
        "skip": False,
        "unread": [[], [0]],
        "removed": "",
    },
    "prior": {"sigma": 0.5, "kind": "gaussian"},
    "likelihood": {
        "kind": "homoscedastic",
        "sigma": None,
        "components": None,
        "wide": {"weight": 0.01, "widening": 2.0, "most": 1.0},
        "shares": None,
    },
    "target": {"transform": {"kind": "none"}, "location": 900.0, "scale": 200.0, "limits": None},
    "schema": {
        "features": [
            {
                "name": "size",
                "kind": "numeric",
                "unit": "m2",
                "missing": False,
                "minimum": 20.0,
                "maximum": 120.0,
                "categories": [],
                "imputed": False,
                "reading": None,
                "ahead": 0.0,
                "missing_words": [],
            }
        ],
        "target": {"name": "rent", "unit": "EUR", "classes": None, "reading": None, "missing_words": []},
        "left_out": {},
    },
    "encoder": {
        "encoding": "standard",
        "parts": [
            {
                "feature": "size",
                "scale": {"mean": 70.0, "std": 30.0, "limit": None},
                "bounded": False,
                "kind": "standard",
            }
        ],
        "whitening": None,
        "distribution": None,
        "continuations": {},
        "textbook": False,
    },
    "calibration": {
        "nominal": [-2.0, -1.0, 0.0, 1.0, 2.0],
        "observed": [-2.5, -1.1, 0.0, 1.1, 2.5],
        "rows": 60,
        "method": "split-conformal",
    },
    "totals": None,
    "default_seed": 7,
    "training": {"rows": 200, "temperature": 0.3, "options": {"hidden": [8]}, "weather": "fine"},
    "metrics": {"n": 60, "rmse": 40.0},
    "records": {},
}
"""A checkpoint of one number. ``weather`` is a fact of training that this Murho does not know."""


def _with(*path: Any, value: object) -> dict[str, Any]:
    """`FACTS` with one field changed."""
    facts = copy.deepcopy(FACTS)
    part = facts
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value
    return facts


def test_a_specification_tells_its_tensors_and_the_rows_that_were_learned() -> None:
    spec = ModelSpec.from_json(FACTS)
    assert (spec.encoder.width, spec.rows_learned, spec.temperature) == (2, 200, 0.3)
    sizes = {"layers.0.weight": (2, 2, 8), "layers.0.bias": (2, 1, 8), "layers.1.weight": (2, 8, 1)}
    sizes |= {"layers.1.bias": (2, 1, 1)}
    shapes = {f"{name}.{kind}": size for name, size in sizes.items() for kind in ("mu", "rho")}
    assert spec.tensor_shapes() == shapes | {"noise.rho": (2, 1)}
    assert ModelSpec.from_json(_with("records", "update", value={"total_rows": 250})).rows_learned == 250
    bare = ModelSpec.from_json(_with("training", value={}))
    assert (bare.rows_learned, bare.temperature) == (0, 1.0)


KEPT = [
    _with("target", "transform", value={"kind": "log", "shift": 0.5, "top": 7.0}),
    _with("prior", value={"kind": "empirical-bayes", "alpha": 2.01, "beta": 0.101}),
    _with(
        "encoder",
        "continuations",
        value={
            "size": {"share": 0.5, "tested": [10.0, 0.0], "slopes": [1.0, 2.0], "bends": [0.0, 0.5], "stops": [0.0] * 2}
        },
    ),
    _with("prior", value=None),
    _with("target", "limits", value={"minimum": None, "maximum": 2000.0}),
    _with("records", "update", value={"total_rows": 250, "before": {"nll": 1.0}}),
]


@pytest.mark.parametrize("facts", KEPT)
def test_what_was_read_is_written_as_it_was(facts: dict[str, Any]) -> None:
    before = copy.deepcopy(facts)
    written = ModelSpec.from_json(facts).to_json()
    assert written == facts == before
    assert list(written) == list(facts)


@pytest.mark.parametrize(
    "changes",
    [
        {"members": 3, "noise": "fixed", "noise_sigma": 40.0, "prior": "scale-mixture"},
        {"noise": "mixture", "transform": "log", "encoding": "piecewise", "whiten": "yes", "prior": "gaussian"},
    ],
)
def test_a_fit_is_read_and_written_key_for_key(tmp_path: Path, changes: dict[str, Any]) -> None:
    trained = train_quickly(make_table(), **changes, epochs=2)
    directory = trained.posterior.save(tmp_path, "rent")
    stored = json.loads((directory / "model.json").read_text())
    spec = read_stored(directory).spec
    written = orjson.dumps(spec.to_json(), option=orjson.OPT_SERIALIZE_NUMPY)
    assert written == orjson.dumps({key: value for key, value in stored.items() if key not in FILE_FIELDS})


def test_a_file_that_does_not_say_it_all_is_refused() -> None:
    for name in FACTS:
        with pytest.raises(CheckpointError, match=f"^{name}: the field is missing"):
            ModelSpec.from_json({key: value for key, value in FACTS.items() if key != name})


def test_the_next_version_keeps_what_it_does_not_know(rent_checkpoints: Path) -> None:
    revision = Posterior.load(rent_checkpoints / "rent" / "1")
    unknown = {"estimator": {"columns": ["a"], "named": True}}
    spec = replace(revision.spec, training={**revision.spec.training, "mood": 1}, records=unknown)
    pruned = prune(Posterior(spec, revision.tensors), 0.5).posterior.spec
    assert pruned.training["mood"] == 1
    assert {name: pruned.records[name] for name in unknown} == unknown
    assert pruned.murho is not None


SCALE_MIXTURE = {"kind": "scale-mixture", "pi": 1.0, "sigma1": 1.5, "sigma2": 0.1}


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (_with("architecture", "inputs", value=True), "architecture.inputs: expected a valid integer, found true"),
        (_with("architecture", "inputs", value=3), "architecture.inputs: expected 2, the number of encoded features"),
        (_with("architecture", "outputs", value=2), "architecture.outputs: expected 1, the number of outputs of homo"),
        (_with("prior", value=SCALE_MIXTURE), "prior.pi: expected less"),
        (_with("likelihood", "kind", value="fixed"), "likelihood: fixed noise needs a positive standard deviation"),
        (_with("likelihood", "shares", value={"values": [0.5, 0.6], "weight": 0.1}), "likelihood.shares.values: "),
        (_with("target", "limits", value={"minimum": 2.0, "maximum": 1.0}), "target.limits: the target's minimum"),
        (_with("encoder", "parts", 0, "feature", value="area"), "encoder.parts[0].feature: expected an object"),
        (_with("encoder", "parts", 0, value={"feature": "size", "kind": "unread"}), "encoder.parts: expected at least"),
        (_with("calibration", "method", value="isotonic"), "calibration: "),
        (_with("calibration", "observed", value=[2.0, 1.0]), "calibration.observed: expected rising"),
        (_with("calibration", "nominal", value=[1.0, 2.0, 3.0, 4.0, 5.0]), "calibration.nominal: "),
        (_with("training", "rows", value=-1), "training.rows: expected a whole number from 0"),
        (_with("training", "temperature", value=None), "training.temperature: expected a number"),
        (_with("records", "update", value={"total_rows": "3"}), "records.update.total_rows: expected a whole number"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(facts: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        ModelSpec.from_json(facts)
    assert str(caught.value).startswith(message)


def test_the_json_schema_describes_the_file() -> None:
    schema = ModelSpec.json_schema()
    jsonschema.Draft202012Validator(schema).validate(FACTS)
    assert set(schema["properties"]) == set(schema["required"]) == set(FACTS)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(_with("prior", "kind", value="horseshoe"), schema)
