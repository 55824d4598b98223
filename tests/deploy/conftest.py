"""Helpers of the tests of deploy/: the rendered chart, and its pods as processes of this machine.

PROSCENIUM_BIN names the server (default target/debug/proscenium). DEADLINE only ends a hang.
"""

import os
import re
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import helm_python as helm
import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
CHART = ROOT / "deploy/helm/proscenium"
BINARY = os.environ.get("PROSCENIUM_BIN", str(ROOT / "target/debug/proscenium"))
DEADLINE = int(os.environ.get("PROSCENIUM_DEADLINE_MS", "120000")) / 1000
IMAGE = "registry.example/proscenium"


def render(**values) -> list[dict]:
    """The objects of the chart with these values, and an image unless they name one."""
    with helm.Chart.load(str(CHART)) as chart:
        files = chart.render({"image": {"repository": IMAGE}, **values}, name="proscenium", namespace="default")
    return [
        document
        for name, text in sorted(files.items())
        if name.endswith(".yaml")
        for document in yaml.safe_load_all(text)
        if document
    ]


def one(documents: list[dict], kind: str, name: str = "proscenium") -> dict:
    found = [it for it in documents if (it["kind"], it["metadata"]["name"]) == (kind, name)]
    assert len(found) == 1, f"{len(found)} objects {kind} {name}"
    return found[0]


def container(stateful_set: dict) -> dict:
    return stateful_set["spec"]["template"]["spec"]["containers"][0]


def environment(of: dict, pod_name: str, secret: dict[str, str]) -> dict[str, str]:
    """The variables of a container as the kubelet gives them: `$(NAME)` is one of those before it."""
    values: dict[str, str] = {}
    for entry in of["env"]:
        source = entry.get("valueFrom", {})
        if "secretKeyRef" in source:
            text = secret[source["secretKeyRef"]["key"]]
        elif source:
            assert source["fieldRef"]["fieldPath"] == "metadata.name"
            text = pod_name
        else:
            text = re.sub(r"\$\((\w+)\)", lambda found: values[found[1]], entry["value"])
        values[entry["name"]] = text
    return values


def replaced(variables: dict[str, str], changes: dict[str, str]) -> dict[str, str]:
    """The same variables, where names and paths of the pod are those of this machine."""
    for old, new in changes.items():
        variables = {name: text.replace(old, new) for name, text in variables.items()}
    return {**variables, "PATH": os.environ["PATH"]}


def get(url: str, token: str = "", body: bytes | None = None) -> tuple[int, str]:
    """Status and body of a request: POST of JSON if there is a body."""
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {token}"} if token else {})}
    request = urllib.request.Request(url, data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def wait_for(what: str, check, *processes: subprocess.Popen):
    """Waits until `check` returns something true, and returns it; fails when a process has ended."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        if result := check():
            return result
        for process in processes:
            assert process.poll() is None, f"waiting for {what}: {process.args} ended with {process.returncode}"
        time.sleep(0.05)
    raise AssertionError(f"timed out waiting for {what}")
