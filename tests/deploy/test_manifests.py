"""The manifests fit Kubernetes' schemas, and say of paths, ports, settings and users what the service and image say."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from murho.service.http.middleware import OF_METRICS_PORT
from murho.service.settings import Settings, read_configuration
from tests.deploy.helm_templates import TemplateError, render_chart
from tests.deploy.support import (
    CHART,
    EVERYTHING,
    KEYS,
    KUBERNETES,
    LITTLE,
    STORAGE,
    dockerfile,
    in_chart,
    in_folder,
    of_kind,
)
from tests.support import ROOT

CUSTOM = ("monitoring.coreos.com", "serving.kserve.io")
"""Groups of resources that Kubernetes has no schemas of: those of the Prometheus operator and KServe."""
NEWEST, OLDEST = kubernetes_validate.latest_version(), "1.27"
SETS = {
    **{f"manifests in {name}": in_folder(name) for name in ("base", "monitoring", "kserve")},
    "chart as it is": in_chart({}),
    "chart with everything": in_chart(EVERYTHING),
    "chart with little": in_chart(LITTLE),
    "chart with a storage": in_chart(STORAGE),
}
PODS = {
    name: of_kind(objects, "Deployment")["spec"]["template"]["spec"]
    for name, objects in SETS.items()
    if any(item["kind"] == "Deployment" for item in objects)
}
RUNTIME = of_kind(SETS["manifests in kserve"], "ServingRuntime")["spec"]
PODS["KServe"] = {**of_kind(SETS["manifests in kserve"], "InferenceService")["spec"]["predictor"], **RUNTIME}


def container(pod: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod["containers"]
    return dict(only)


def environment(pod: dict[str, Any]) -> dict[str, str]:
    return {item["name"]: item["value"] for item in container(pod)["env"] if "value" in item}


def ports(pod: dict[str, Any]) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container(pod)["ports"]}


@pytest.mark.parametrize(("name", "version"), [*((name, NEWEST) for name in SETS), ("manifests in base", OLDEST)])
def test_every_object_fits_the_schemas(name: str, version: str) -> None:
    for item in SETS[name]:
        if item["apiVersion"].partition("/")[0] not in CUSTOM:
            kubernetes_validate.validate(item, version, strict=True)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not here")
@pytest.mark.parametrize("name", ["base", "monitoring", "kserve"])
def test_kustomize_builds_what_the_files_say(name: str) -> None:
    command = ["kubectl", "kustomize", str(KUBERNETES / name)]
    built = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def named(objects: Any) -> dict[tuple[str, str], Any]:
        return {(item["kind"], item["metadata"]["name"]): item for item in objects}

    assert named(yaml.safe_load_all(built)) == named(in_folder(name))


@pytest.mark.parametrize("name", PODS)
def test_the_environment_is_read_by_the_service(name: str) -> None:
    given = environment(PODS[name])
    files = ("MURHO_API_KEYS_FILE", "MURHO_SSL_CERTFILE", "MURHO_SSL_KEYFILE")
    values = read_configuration({}, environment={key: text for key, text in given.items() if key not in files})
    assert values.settings.log_format == given.get("MURHO_LOG_FORMAT", "auto")
    assert {key.removeprefix("MURHO_").lower() for key in given} <= set(Settings.model_fields)


@pytest.mark.parametrize("name", PODS)
def test_the_drain_fits_into_the_grace_period(name: str) -> None:
    given, pod = environment(PODS[name]), PODS[name]
    drain = float(given["MURHO_DRAIN_DELAY"]) + float(given["MURHO_DRAIN_GRACE"])
    assert pod["terminationGracePeriodSeconds"] >= drain + 5
    # Not ready must be seen, and told to all who send requests, while it still serves.
    probe = container(pod)["readinessProbe"]
    if name != "chart with little":
        assert float(given["MURHO_DRAIN_DELAY"]) >= probe["periodSeconds"] * probe["failureThreshold"]
        assert float(given["MURHO_DRAIN_GRACE"]) >= Settings().request_timeout


@pytest.mark.parametrize("name", PODS)
def test_probes_ask_the_port_that_is_without_keys_and_encryption(name: str) -> None:
    main, listened, given = container(PODS[name]), ports(PODS[name]), environment(PODS[name])
    assert next(iter(listened.values())) == int(given.get("MURHO_PORT", dockerfile("EXPOSE")))
    for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
        probe = main[kind]["httpGet"]
        assert listened.get(probe["port"], probe["port"]) == int(given["MURHO_METRICS_PORT"])
        assert probe["path"] in OF_METRICS_PORT
        assert "scheme" not in probe


@pytest.mark.parametrize("name", PODS)
def test_the_pod_is_restricted_and_runs_as_the_images_user(name: str) -> None:
    pod, main = PODS[name], container(PODS[name])
    both = {**pod.get("securityContext", {}), **main["securityContext"]}
    assert f"{both['runAsUser']}:{both['runAsGroup']}" == dockerfile("USER")
    assert both["runAsNonRoot"] is True
    assert both["readOnlyRootFilesystem"] is True
    assert both["allowPrivilegeEscalation"] is False
    assert both["capabilities"] == {"drop": ["ALL"]}
    assert both["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["enableServiceLinks"] is False
    assert pod["automountServiceAccountToken"] is False
    writable = {item["mountPath"] for item in main["volumeMounts"] if not item.get("readOnly")}
    assert writable == {"/tmp"}  # noqa: S108
    assert main["args"] == ["serve"]


def test_checkpoints_are_mounted_where_the_image_looks_for_them() -> None:
    image = "MURHO_CHECKPOINTS=/checkpoints"
    assert image in (ROOT / "Dockerfile").read_text()
    for name, pod in PODS.items():
        places = {item["mountPath"] for item in container(pod)["volumeMounts"]}
        elsewhere = environment(pod).get("MURHO_CHECKPOINTS")
        assert "/checkpoints" in places or elsewhere in ("/mnt/models", "s3://bucket/prefix"), name


def test_with_a_storage_there_is_no_claim() -> None:
    assert "PersistentVolumeClaim" not in {item["kind"] for item in SETS["chart with a storage"]}
    assert "checkpoints" not in {volume["name"] for volume in PODS["chart with a storage"]["volumes"]}


@pytest.mark.parametrize("name", PODS)
def test_the_temporary_files_find_room(name: str) -> None:
    (volume,) = (volume for volume in PODS[name]["volumes"] if volume["name"] == "tmp")
    size = volume["emptyDir"]["sizeLimit"]
    assert size.endswith("Mi")
    # A pod that takes more is evicted; a node that promises more has less for others. The rest is for compiled code.
    assert int(size.removesuffix("Mi")) * 2**20 == 2 * Settings().record_bytes + 256 * 2**20


@pytest.mark.parametrize("name", [name for name in PODS if name in SETS])
def test_services_policies_and_budgets_select_the_pods(name: str) -> None:
    objects = SETS[name]
    labels = of_kind(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    for item in objects:
        spec = item.get("spec", {})
        selector = spec.get("podSelector") or spec.get("selector") or {}
        wanted = selector.get("matchLabels", selector)
        assert wanted.items() <= labels.items(), item["kind"]
    services = [item["spec"] for item in objects if item["kind"] == "Service"]
    assert [port["targetPort"] for spec in services for port in spec["ports"]] == [*ports(PODS[name])]
    assert [port["port"] for port in reachable(objects)] in ([], [*ports(PODS[name])])


def test_metrics_which_take_no_key_stay_within_the_cluster() -> None:
    services = [item["spec"] for item in in_chart({"service": {"type": "LoadBalancer"}}) if item["kind"] == "Service"]
    found = {port["name"]: spec.get("type", "ClusterIP") for spec in services for port in spec["ports"]}
    assert found == {"http": "LoadBalancer", "metrics": "ClusterIP"}


def reachable(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the ports that the network policy lets clients reach, if there is one."""
    policies = [item for item in objects if item["kind"] == "NetworkPolicy"]
    return [port for policy in policies for port in policy["spec"]["ingress"][0]["ports"]]


