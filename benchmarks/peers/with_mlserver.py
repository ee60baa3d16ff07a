"""MLServer around a `Posterior`, with its adaptive batching: ``with_mlserver --port P --model DIR --workers N``.

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

from benchmarks.peers.posterior_rows import ANSWERED, canonical, load
from murho.model.predictive.prediction import PredictOptions

if TYPE_CHECKING:
    from mlserver.types import InferenceRequest

MOST_IN_A_BATCH, SECONDS_TO_WAIT, SAMPLES = 32, 0.001, 256


class PosteriorModel(MLModel):
    """A row a request, batched to one tensor a feature."""

    async def load(self) -> bool:
        """Load the checkpoint."""
        self.posterior = load(self.settings.parameters.uri)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """One pass for all rows of the payload."""
        columns = {tensor.name: [_plain(cell) for cell in tensor.data] for tensor in payload.inputs}
        found = self.posterior.predict(canonical(self.posterior.schema, columns), PredictOptions(samples=SAMPLES))
        values = {name: np.asarray(getattr(found, name)) for name in ANSWERED}
        matrices = {name: each if each.ndim > 1 else each[:, None] for name, each in values.items()}
        outputs = [NumpyCodec.encode_output(name, matrix) for name, matrix in matrices.items()]
        return InferenceResponse(model_name=self.name, outputs=outputs)


def _plain(cell: Any) -> Any:
    return cell.decode() if isinstance(cell, bytes) else cell


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


async def _serve(port: int, directory: str, workers: int) -> None:
    settings = Settings(
        host="127.0.0.1",
        http_port=port,
        grpc_port=_free_port(),
        metrics_port=_free_port(),
        parallel_workers=workers if workers > 1 else 0,  # a single one is faster in the server's own process
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
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    asyncio.run(_serve(given.port, given.model, given.workers))
