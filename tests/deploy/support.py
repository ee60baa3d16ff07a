"""The manifests as they are, and as the chart renders them; what the image and the service say of themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import yaml

from tests.deploy.helm_templates import render_chart
from tests.support import ROOT

KUBERNETES = ROOT / "deploy" / "kubernetes"
CHART = KUBERNETES / "chart"
MONITORING = ROOT / "deploy" / "monitoring"
KEYS = [f"dashboard:sha256:{'0' * 64}", f"operator:sha256:{'1' * 64}:admin"]
EVERYTHING: dict[str, Any] = {
    "keys": {"lines": KEYS},
    "nodeSelector": {"kind": "fast"},
    "tolerations": [{"key": "fast", "operator": "Exists"}],
    "imagePullSecrets": [{"name": "registry"}],
    "checkpoints": {"storageClassName": "shared"},
    "monitoring": {"serviceMonitor": True, "rules": True, "dashboard": True, "labels": {"release": "prometheus"}},
    "networkPolicy": {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]},
    "settings": {"port": "8443", "metrics_port": "9000", "workers": "3"},
    "tls": {"existingSecret": "certificate"},
    "serviceAccountName": "scoring",
    "podAnnotations": {"vault.hashicorp.com/agent-inject": "true"},
    "env": [{"name": "MURHO_STORE", "valueFrom": {"secretKeyRef": {"name": "store", "key": "address"}}}],
    "envFrom": [{"secretRef": {"name": "bucket"}}],
}
LITTLE: dict[str, Any] = {
    "keys": {"enabled": False},
    "autoscaling": {"enabled": False},
    "networkPolicy": {"enabled": False},
    "checkpoints": {"existingClaim": "mine"},
    "settings": {"drain_delay": "1", "drain_grace": "200"},
}
STORAGE: dict[str, Any] = {"checkpoints": {"url": "s3://bucket/prefix", "storage": "20Gi"}}


def documents(text: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(text) if document]


@cache
def in_folder(name: str) -> list[dict[str, Any]]:
    """Return the objects of a folder of manifests, by its kustomization."""
    listed = yaml.safe_load((KUBERNETES / name / "kustomization.yaml").read_text())["resources"]
    return [item for file in listed for item in documents((KUBERNETES / name / file).read_text())]


def in_chart(changes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the objects that the chart makes with some values."""
    texts = render_chart(CHART, changes)
    return [item for name, text in texts.items() if name != "NOTES.txt" for item in documents(text)]


def of_kind(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = (item for item in objects if item["kind"] == kind)
    return found


def dockerfile(word: str) -> str:
    """Return what follows a word of the Dockerfile's last stage."""
    found: list[str] = re.findall(rf"^{word} (.*)$", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    return found[-1]