def test_pods_reach_names_and_a_storage_where_the_chart_needs_them() -> None:
    def allowed(changes: dict[str, Any]) -> list[int]:
        rules = of_kind(in_chart(changes), "NetworkPolicy")["spec"]["egress"]
        return sorted({port["port"] for rule in rules for port in rule.get("ports", ())})

    database = {"egress": [{"ports": [{"port": 5432, "protocol": "TCP"}]}]}
    of_storage = [80, 443, 988]  # with the addresses at which a cloud gives its credentials
    assert allowed({}) == []
    assert allowed({"networkPolicy": database}) == [53, 5432]
    assert allowed(STORAGE) == [53, *of_storage]
    assert allowed({**STORAGE, "networkPolicy": database}) == [53, *of_storage, 5432]


def test_the_notes_say_where_checkpoints_come_from() -> None:
    assert "the claim scoring-checkpoints has" in render_chart(CHART, {})["NOTES.txt"]
    notes = render_chart(CHART, STORAGE)["NOTES.txt"]
    assert "s3://bucket/prefix has" in notes
    assert "claim" not in notes


def test_pods_that_share_a_volume_of_one_node_stand_on_one() -> None:
    for name in ("chart as it is", "manifests in base"):
        claim = of_kind(SETS[name], "PersistentVolumeClaim")["spec"]
        assert claim["accessModes"] == ["ReadWriteOnce"]
        assert PODS[name]["affinity"]["podAffinity"]
    several = of_kind(in_chart({"checkpoints": {"accessModes": ["ReadWriteMany"]}}), "Deployment")
    for pod in (several["spec"]["template"]["spec"], PODS["chart with a storage"], PODS["chart with little"]):
        assert "affinity" not in pod


