"""Tests of ``murho train --by COLUMN --engine ray``: the models of a run without Ray."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.model.commands.test_train_groups import TINY, stores
from tests.support import call_murho

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
@pytest.mark.usefixtures("local_ray")
def test_the_models_are_those_of_one_after_the_other(tmp_path: Path) -> None:
    found = {}
    for engine, root in (("local", tmp_path / "one"), ("ray", tmp_path / "many")):
        root.mkdir()
        asked = (stores(root / "sales.csv"), *TINY, "--engine", engine, "--json")
        printed = json.loads(call_murho("train", *asked, cwd=root).stdout)
        found[engine] = [{key: row[key] for key in row if key != "seconds"} for row in printed["groups"]]
        if engine == "ray":
            again = json.loads(call_murho("train", *asked, cwd=root).stdout)["groups"]
            assert {row["outcome"] for row in again} == {"kept", "left out"}
    assert found["ray"] == found["local"]
    for name in ("sales-north", "sales-Geneve-1bff4631"):
        one, many = (
            root / "checkpoints" / name / "1" / "model.safetensors" for root in (tmp_path / "one", tmp_path / "many")
        )
        assert one.read_bytes() == many.read_bytes()
