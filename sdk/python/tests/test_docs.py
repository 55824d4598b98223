"""The examples of the documentation run, and do what the text says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import DEADLINE, Server

PACKAGE = Path(__file__).parents[1]
EXAMPLES = [path.read_text() for path in (PACKAGE / "examples").glob("*.py")]


def blocks(page: str) -> list[str]:
    """The Python blocks of a page that are no excerpts of the examples, which have their own tests."""
    found = re.findall(r"^```python\n(.*?)^```$", (PACKAGE / page).read_text(), re.MULTILINE | re.DOTALL)
    return [block for block in found if not any(block in example for example in EXAMPLES)]


@pytest.mark.parametrize(
    ("page", "runs"),
    [
        ("README.md", {"run-1": "completed"}),
        ("../../docs/src/guides/python.md", {"run-1": "completed", "run-2": "completed", "import-1": "completed"}),
    ],
)
def test_the_examples_of_a_page_run(own_server: Server, page: str, runs: dict[str, str]) -> None:
    script = "\n".join(blocks(page)).replace("http://127.0.0.1:8787", own_server.url)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=DEADLINE)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert {run: own_server.status(run) for run in runs} == runs
    said = own_server.get("/v1/runs/run-1/activities", surfaces="conversation")["activities"]
    assert [one["content"]["status"] for one in said] == ["complete", "complete"]


def test_the_guide_shows_the_examples() -> None:
    page = (PACKAGE / "../../docs/src/guides/python.md").read_text()
    assert page.count("```python\n") - len(blocks("../../docs/src/guides/python.md")) == 3
