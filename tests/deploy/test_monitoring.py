"""Dashboards and alerts: each metric and label is one of docs/src/reference/metrics.md, and each expression is PromQL."""

import json
import re
import subprocess

import pytest
import yaml
from conftest import ROOT

PROMTOOL = ROOT / "target/prometheus/usr/bin/promtool"
ALERTS = ROOT / "deploy/prometheus/alerts.yml"
DASHBOARDS = sorted((ROOT / "deploy/grafana").glob("*.json"))
# What Prometheus itself adds to each sample, or to a histogram.
OWN_LABELS = {"job", "instance", "le"}
NAME = re.compile(r"\b(?:proscenium|process)_[a-z_]+\b|\bup\b")


def documented() -> dict[str, set[str]]:
    """The labels of each metric, from its row. A meaning says `by owner` where a new server has no sample yet."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \| (.*) \|$", (ROOT / "docs/src/reference/metrics.md").read_text(), re.MULTILINE)
    found = {"up": set()}
    for name, kind, labels, meaning in rows:
        members = set(re.findall(r"`(\w+)`", labels)) | set(re.findall(r"by (owner|rule|result|thumb|agent|status)\b", meaning))
        parts = [f"{name}_{part}" for part in ("bucket", "sum", "count")] if kind == "histogram" else [name]
        found |= dict.fromkeys(parts, members)
    return found


METRICS = documented()
CODES = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/src/reference/problems.md").read_text(), re.MULTILINE))


def panels(file) -> list[dict]:
    return [it for it in json.loads(file.read_text())["panels"] if it["type"] != "row"]


def rules() -> list[dict]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def expressions() -> list[tuple[str, str]]:
    of_panels = [(f"{file.name}: {it['title']}", target["expr"]) for file in DASHBOARDS for it in panels(file) for target in it["targets"]]
    return of_panels + [(rule["alert"], rule["expr"]) for rule in rules()]


def test_each_metric_and_label_is_documented():
    assert len(METRICS) > 60 and len(expressions()) > 80
    for where, expression in expressions():
        used = set(NAME.findall(re.sub(r'"[^"]*"', "", expression)))
        assert used and used <= METRICS.keys(), f"{where}: {used - METRICS.keys()} is no metric"
        labels = {label for braces in re.findall(r"\{(.*?)\}", expression) for label in re.findall(r"(\w+)\s*[=!]", braces)}
        labels |= {label for names in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", expression) for label in re.split(r",\s*", names)}
        allowed = OWN_LABELS.union(*(METRICS[name] for name in used))
        assert labels <= allowed, f"{where}: {labels - allowed} is no label of {used}"
        for values in re.findall(r'code=~?"([^"]*)"', expression):
            assert set(values.split("|")) <= CODES, f"{where}: {set(values.split('|')) - CODES} is no code of a problem"


def test_each_expression_is_promql(tmp_path):
    # Grafana's variables have the forms of these values.
    texts = [re.sub(r"\$__(rate_interval|range)", "5m", expression) for _, expression in expressions()]
    as_rules = [{"record": f"rule:{number}", "expr": text} for number, text in enumerate(texts)]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": as_rules}]}))
    subprocess.run([PROMTOOL, "check", "rules", file], check=True)


def test_the_rules_of_alerts_are_valid():
    subprocess.run([PROMTOOL, "check", "rules", ALERTS], check=True)


def test_each_alert_is_quiet_and_fires_when_it_should():
    subprocess.run([PROMTOOL, "test", "rules", "alerts.test.yml"], check=True, cwd=ALERTS.parent)
    tests = yaml.safe_load((ALERTS.parent / "alerts.test.yml").read_text())["tests"]
    for alert in (rule["alert"] for rule in rules()):
        cases = [case for test in tests for case in test["alert_rule_test"] if case["alertname"] == alert]
        assert any(case["exp_alerts"] for case in cases) and any(not case["exp_alerts"] for case in cases), alert


def test_each_alert_says_what_is_wrong_and_what_to_do():
    guide = (ROOT / "docs/src/guides/watch.md").read_text()
    for rule in rules():
        assert rule["labels"]["severity"] in {"critical", "warning"} and {"summary", "description"} == rule["annotations"].keys()
        assert f"`{rule['alert']}`" in guide, f"{rule['alert']} is not in the guide"


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_a_dashboard_can_be_imported_anywhere(file):
    dashboard = json.loads(file.read_text())
    assert dashboard["uid"] == f"proscenium-{file.stem}" and "id" not in dashboard
    cells, ids = set(), [it["id"] for it in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and not own & cells, f"{panel['title']} lies over another panel"
        cells |= own
    for panel in panels(file):
        assert panel["datasource"]["uid"] == "${datasource}" and panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        for target in panel["targets"]:
            assert '$instance"' in target["expr"] and target["legendFormat"], panel["title"]
