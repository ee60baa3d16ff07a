"""LitServe around a `Posterior`, with LitServe's own batching: ``with_litserve --port P --model DIR --workers N``.

Annotations are evaluated here: LitServe makes its route from that of `decode_request`.
"""
# mypy: disable-error-code="import-not-found,import-untyped,misc"

import argparse
from typing import Any

import litserve

from benchmarks.peers.posterior_rows import ANSWERED, canonical, load
from murho.model.predictive.prediction import PredictOptions

MOST_IN_A_BATCH, SECONDS_TO_WAIT = 32, 0.001
"""Longer waiting only lowers what 32 connections get; without any, LitServe takes one request after the other."""


class PosteriorAPI(litserve.LitAPI):
    """One row a request; all requests have the same options, so that a batch is one pass."""

    def setup(self, device: str) -> None:  # noqa: ARG002 - the parent's signature
        """Load the checkpoint, in the worker's process."""
        self.posterior = load(self.directory)

    def decode_request(self, request: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Return the body, parsed."""
        return request

    def batch(self, inputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return what waited together."""
        return inputs

    def predict(self, inputs: list[dict[str, Any]], **_: Any) -> list[dict[str, Any]]:
        """One pass for all."""
        rows = [request["inputs"][0] for request in inputs]
        columns = canonical(self.posterior.schema, {name: [row[name] for row in rows] for name in rows[0]})
        found = self.posterior.predict(columns, PredictOptions(samples=inputs[0]["samples"]))
        return [{name: [getattr(found, name)[row].tolist()] for name in ANSWERED} for row in range(len(rows))]

    def unbatch(self, output: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """One answer a request."""
        return output

    def encode_response(self, output: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Return the answer, which LitServe writes as JSON."""
        return output


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    api = PosteriorAPI(max_batch_size=MOST_IN_A_BATCH, batch_timeout=SECONDS_TO_WAIT)
    api.directory = given.model
    server = litserve.LitServer(api, accelerator="cpu", devices=1, workers_per_device=given.workers, fast_queue=True)
    options = {"num_api_servers": given.workers, "log_level": "warning", "generate_client_file": False}
    server.run(host="127.0.0.1", port=given.port, **options)
