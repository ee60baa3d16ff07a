"""One request for predictions, from its arrival to its answer: what every protocol does alike.

A protocol reads the body and writes the answer. The model, the limits, the queue, the metrics and the log are here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from murho.model.engines.level_hint import level_hint
from murho.model.errors import MurhoError, Problem
from murho.service.codecs.answer import MAX_WARNINGS, describe_outside
from murho.service.codecs.codec import Answered
from murho.service.errors import BadInputError
from murho.service.exchange import headers_of, read_body, wanted_within
from murho.service.scheduling.predictor import RowsNotFiniteError, predict

if TYPE_CHECKING:
    from typing import Self

    from starlette.types import Receive, Scope

    from murho.service.codecs.codec import Asked
    from murho.service.parts import Parts
    from murho.service.scheduling.jobs import ModelLike, Timing

__all__ = ["Call"]


class Call:
    """One request for predictions; while it is entered, it is in flight.

    Args:
        parts: The parts of the service.
        scope: The request.
        receive: Its messages.

    Attributes:
        headers: Its headers by name in lower case.

    Raises:
        NotReadyError: On entering it: the service takes no new predictions.
    """

    def __init__(self, parts: Parts, scope: Scope, receive: Receive) -> None:
        self.parts = parts
        self.headers = headers_of(scope)
        self._scope, self._receive = scope, receive
        self._begin = parts.scheduler.clock()
        self._model: ModelLike | None = None

    def __enter__(self) -> Self:
        self.parts.lifecycle.enter()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.parts.lifecycle.leave()
        if isinstance(error, MurhoError) and self._model is not None:
            self.parts.statistics.failed(self._model, self.parts.scheduler.clock() - self._begin)

    def find(self, name: str | None = None, version: str | None = None) -> ModelLike:
        """Returns the model that is to answer.

        Args:
            name: Its name; None for the default model.
            version: Its version; None for the latest.

        Raises:
            NotReadyError: No model is loaded.
            UnknownModelError: There is no such model or version.
        """
        snapshot = self.parts.registry.snapshot
        default = self.parts.settings.default_model
        self._model = snapshot.find_default(default) if name is None else snapshot.find(name, version)
        return self._model

    async def body(self) -> bytes:
        """Returns the body as it was sent.

        Raises:
            QueueFullError: Too much is pending, so that the body isn't read.
            TooLargeError, SlowRequestError, ClientGoneError: The body doesn't come, or is too large.
        """
        self.parts.scheduler.require_room()
        settings = self.parts.settings
        return await read_body(self._receive, self.headers, settings.request_timeout, settings.max_body_bytes)

    async def predict(self, model: ModelLike, asked: Asked) -> Answered:
        """Returns the answer.

        Raises:
            MurhoError: There is none; `errors.problem_details` has the HTTP status.
        """
        parts, inputs, options = self.parts, asked.inputs, asked.options
        caller, cost = self._scope["state"]["caller"], model.cost(inputs.count, options)
        parts.scheduler.require_room(cost, inputs.count)
        parts.security.admit(caller, cost, requests=0)
        try:
            answer = await predict(
                parts.scheduler,
                parts.waiting,
                model,
                inputs.columns,
                options,
                cost=cost,
                caller=caller.name,
                max_outside=MAX_WARNINGS + 1,
                deadline=self._begin + wanted_within(asked.timeout, self.headers, parts.settings.request_timeout),
                receive=self._receive,
            )
        except RowsNotFiniteError as error:
            message = "The value is so far outside the training range that the prediction isn't finite."
            problems = (Problem(inputs.pointer(row, feature), message) for row, feature in error.cells)
            raise BadInputError(problems) from None
        parts.telemetry.record(model.name, model.version, inputs.count, answer, noise=options.noise)
        parts.statistics.answered(model, inputs.count, answer.timing, parts.scheduler.clock() - self._begin)
        self._scope["state"]["facts"] = _facts(caller.name, model, inputs.count, options.samples, answer.timing)
        warnings = describe_outside(answer.outside, inputs) if answer.outside else []
        hint = level_hint(options.percentiles)
        if hint is not None:
            warnings.insert(0, {"pointer": "/percentiles", "message": hint})
        return Answered((model.name, model.version), model.schema.target.name, options, answer.prediction, warnings)


def _facts(caller: str, model: ModelLike, rows: int, samples: int, timing: Timing) -> dict[str, Any]:
    """Returns what the access log says of a prediction."""
    return {
        "caller": caller,
        "model": model.name,
        "version": model.version,
        "rows": rows,
        "samples": samples,
        "queue_ms": round(1000 * timing.queue, 2),
        "compute_ms": round(1000 * timing.compute, 2),
    }
