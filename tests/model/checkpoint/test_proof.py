"""The proof: a checkpoint that answers otherwise than when it was written is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from murho.model.bbb.network import Architecture
from murho.model.checkpoint.checkpoint import SEAL, read_stored, sealed, write_checkpoint
from murho.model.checkpoint.posterior import Posterior, check_proof, proof_of, typical_rows
from murho.model.checkpoint.spec import LikelihoodSpec, ModelSpec
from murho.model.distributions.transforms import Identity, Standardisation
from murho.model.encoding.encoder import Encoder
from murho.model.errors import CheckpointError
from murho.model.tables.schema import Feature, FeatureKind, Schema, Target

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def checkpoint(rent_checkpoints: Path, tmp_path: Path) -> Path:
    """A copy of a checkpoint, to be changed."""
    return Path(shutil.copytree(rent_checkpoints / "rent" / "1", tmp_path / "rent" / "1"))


def edit(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes `model.json` and seals it again: the hashes are good."""
    path = directory / "model.json"
    facts = json.loads(path.read_text())
    del facts[SEAL]
    change(facts)
    path.write_bytes(sealed(facts))


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_a_good_checkpoint_proves_itself_with_every_engine(checkpoint: Path, engine: str) -> None:
    stored = json.loads((checkpoint / "model.json").read_text())["proof"]
    assert len(stored["mean"]) == 3
    Posterior.load(checkpoint, engine=engine)


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [("target", "scale", 1e300), ("target", "location", 100.0), ("likelihood", "kind", "homoscedastic")],
)
def test_other_answers_are_refused(checkpoint: Path, part: str, name: str, value: object) -> None:
    edit(checkpoint, lambda facts: facts[part].update({name: value}))
    with pytest.raises(CheckpointError):
        Posterior.load(checkpoint)


def test_the_refusal_says_what_differs(checkpoint: Path) -> None:
    edit(checkpoint, lambda facts: facts["target"].update(location=100.0))
    with pytest.raises(CheckpointError, match=r"model\.json: proof: mean of row \d is .*, and was .*; restore"):
        Posterior.load(checkpoint)


def test_a_changed_encoding_is_noticed(checkpoint: Path) -> None:
    edit(checkpoint, lambda facts: facts["encoder"]["parts"][0]["scale"].update(mean=1.0, std=2.0))
    with pytest.raises(CheckpointError):
        Posterior.load(checkpoint)


def test_without_a_proof_it_is_refused(checkpoint: Path) -> None:
    edit(checkpoint, lambda facts: facts.pop("proof"))
    with pytest.raises(CheckpointError, match="proof: expected an object with mean, std"):
        Posterior.load(checkpoint)


def test_what_gives_no_finite_answer_is_not_written(tmp_path: Path, rent_checkpoints: Path) -> None:
    stored = read_stored(rent_checkpoints / "rent" / "1")
    spec, tensors = stored.spec, stored.tensors
    spec = replace(spec, target=replace(spec.target, scale=1e300))
    with pytest.raises(CheckpointError, match="aren't finite"):
        write_checkpoint(tmp_path, "rent", spec, tensors)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"std": None}, r"proof\.std: expected numbers, 3"),
        ({"mean": ["high"] * 3}, r"proof\.mean: expected lists of numbers"),
        ({"mean": [None] * 3}, r"proof\.mean: expected numbers, 3"),
        ({"percentiles": [[1.0], [1.0, 2.0, 3.0], [1.0]]}, r"proof\.percentiles: expected lists of numbers"),
        ({"percentiles": [1.0, 2.0, 3.0]}, r"proof\.percentiles: expected numbers, 3 x 3"),
        ({"more": 1}, r"proof: expected an object"),
    ],
)
def test_a_malformed_proof_is_named(checkpoint: Path, change: dict[str, Any], message: str) -> None:
    edit(checkpoint, lambda facts: facts["proof"].update(change))
    with pytest.raises(CheckpointError, match=message):
        Posterior.load(checkpoint)


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_draws_far_apart_with_little_noise_prove_themselves(tmp_path: Path, engine: str) -> None:
    schema = Schema((Feature("x", FeatureKind.NUMERIC, None, False, 0.0, 1.0, ()),), Target("y", None), {})
    encoder = Encoder.fit(schema, {"x": np.array([0.0, 0.5, 1.0])})
    spec = ModelSpec(
        architecture=Architecture(encoder.width, (), 1),
        likelihood=LikelihoodSpec("fixed", sigma=1e-6),
        target=Standardisation(Identity(), 0.0, 1.0),
        schema=schema,
        encoder=encoder,
    )
    tensors = {name: torch.full(shape, 3.0) for name, shape in spec.tensor_shapes().items()}
    Posterior.load(write_checkpoint(tmp_path, "far", spec, tensors), engine=engine)


def test_rows_are_typical_and_survive_the_file(rent: Posterior) -> None:
    rows = typical_rows(rent.schema)
    assert rent.schema.outside(rows) == []
    check_proof(rent, json.loads(json.dumps({name: answer.tolist() for name, answer in proof_of(rent).items()})))
