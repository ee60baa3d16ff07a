"""A client of Murho, the prediction service that answers with error bars."""

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
from murho_client._model import Feature, Model
from murho_client._model_summary import ModelSummary
from murho_client._prediction import Prediction, PredictionWarning
from murho_client._version import __version__

__all__ = [
    "AsyncClient",
    "AuthenticationError",
    "Busy",
    "Client",
    "DeadlineExceeded",
    "Feature",
    "InternalError",
    "InvalidInput",
    "Model",
    "ModelSummary",
    "MurhoClientError",
    "NotReady",
    "Prediction",
    "PredictionWarning",
    "Problem",
    "ServiceError",
    "TooLarge",
    "UnexpectedAnswer",
    "UnknownModel",
    "Unreachable",
    "__version__",
]
