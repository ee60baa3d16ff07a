"""Alerts, dashboard and adapter ask for metrics and labels that `/metrics` has, in expressions that parse."""

from __future__ import annotations

import json
import re
from functools import cache
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.deploy.support import EVERYTHING, KUBERNETES, MONITORING, in_chart, in_folder, of_kind
from tests.service.classifiers import Classifier
from tests.service.support import ROW, FakeModel, make_client
from tests.support import ROOT

RULES = yaml.safe_load((MONITORING / "rules.yml").read_text())
DASHBOARD = json.loads((MONITORING / "grafana" / "dashboards" / "murho.json").read_text())
OF_PROMETHEUS = {"job", "instance", "le"}
"""Labels that Prometheus adds, and that of the buckets of histograms."""


def expressions() -> dict[str, str]:
    """Every expression by where it stands, with what Grafana and the adapter fill in."""
    found = {rule["alert"]: rule["expr"] for group in RULES["groups"] for rule in group["rules"]}
    for panel in DASHBOARD["panels"]:
        found |= {f"{panel['title']} {item['refId']}": item["expr"] for item in panel.get("targets", ())}
    (rule,) = yaml.safe_load((KUBERNETES / "monitoring" / "adapter-values.yaml").read_text())["rules"]["custom"]
    series = rule["seriesQuery"]
    asked = rule["metricsQuery"].replace("<<.Series>>", series.partition("{")[0])
    found["adapter"] = asked.replace("<<.LabelMatchers>>", 'job="murho"').replace("<<.GroupBy>>", "instance")
    return {
        place: text.replace("$__rate_interval", "1m").replace("$job", "murho").replace("$model", "cars")
        for place, text in found.items()
    }


EXPRESSIONS = expressions()


@cache
def exposed() -> dict[str, set[str]]:
    """Names of the samples that a service shows after predictions of numbers and classes, with their labels."""
    samples: dict[str, set[str]] = {}
    for model in (FakeModel(), Classifier()):
        with TemporaryDirectory() as folder, make_client(model, store=f"{folder}/murho.db") as client:
            assert client.post("/predict", {"inputs": [ROW], "ids": ["a"]}).status_code == 200
            value = 100.0 if model.schema.target.classes is None else model.schema.target.classes[0]
            outcomes = {"outcomes": [{"id": "a", "value": value}]}
            assert client.post(f"/models/{model.name}/outcomes", outcomes).json()["accepted"] == 1
            text = client.get("/metrics").text
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                samples.setdefault(sample.name, set()).update(sample.labels)
            if family.name == "murho_protocol_errors":  # counted by the server around the application
                samples["murho_protocol_errors_total"] = {"kind"}
    return samples


def names_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:murho_\w+|up)\b(?!\")", re.sub(r'"[^"]*"', '""', expression)))


def labels_in(expression: str) -> set[str]:
    matched = {label for text in re.findall(r"\{([^}]*)\}", expression) for label in re.findall(r"(\w+)\s*[=!]", text)}
    grouped = {label for text in re.findall(r"\bby \(([^)]*)\)", expression) for label in re.findall(r"\w+", text)}
    return matched | grouped


@pytest.mark.parametrize("place", EXPRESSIONS)
def test_every_expression_asks_for_metrics_and_labels_that_are_exposed(place: str) -> None:
    names = names_in(EXPRESSIONS[place])
    assert names
    assert names <= {*exposed(), "up"}
    labels = set().union(*(exposed().get(name, set()) for name in names))
    assert labels_in(EXPRESSIONS[place]) <= labels | OF_PROMETHEUS


@pytest.mark.parametrize("place", EXPRESSIONS)
def test_every_expression_is_promql(place: str) -> None:
    promql = pytest.importorskip("promql_parser")
    promql.parse(EXPRESSIONS[place])


def test_the_autoscaler_asks_for_the_metric_that_the_adapter_offers() -> None:
    (rule,) = yaml.safe_load((KUBERNETES / "monitoring" / "adapter-values.yaml").read_text())["rules"]["custom"]
    for objects in (in_folder("base"), in_chart({})):
        (metric,) = of_kind(objects, "HorizontalPodAutoscaler")["spec"]["metrics"]
        assert metric["pods"]["metric"]["name"] == rule["name"]["as"]
        assert rule["name"]["as"] in exposed()


def test_the_rules_are_the_same_for_prometheus_its_operator_and_the_chart() -> None:
    assert of_kind(in_folder("monitoring"), "PrometheusRule")["spec"] == RULES
    objects = in_chart(EVERYTHING)
    assert of_kind(objects, "PrometheusRule")["spec"] == RULES
    assert json.loads(of_kind(objects, "ConfigMap")["data"]["murho.json"]) == DASHBOARD


def test_monitors_ask_the_port_of_the_service_and_name_the_job_that_alerts_ask_for() -> None:
    for monitor, objects in (
        (of_kind(in_folder("monitoring"), "ServiceMonitor"), in_folder("base")),
        (of_kind(in_chart(EVERYTHING), "ServiceMonitor"), in_chart(EVERYTHING)),
    ):
        (endpoint,) = monitor["spec"]["endpoints"]
        selected, label = monitor["spec"]["selector"]["matchLabels"], monitor["spec"]["jobLabel"]
        services = [item for item in objects if item["kind"] == "Service"]
        assert all(selected.items() <= service["metadata"]["labels"].items() for service in services)
        (service,) = (item for item in services if endpoint["port"] in {port["name"] for port in item["spec"]["ports"]})
        assert service["metadata"]["labels"][label] == "murho"
    assert 'up{job="murho"} == 0' in EXPRESSIONS["MurhoDown"]


def test_compose_starts_prometheus_and_grafana_in_a_profile_alone() -> None:
    services: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    assert {name for name, item in services.items() if "profiles" not in item} == {"murho", "train-demo"}
    assert {name for name, item in services.items() if item.get("profiles") == ["monitoring"]} == {
        "prometheus",
        "grafana",
    }
    mounted = [text.split(":") for name in ("prometheus", "grafana") for text in services[name]["volumes"]]
    for place, *_ in (parts for parts in mounted if parts[0].startswith(".")):
        assert (ROOT / place).exists()
    (scraped,) = yaml.safe_load((MONITORING / "prometheus.yml").read_text())["scrape_configs"]
    port = services["murho"]["environment"]["MURHO_METRICS_PORT"]
    assert scraped["static_configs"] == [{"targets": [f"murho:{port}"]}]
    assert scraped["job_name"] == "murho"
    # Else the service would refuse to be scraped under this name.
    assert services["murho"]["environment"]["MURHO_HOSTS"].startswith("${MURHO_HOSTS:-murho,")


def test_the_page_lists_the_alerts_and_the_chart_s_values_that_exist() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    alerts = {rule["alert"] for group in RULES["groups"] for rule in group["rules"]}
    assert set(re.findall(r"`(Murho[A-Z]\w+)`", page)) == alerts
    assert set(re.findall(r"`(murho_\w+)`", page)) <= set(exposed())
    values = yaml.safe_load((KUBERNETES / "chart" / "values.yaml").read_text())
    for path in re.findall(r"--set(?:-string)? ([\w.]+)=", page):
        group, _, name = path.partition(".")
        assert group == "settings" or (name in values[group] if name else group in values), path
    for folder in re.findall(r"kubectl apply -k (\S+)", page):
        assert (ROOT / folder / "kustomization.yaml").exists()
    for path in re.findall(r"`(deploy/[\w/.-]+)`", page):
        assert (ROOT / path).exists(), path
