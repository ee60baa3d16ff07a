"""A client of Murho, the prediction service that answers with error bars."""

from murho_client._answers import Counterfactual, Decisions, Explanation, Outcomes, Totals
from murho_client._async_client import AsyncClient
from murho_client._client import Client
from murho_client._errors import (
    AuthenticationError,
    Busy,
    DeadlineExceeded,
    InternalError,
    InvalidInput,
    MurhoClientError,
    NotReady,
    Problem,
    ServiceError,
    TooLarge,
    UnexpectedAnswer,
    UnknownModel,
    Unreachable,
)
from murho_client._model import Feature, Model, ModelSummary
from murho_client._prediction import Prediction
from murho_client._responses import Response
from murho_client._transport import __version__

__all__ = [
    "AsyncClient",
    "AuthenticationError",
    "Busy",
    "Client",
    "Counterfactual",
    "DeadlineExceeded",
    "Decisions",
    "Explanation",
    "Feature",
    "InternalError",
    "InvalidInput",
    "Model",
    "ModelSummary",
    "MurhoClientError",
    "NotReady",
    "Outcomes",
    "Prediction",
    "Problem",
    "Response",
    "ServiceError",
    "TooLarge",
    "Totals",
    "UnexpectedAnswer",
    "UnknownModel",
    "Unreachable",
    "__version__",
]
