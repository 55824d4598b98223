"""What pages say of files that no other test reads."""

import re

from conftest import ROOT


def lines(name: str) -> int:
    """The lines that are neither blank nor a comment."""
    text = re.sub(r"/\*.*?\*/", "", (ROOT / "examples/comparison" / name).read_text(), flags=re.DOTALL)
    return sum(bool(line.strip()) and not line.strip().startswith("//") for line in text.splitlines())


def test_the_comparison_counts_the_lines_of_its_examples():
    rows = dict(re.findall(r"^\| `(with-\w+\.mjs)`[^|]*\| (\d+) \|", (ROOT / "docs/src/why.md").read_text(), re.MULTILINE))
    assert rows == {name: str(lines(name)) for name in ("with-redis.mjs", "with-proscenium.mjs")}


def test_every_page_for_operators_names_files_that_exist():
    for page in ("guides/kubernetes.md", "guides/watch.md", "guides/install.md", "why.md"):
        for name in re.findall(r"`((?:deploy|examples|scripts)/[\w./-]+)`", (ROOT / "docs/src" / page).read_text()):
            assert (ROOT / name).exists(), f"{page}: {name}"
