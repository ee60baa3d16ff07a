"""MLServer around a `Posterior`, with MLServer's adaptive batching: ``with_mlserver.py --port P --model DIR``.

Requests are those of the Open Inference Protocol, one tensor a feature.
"""
# mypy: disable-error-code="import-not-found,import-untyped,misc"

from __future__ import annotations

import argparse
import asyncio
import socket
from typing import TYPE_CHECKING, Any

import numpy as np
from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse

from benchmarks.service_parts.posterior_rows import canonical, load
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema import FeatureKind

if TYPE_CHECKING:
    from mlserver.types import InferenceRequest

__all__ = ["PosteriorModel"]

MOST_IN_A_BATCH = 32
SECONDS_TO_WAIT = 0.001
SAMPLES = 256


class PosteriorModel(MLModel):
    """A row a request, batched to one tensor a feature."""

    async def load(self) -> bool:
        """Loads the checkpoint."""
        self.posterior = load(self.settings.parameters.uri)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """One pass for all rows of the payload."""
        columns = {}
        for tensor, feature in zip(payload.inputs, self.posterior.schema.features, strict=True):
            text = feature.kind in (FeatureKind.CATEGORICAL, FeatureKind.DATE)
            cells = [_text(cell) for cell in tensor.data] if text else list(tensor.data)
            columns[tensor.name] = cells
        prediction = self.posterior.predict(canonical(self.posterior.schema, columns), PredictOptions(samples=SAMPLES))
        names = ("mean", "std", "epistemic_std", "aleatoric_std", "percentiles")
        outputs = [NumpyCodec.encode_output(name, _matrix(getattr(prediction, name))) for name in names]
        return InferenceResponse(model_name=self.name, outputs=outputs)


def _text(cell: Any) -> str:
    return cell.decode() if isinstance(cell, bytes) else str(cell)


def _matrix(values: Any) -> Any:
    array = np.asarray(values)
    return array if array.ndim > 1 else array[:, None]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


async def _serve(port: int, directory: str) -> None:
    settings = Settings(
        host="127.0.0.1",
        http_port=port,
        grpc_port=_free_port(),
        metrics_port=_free_port(),
        parallel_workers=0,  # in the server's own process: faster here, because nothing is copied to a worker
        debug=False,
        load_models_at_startup=False,
        use_structured_logging=False,
    )
    model = ModelSettings(
        name="cars",
        implementation=PosteriorModel,
        parameters={"uri": directory},
        max_batch_size=MOST_IN_A_BATCH,
        max_batch_time=SECONDS_TO_WAIT,
    )
    await MLServer(settings).start([model])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", required=True)
    given = parser.parse_args()
    asyncio.run(_serve(given.port, given.model))
