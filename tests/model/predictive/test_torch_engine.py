"""The reference engine keeps the contract of engines."""

from __future__ import annotations

import pytest

from murho.model.predictive.torch_engine import TorchEngine
from tests.model.predictive.engine_contract import EngineContract, MakeEngine


class TestTorchEngine(EngineContract):
    @pytest.fixture
    def make(self) -> MakeEngine:
        return TorchEngine