def test_what_a_pod_may_be_given_comes_through() -> None:
    template = of_kind(SETS["chart with everything"], "Deployment")["spec"]["template"]
    main, given = container(template["spec"]), environment(template["spec"])
    assert template["metadata"]["annotations"] == EVERYTHING["podAnnotations"]
    assert template["spec"]["serviceAccountName"] == "scoring"
    assert main["envFrom"] == EVERYTHING["envFrom"]
    assert EVERYTHING["env"][0] in main["env"]
    places = {item["name"]: item["mountPath"] for item in main["volumeMounts"]}
    assert given["MURHO_SSL_CERTFILE"] == f"{places['tls']}/tls.crt"
    assert given["MURHO_SSL_KEYFILE"] == f"{places['tls']}/tls.key"
    (volume,) = (volume for volume in template["spec"]["volumes"] if volume["name"] == "tls")
    assert volume["secret"]["secretName"] == "certificate"


def test_the_chart_as_it_is_makes_what_the_manifests_say() -> None:
    """But for names and labels, which a release has of its own."""

    def plain(objects: list[dict[str, Any]]) -> dict[tuple[str, str], Any]:
        texts = {}
        for item in objects:
            same = json.loads(json.dumps(item).replace("scoring", "murho"))
            texts[same["kind"], same["metadata"]["name"]] = without_instance(same["spec"])
        return texts

    chart, manifests = plain(in_chart({})), plain(in_folder("base"))
    for spec in (chart, manifests):
        main = spec["Deployment", "murho"]["template"]["spec"]["containers"][0]
        main["env"] = sorted(main["env"], key=lambda item: item["name"])
        main.pop("imagePullPolicy", None)
    chart["Service", "murho"].pop("type")
    assert chart == manifests


def without_instance(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_instance(item) for key, item in value.items() if key != "app.kubernetes.io/instance"}
    return [without_instance(item) for item in value] if isinstance(value, list) else value


def test_keys_in_the_values_become_a_secret_that_the_pod_mounts() -> None:
    objects = SETS["chart with everything"]
    secret = of_kind(objects, "Secret")
    assert secret["stringData"]["keys"].split() == KEYS
    volumes = {item["name"]: item for item in PODS["chart with everything"]["volumes"]}
    assert volumes["keys"]["secret"]["secretName"] == secret["metadata"]["name"]
    for name in ("chart with everything", "manifests in base", "KServe"):
        places = {item["name"]: item["mountPath"] for item in container(PODS[name])["volumeMounts"]}
        assert environment(PODS[name])["MURHO_API_KEYS_FILE"] == f"{places['keys']}/keys"
    assert "MURHO_API_KEYS_FILE" not in environment(PODS["chart with little"])


def test_keys_that_are_nowhere_are_an_error() -> None:
    with pytest.raises(TemplateError, match="murho key NAME"):
        render_chart(CHART, {"keys": {"existingSecret": ""}})


def test_the_schema_of_the_values_takes_them_and_refuses_slips() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    jsonschema.validate(values, schema)
    for changes in (EVERYTHING, LITTLE, STORAGE):
        jsonschema.validate(changes | {"settings": values["settings"] | changes.get("settings", {})}, schema)
    slips: tuple[dict[str, Any], ...] = (
        {"image": {"name": "murho"}},
        {"setings": {}},
        {"settings": {**values["settings"], "samples": 128}},
        {"settings": {**values["settings"], "workers": "auto"}},
        {"keys": {"lines": ["dashboard:the-key-itself"]}},
    )
    for slip in slips:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(slip, schema)
    assert set(values["settings"]) <= set(Settings.model_fields)
