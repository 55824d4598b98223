"""Reports the calls of API v1 in a project, and rewrites those that have an equivalent in API v2."""

import argparse
import pathlib
import re

REPLACEMENTS = {
    "/v1/items": "/v2/items",
    "/v1/users/me": "/v2/account",
}
CALL = re.compile(r"/v1/[a-z/]+")


def migrate(path: pathlib.Path, is_dry_run: bool) -> list[str]:
    """Returns the calls without a replacement."""
    text = path.read_text()
    unknown = [call for call in CALL.findall(text) if call not in REPLACEMENTS]
    for old, new in REPLACEMENTS.items():
        text = text.replace(old, new)
    if not is_dry_run:
        path.write_text(text)
    return unknown


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    for path in options.files:
        for call in migrate(path, options.dry_run):
            print(f"{path}: no replacement for {call}")
