"""The settings of one service process: the environment (``MURHO_…``) and the command line.

Units are in the names or the descriptions. A *row-draw* is one row evaluated under one draw. It is the unit of a
request's cost, rows x max(samples, 1).
"""

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from murho.model.engines.prediction import DEFAULT_SAMPLES
from murho.service.version_policy import PolicyName, VersionPolicy

__all__ = ["Settings"]


class Settings(BaseSettings):
    """All settings of a service; each field is also ``MURHO_<FIELD>`` in the environment."""

    model_config = SettingsConfigDict(env_prefix="MURHO_", frozen=True, extra="ignore")

    checkpoints: Path = Field(default=Path("checkpoints"), description="Directory of NAME/VERSION checkpoints.")
    host: str = Field(default="127.0.0.1", description="Address to listen on; 0.0.0.0 for every interface.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0 lets the system choose.")
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="auto takes a GPU where there is one.")
    default_model: str | None = Field(
        default=None, description="The model behind POST /predict; without it, the only one that is loaded."
    )

    versions: PolicyName = Field(
        default="latest",
        description="Which versions of a model are served: the latest that can be loaded, all, or the pinned ones.",
    )
    pinned: str = Field(
        default="",
        validate_default=True,
        description="With versions=pinned: NAME=VERSION pairs, such as cars=3,rents=1; other names serve the latest.",
    )
    watch_seconds: float = Field(
        default=1.0,
        ge=0,
        description="Seconds between two looks for new, changed and deleted versions; 0: none, only when asked to.",
    )

    samples: int = Field(
        default=DEFAULT_SAMPLES, ge=0, description="Draws behind an answer when a request does not say."
    )
    max_samples: int = Field(default=4096, ge=1, description="The largest `samples` that a request may ask for.")
    max_rows: int = Field(default=1_000_000, ge=1, description="The most rows of one request.")
    max_draw_values: int = Field(
        default=5_000_000,
        ge=1,
        description='The most values (rows x samples) that `include: ["draws"]` may list.',
    )
    draws_bytes: int | None = Field(
        default=None,
        ge=1,
        description="Memory for the draws of each model, in bytes, 1 GiB by default; draws beyond it are made anew "
        "by every request.",
    )
    max_body_bytes: int = Field(default=64 * 2**20, ge=1, description="The largest request body, in bytes.")

    max_pending: int = Field(
        default=1_000,
        ge=1,
        description="The most requests waiting for or in computation; more are answered 429.",
    )
    max_pending_cost: int = Field(
        default=100_000_000,
        ge=1,
        description="The most row-draws waiting for or in computation; more gets 429, and 413 if alone.",
    )
    request_timeout: float = Field(
        default=60.0, gt=0, description="Seconds from a request's arrival to its answer; then 504."
    )
    drain_delay: float = Field(
        default=1.0,
        ge=0,
        description="Seconds after SIGTERM in which the service says that it is not ready but still serves, "
        "so that a load balancer can turn away first.",
    )
    drain_grace: float = Field(
        default=20.0,
        ge=0,
        description="The most seconds that requests in flight get to finish after SIGTERM.",
    )

    threads: int | None = Field(
        default=None,
        ge=1,
        description="Threads of the computation; by default the processors this process may use.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least level logged."
    )
    log_format: Literal["auto", "console", "json"] = Field(
        default="auto", description="auto: for people on a terminal, one JSON object a line otherwise."
    )

    @field_validator("pinned")
    @classmethod
    def _fits_the_policy(cls, pinned: str, info: ValidationInfo) -> str:
        if "versions" in info.data:  # else that setting is wrong by itself
            VersionPolicy.of(info.data["versions"], pinned)
        return pinned
