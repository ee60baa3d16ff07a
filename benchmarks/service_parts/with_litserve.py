"""LitServe around a `Posterior`, with LitServe's own batching: ``with_litserve.py --port P --model DIR``.

Annotations are evaluated here: LitServe makes its route from that of `decode_request`.
"""
# mypy: disable-error-code="import-not-found,import-untyped,misc"

import argparse
from typing import Any

import litserve

from benchmarks.service_parts.posterior_rows import load, predict_rows, row_of

__all__: list[str] = []

MOST_IN_A_BATCH = 32
SECONDS_TO_WAIT = 0.001
"""Longer waiting only lowers what 32 connections get; without any, LitServe takes one request after the other."""


class PosteriorAPI(litserve.LitAPI):
    """One row a request."""

    def setup(self, device: str) -> None:  # noqa: ARG002 - the parent's signature
        """Loads the checkpoint, in the worker's process."""
        self.posterior = load(self.directory)

    def decode_request(self, request: dict[str, Any], **_: Any) -> dict[str, Any]:
        """The body, parsed."""
        return request

    def batch(self, inputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """What waited together."""
        return inputs

    def predict(self, inputs: list[dict[str, Any]], **_: Any) -> list[dict[str, Any]]:
        """One pass for all; the requests of this benchmark have the same options."""
        prediction = predict_rows(self.posterior, [request["inputs"][0] for request in inputs], inputs[0]["samples"])
        return [row_of(prediction, row) for row in range(len(inputs))]

    def unbatch(self, output: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """One answer a request."""
        return output

    def encode_response(self, output: dict[str, Any], **_: Any) -> dict[str, Any]:
        """The answer, which LitServe writes as JSON."""
        return output


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", required=True)
    given = parser.parse_args()
    api = PosteriorAPI(max_batch_size=MOST_IN_A_BATCH, batch_timeout=SECONDS_TO_WAIT)
    api.directory = given.model
    server = litserve.LitServer(api, accelerator="cpu", devices=1, workers_per_device=1, fast_queue=True)
    server.run(host="127.0.0.1", port=given.port, num_api_servers=1, log_level="warning", generate_client_file=False)
