"""The chart: every form of it is valid, a wrong value is refused, and its pods run."""

import itertools
import random
import subprocess

import helm_python as helm
import kubernetes_validate
import pytest
from conftest import BINARY, CHART, ROOT, container, environment, get, one, render, replaced, wait_for

SIGNING_KEY = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4\n-----END PRIVATE KEY-----\n"
SECRET = {"auth-key": "k" * 32, "signing-key.pem": SIGNING_KEY, "nats-password": "Aaaaaaaaaaaaaaa1"}
EXISTING = {"secret": {"existing": "keys"}}
# The Kubernetes versions that the chart says it works with: the oldest, and the newest that has a schema.
VERSIONS = ["1.30", kubernetes_validate.latest_version()]
FORMS = {
    "one node": EXISTING,
    "one node with everything": {
        **EXISTING,
        "config": "runs-max = 1000\n\n[[agents]]\nname = 'a'\nprotocol = 'ag-ui'\nurl = 'http://agents/'\n",
        "image": {"repository": "registry.example/proscenium", "digest": "sha256:" + "a" * 64, "pullSecrets": ["pull"]},
        "auth": {"by": "key", "audience": "agents"},
        "env": [{"name": "ISSUER", "value": "x"}],
        "envFrom": [{"secretRef": {"name": "s3"}}],
        "extraVolumes": [{"name": "ca", "secret": {"secretName": "ca"}}],
        "extraVolumeMounts": [{"name": "ca", "mountPath": "/run/secrets/ca"}],
        "storage": {"size": "1.5Ti", "className": "fast", "annotations": {"a": "b"}},
        "tls": {"secretName": "tls"},
        "service": {"type": "LoadBalancer", "annotations": {"a": "b"}},
        "readers": {"enabled": True, "annotations": {"a": "b"}},
        "ingress": {"enabled": True, "className": "nginx", "host": "a.example", "tlsSecretName": "tls"},
        "networkPolicy": {"from": [{"namespaceSelector": {}}], "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
        "podAnnotations": {"a": "b"},
        "podLabels": {"a": "b"},
        "serviceAccount": {"name": "archive"},
    },
    "a secret that the chart makes": {"secret": {"values": SECRET}},
    "an identity provider, and no secret": {"auth": {"by": "issuer", "issuer": "https://id.example"}},
    "no tokens": {"auth": {"by": "none"}},
    "three nodes": {**EXISTING, "mode": "cluster"},
    "five nodes on other NATS servers": {
        **EXISTING,
        "mode": "cluster",
        "cluster": {"nodes": 5, "nats": {"install": False, "servers": ["tls://a:4222", "tls://b:4222"], "credsItem": "creds"}},
        "networkPolicy": {"enabled": False},
        "podDisruptionBudget": {"enabled": False},
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_the_chart_is_what_kubernetes_accepts(form):
    documents = render(**FORMS[form])
    for document, version in itertools.product(documents, VERSIONS):
        kubernetes_validate.validate(document, version, strict=True)
    names = [(it["kind"], it["metadata"]["name"]) for it in documents]
    assert len(set(names)) == len(names), names
    findings = helm.lint(str(CHART), {"image": {"repository": "a"}, **FORMS[form]}, strict=True)
    assert not [it for it in findings["messages"] if it["severity"] > 1] and not findings["errors"], findings


@pytest.mark.parametrize("form", FORMS)
def test_no_container_has_more_rights_than_it_needs(form):
    pods = [it["spec"]["template"]["spec"] for it in render(**FORMS[form]) if it["kind"] == "StatefulSet"]
    for pod in pods + [it["spec"] for it in render(**FORMS[form]) if it["kind"] == "Pod"]:
        assert pod["securityContext"]["runAsNonRoot"] and pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for it in pod["containers"]:
            rights = it["securityContext"]
            assert rights["readOnlyRootFilesystem"] and not rights["allowPrivilegeEscalation"]
            assert rights["capabilities"] == {"drop": ["ALL"]}
    for pod in pods:
        for it in pod["containers"]:
            assert {"startupProbe", "livenessProbe", "readinessProbe"} <= it.keys() and it["resources"]["limits"]["memory"]


def test_a_service_and_a_budget_select_pods_that_exist():
    documents = render(**FORMS["three nodes"], readers={"enabled": True})
    pods = [it["spec"]["template"]["metadata"]["labels"] for it in documents if it["kind"] == "StatefulSet"]
    selectors = [it["spec"]["selector"] for it in documents if it["kind"] == "Service"]
    selectors += [it["spec"]["selector"]["matchLabels"] for it in documents if it["kind"] == "PodDisruptionBudget"]
    selectors += [it["spec"]["podSelector"]["matchLabels"] for it in documents if it["kind"] == "NetworkPolicy"]
    assert len(selectors) == 4 + 2 + 2
    for selector in selectors:
        assert sum(selector.items() <= labels.items() for labels in pods) == 1, selector


def test_the_operators_objects_name_what_the_chart_has():
    of_operator = {"serviceMonitor": {"enabled": True, "tokenSecret": {"name": "admin"}}, "prometheusRule": {"enabled": True}}
    documents = render(**EXISTING, **of_operator, dashboards={"enabled": True})
    monitor = one(documents, "ServiceMonitor")
    service = one(documents, "Service")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    assert monitor["spec"]["endpoints"][0]["authorization"]["credentials"] == {"name": "admin", "key": "token"}
    # The template markers of alerts are those of Prometheus, which Helm must leave.
    assert "{{ $labels" in str(one(documents, "PrometheusRule")["spec"]["groups"])
    files = {path.name for path in (ROOT / "deploy/grafana").glob("*.json")}
    assert one(documents, "ConfigMap", "proscenium-dashboards")["data"].keys() == files and len(files) == 4


WRONG = [
    ({"image": {"repository": ""}}, "image.repository is empty"),
    ({"imagee": {}}, "imagee"),
    ({"mode": "three"}, "'single', 'cluster'"),
    ({}, "secret.existing"),
    ({"secret": {"existing": "a", "values": SECRET}}, "both set"),
    ({"secret": {"values": {"auth-key": "short"}}}, "minLength: got 5, want 32"),
    ({"secret": {"values": {"signing-key.pem": SIGNING_KEY}}}, "auth-key"),
    ({"mode": "cluster", "secret": {"values": {"auth-key": "k" * 32}}}, "openssl genpkey"),
    ({"mode": "cluster", "secret": {"values": {**SECRET, "nats-password": "a b"}}}, "/secret/values/nats-password"),
    ({"mode": "cluster", "secret": {"values": {k: SECRET[k] for k in ("auth-key", "signing-key.pem")}}}, "nats-password"),
    ({**EXISTING, "mode": "cluster", "cluster": {"nodes": 1}}, "/cluster/nodes"),
    ({**EXISTING, "mode": "cluster", "cluster": {"name": "a.b"}}, "/cluster/name"),
    ({**EXISTING, "mode": "cluster", "cluster": {"nats": {"install": False}}}, "cluster.nats.servers is empty"),
    ({**EXISTING, "mode": "cluster", "cluster": {"nats": {"servers": ["nats://a"]}}}, "Set cluster.nats.install to false"),
    ({**EXISTING, "mode": "cluster", "cluster": {"nats": {"servers": ["http://a"], "install": False}}}, "/cluster/nats/servers/0"),
    ({**EXISTING, "mode": "cluster", "tls": {"secretName": "a"}}, "tls.secretName is for one node"),
    ({"auth": {"by": "issuer"}}, "auth.issuer is empty"),
    ({"auth": {"by": "issuer", "issuer": "http://id.example"}}, "/auth/issuer"),
    ({**EXISTING, "storage": {"size": "20 GB"}}, "/storage/size"),
    ({**EXISTING, "service": {"port": 0}}, "/service/port"),
    ({**EXISTING, "ingress": {"enabled": True}}, "ingress.host is empty"),
    ({**EXISTING, "serviceMonitor": {"enabled": True}}, "serviceMonitor.tokenSecret.name"),
    ({**EXISTING, "config": {"listen": "x"}}, "/config"),
]


@pytest.mark.parametrize(("values", "named"), WRONG, ids=[named for _, named in WRONG])
def test_a_wrong_value_is_refused_by_name(values, named):
    with pytest.raises(helm.HelmError) as refused:
        render(**values)
    assert named in str(refused.value)


def test_the_plain_manifests_are_what_the_chart_renders():
    subprocess.run([ROOT / "target/python-deploy/bin/python", ROOT / "scripts/manifests", "--check"], check=True)


def test_the_chart_has_the_version_of_the_server():
    version = next(it for it in (ROOT / "Cargo.toml").read_text().splitlines() if it.startswith("version = ")).split('"')[1]
    with helm.Chart.load(str(CHART)) as chart:
        assert chart.version == version
    assert f'appVersion: "{version}"' in (CHART / "Chart.yaml").read_text()


@pytest.fixture
def start():
    """Starts processes, and ends them after the test."""
    running = []

    def begin(*command, **options) -> subprocess.Popen:
        running.append(subprocess.Popen([str(it) for it in command], stdout=subprocess.DEVNULL, **options))
        return running[-1]

    yield begin
    for process in running:
        process.terminate()
    for process in running:
        process.wait()


def addresses() -> itertools.chain:
    """Loopback addresses that no other test has: the ports of a pod are fixed."""
    net = f"127.{random.randint(1, 254)}.{random.randint(0, 255)}"
    return (f"{net}.{host}" for host in range(1, 255))


def mounts(directory) -> dict[str, str]:
    """Where the volumes of a pod are on this machine."""
    for name in ("data", "secrets", "etc"):
        (directory / name).mkdir()
    for item, text in SECRET.items():
        (directory / "secrets" / item).write_text(text)
    return {
        "/data/store": str(directory / "data/store"),
        "/run/secrets/proscenium": str(directory / "secrets"),
        "/etc/proscenium": str(directory / "etc"),
    }


def token() -> str:
    key = ROOT / "target/deploy-key"
    key.parent.mkdir(exist_ok=True)
    key.write_text(SECRET["auth-key"])
    made = [BINARY, "token", "--key", key, "--sessions", "*", "--can", "admin,read,publish", "--ttl", "1h"]
    return subprocess.run(made, check=True, capture_output=True, text=True).stdout.strip()


def test_the_pod_of_one_node_starts_and_answers_its_probes(tmp_path, start):
    documents = render(**EXISTING, config='runs-max = 3\ncors-origin = ["https://a.example"]\n')
    pod = container(one(documents, "StatefulSet"))
    address = next(addresses())
    variables = replaced(environment(pod, "proscenium-0", SECRET), {**mounts(tmp_path), "0.0.0.0": address})
    (tmp_path / "etc/proscenium.toml").write_text(one(documents, "ConfigMap")["data"]["proscenium.toml"])
    server = start(BINARY, *pod["args"], env=variables)
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        url = f"http://{address}:8787{pod[probe]['httpGet']['path']}"
        wait_for(url, lambda url=url: get(url)[0] == 200, server)
    assert get(f"http://{address}:8787/v1/runs")[0] == 401
    assert get(f"http://{address}:8787/v1/runs", token())[0] == 200
    assert oct((tmp_path / "data/store").stat().st_mode)[-3:] == "700"


def test_the_pods_of_three_nodes_are_a_cluster(tmp_path, start):
    documents = render(**EXISTING, mode="cluster")
    free = addresses()
    names = {f"proscenium-nats-{i}.proscenium-nats": next(free) for i in range(3)}
    names |= {f"proscenium-{i}.proscenium-nodes": next(free) for i in range(3)}
    nats = one(documents, "StatefulSet", "proscenium-nats")
    settings = one(documents, "ConfigMap", "proscenium-nats")["data"]["nats.conf"]
    for i in range(nats["spec"]["replicas"]):
        here = names[f"proscenium-nats-{i}.proscenium-nats"]
        file = tmp_path / f"nats-{i}.conf"
        file.write_text(settings.replace("0.0.0.0", here).replace("/data", str(tmp_path / f"nats-{i}")))
        variables = replaced(environment(container(nats), f"proscenium-nats-{i}", SECRET), names)
        server = start(ROOT / "target/nats/usr/sbin/nats-server", "-c", file, env=variables, stderr=subprocess.DEVNULL)
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            url = f"http://{here}:8222{container(nats)[probe]['httpGet']['path']}"
            if i == 2:
                wait_for(url, lambda url=url: get(url)[0] == 200, server)
    nodes = one(documents, "StatefulSet")
    urls = []
    for i in range(nodes["spec"]["replicas"]):
        directory = tmp_path / f"node-{i}"
        directory.mkdir()
        here = names[f"proscenium-{i}.proscenium-nodes"]
        variables = environment(container(nodes), f"proscenium-{i}", SECRET)
        node = start(BINARY, "serve", env=replaced(variables, {**mounts(directory), **names, "0.0.0.0": here}))
        urls.append((f"http://{here}:8787", node))
    for url, node in urls:
        ready = url + container(nodes)["readinessProbe"]["httpGet"]["path"]
        wait_for(ready, lambda ready=ready: get(ready)[0] == 200, node)
    bearer = token()
    # Each node passes a write on to the leader, and every node shows it.
    for run, (url, _) in enumerate(urls):
        wait_for(f"a write to {url}", lambda url=url, run=run: get(f"{url}/v1/runs/r{run}/facts", bearer, b'{"type":"run.started"}')[0] == 200)
    for url, node in urls:
        wait_for(f"the runs at {url}", lambda url=url: get(f"{url}/v1/runs", bearer)[1].count('"runId":"r') == 3, node)
    # The password of the NATS servers is required.
    assert "$NATS_PASSWORD" in settings and "Aaaaaaaaaaaaaaa1" not in str(documents)
