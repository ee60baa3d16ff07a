"""What the custom resources may have of the fields that we use, written from their documentation; others are refused.

ServiceMonitor and PrometheusRule are of the Prometheus operator, ServingRuntime and InferenceService of KServe.
"""

from __future__ import annotations

from typing import Any

__all__ = ["SCHEMAS"]


def exactly(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
WHOLE: dict[str, Any] = {"type": "integer", "minimum": 0}
TEXTS: dict[str, Any] = {"type": "object", "additionalProperties": {"type": "string"}}
DURATION: dict[str, Any] = {"type": "string", "pattern": r"^\d+(ms|s|m|h|d)$"}
PARTS: dict[str, Any] = {"type": "array", "items": {"type": "object", "required": ["name"]}, "minItems": 1}


def resource(version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = exactly("name", name=TEXT, labels=TEXTS, annotations=TEXTS)
    return exactly(
        "apiVersion", "kind", "metadata", "spec", apiVersion={"const": version}, kind={"const": kind},
        metadata=metadata, spec=spec,
    )  # fmt: skip


RULE = exactly(
    "alert", "expr", alert={"type": "string", "pattern": "^[A-Za-z]+$"}, expr=TEXT, labels=TEXTS, annotations=TEXTS,
    **{"for": DURATION},
)  # fmt: skip
SPECS = {
    ("monitoring.coreos.com/v1", "ServiceMonitor"): exactly(
        "selector",
        "endpoints",
        jobLabel=TEXT,
        selector=exactly(matchLabels=TEXTS),
        endpoints={"type": "array", "minItems": 1, "items": exactly(port=TEXT, path=TEXT, interval=DURATION)},
    ),
    ("monitoring.coreos.com/v1", "PrometheusRule"): exactly(
        groups={
            "type": "array",
            "items": exactly("name", "rules", name=TEXT, rules={"type": "array", "items": RULE}),
        }
    ),
    ("serving.kserve.io/v1alpha1", "ServingRuntime"): exactly(
        "containers",
        annotations=TEXTS,
        supportedModelFormats={
            "type": "array",
            "items": exactly("name", name=TEXT, version=TEXT, autoSelect={"type": "boolean"}),
        },
        protocolVersions={"type": "array", "items": {"enum": ["v1", "v2", "grpc-v1", "grpc-v2"]}},
        containers=PARTS,
        volumes=PARTS,
    ),
    ("serving.kserve.io/v1beta1", "InferenceService"): exactly(
        "predictor",
        predictor=exactly(
            minReplicas=WHOLE,
            maxReplicas=WHOLE,
            terminationGracePeriodSeconds=WHOLE,
            enableServiceLinks={"type": "boolean"},
            automountServiceAccountToken={"type": "boolean"},
            model=exactly(
                "modelFormat",
                modelFormat=exactly("name", name=TEXT, version=TEXT),
                runtime=TEXT,
                protocolVersion={"enum": ["v1", "v2", "grpc-v1", "grpc-v2"]},
                storageUri={"type": "string", "pattern": "^(pvc|s3|gs)://."},
            ),
        ),
    ),
}
SCHEMAS = {(version, kind): resource(version, kind, spec) for (version, kind), spec in SPECS.items()}
