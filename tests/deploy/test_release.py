"""What a release has: the image, the packages of Python and Rust, the chart, and checksums of all of them."""

import gzip
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from io import BytesIO
from pathlib import Path

import helm_python as helm
import pytest
from conftest import BINARY, ROOT, wait_for

WORKSPACE = tomllib.loads((ROOT / "Cargo.toml").read_text())
VERSION = WORKSPACE["workspace"]["package"]["version"]
LICENCES = {"LICENSE-APACHE", "LICENSE-MIT", "README.md"}
CONSUMER = '''
import sys
from proscenium import Run

url: str = sys.argv[1]
with Run(url, "installed", session="s1", agent="clerk") as run:
    with run.message() as message:
        message.text("From an archive.")
'''


def run(*command, **options) -> str:
    done = subprocess.run([str(it) for it in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def release(dist: Path, *arguments) -> dict[str, bytes]:
    """The files that a run of the script makes, by name."""
    paths = [Path(it) for it in run(ROOT / "scripts/release", "--dist", dist, *arguments).split()]
    listed = run("sha256sum", "--check", "SHA256SUMS", cwd=dist).splitlines()
    assert listed == [f"{path.name}: OK" for path in paths] and paths
    return {path.name: path.read_bytes() for path in paths}


@pytest.fixture(scope="module")
def image(tmp_path_factory) -> bytes:
    made = [release(tmp_path_factory.mktemp("dist"), "--only", "image", "--binary", BINARY) for _ in range(2)]
    assert made[0] == made[1], "a second run writes the same bytes"
    return made[0][f"proscenium-{VERSION}-amd64.oci.tar"]


def blobs(image: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=BytesIO(image)) as archive:
        files = {it.name: archive.extractfile(it).read() for it in archive if it.isfile()}
    for name, data in files.items():
        if name.startswith("blobs/sha256/"):
            assert hashlib.sha256(data).hexdigest() == name.removeprefix("blobs/sha256/")
    return files


def blob(files: dict[str, bytes], of: dict) -> bytes:
    data = files[f"blobs/{of['digest'].replace(':', '/')}"]
    assert len(data) == of["size"]
    return data


def test_the_image_runs_the_binary_as_its_own_user(image, tmp_path):
    files = blobs(image)
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    manifest = json.loads(blob(files, json.loads(files["index.json"])["manifests"][0]))
    config = json.loads(blob(files, manifest["config"]))
    of_process = config["config"]
    assert (of_process["Entrypoint"], of_process["Cmd"]) == (["/usr/local/bin/proscenium"], ["serve"])
    assert of_process["User"] == "10001:10001" and of_process["Volumes"] == {"/data": {}}
    assert of_process["Labels"]["org.opencontainers.image.version"] == VERSION
    assert of_process["Labels"]["org.opencontainers.image.licenses"] == "MIT OR Apache-2.0"
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert all(name.split("=")[0] == "PATH" or name in dockerfile for name in of_process["Env"])

    layers = [gzip.decompress(blob(files, it)) for it in manifest["layers"]]
    assert [f"sha256:{hashlib.sha256(it).hexdigest()}" for it in layers] == config["rootfs"]["diff_ids"]
    for layer in layers:
        with tarfile.open(fileobj=BytesIO(layer)) as archive:
            # Nothing in it comes with the rights of another user.
            assert all(it.mode & 0o6000 == 0 and it.uid in {0, 10001} for it in archive)
            archive.extractall(tmp_path, filter="fully_trusted")
    assert (tmp_path / "etc/ssl/certs/ca-certificates.crt").read_text().count("BEGIN CERTIFICATE") > 100
    assert "libc6 " in (tmp_path / "usr/share/proscenium/debian-packages").read_text()
    # As the image's user, in the image's file system.
    as_user = ["unshare", "--map-root-user", "--root", tmp_path, *of_process["Entrypoint"], "--version"]
    assert run(*as_user).startswith(f"proscenium {VERSION} ")


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> Path:
    """The packages that need no npm; those have their tests in tests/clients."""
    made = []
    for _ in range(2):
        dist = tmp_path_factory.mktemp("packages")
        run(ROOT / "scripts/packages", "--dist", dist, "python", "rust", "chart", env=environment())
        made.append({path.name: path.read_bytes() for path in dist.iterdir()})
    assert made[0].keys() == made[1].keys()
    assert not [name for name in made[0] if made[0][name] != made[1][name]], "a second run writes the same bytes"
    return dist


def environment() -> dict[str, str]:
    return {**os.environ, "PROSCENIUM_DEPLOY_PYTHON": sys.executable, "CARGO_NET_OFFLINE": "true"}


def test_the_python_archives_have_the_library_and_no_more(packages):
    with zipfile.ZipFile(packages / f"proscenium_client-{VERSION}-py3-none-any.whl") as wheel:
        names = set(wheel.namelist())
        metadata = wheel.read(f"proscenium_client-{VERSION}.dist-info/METADATA").decode()
    sources = {f"proscenium/{path.name}" for path in (ROOT / "sdk/python/src/proscenium").iterdir() if path.is_file()}
    info = f"proscenium_client-{VERSION}.dist-info"
    of_wheel = {f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "licenses/LICENSE-APACHE", "licenses/LICENSE-MIT")}
    assert names == sources | of_wheel
    assert "License-Expression: MIT OR Apache-2.0" in metadata and "# " in metadata.split("\n\n", 1)[1]
    with tarfile.open(packages / f"proscenium_client-{VERSION}.tar.gz") as archive:
        names = {it.name.split("/", 1)[1] for it in archive if it.isfile()}
    assert names == {f"src/{name}" for name in sources} | LICENCES | {"PKG-INFO", "pyproject.toml"}


def test_a_crate_has_its_sources_and_licences_and_no_more(packages):
    members = [*(ROOT / "crates").iterdir(), ROOT / "sdk/rust"]
    for member in members:
        name = tomllib.loads((member / "Cargo.toml").read_text())["package"]["name"]
        with tarfile.open(packages / f"{name}-{VERSION}.crate") as archive:
            names = {it.name.split("/", 1)[1] for it in archive}
            manifest = tomllib.loads(archive.extractfile(f"{name}-{VERSION}/Cargo.toml").read().decode())["package"]
        assert names >= LICENCES | {"src/lib.rs"}, name
        assert all(it.startswith("src/") or it in LICENCES or it.startswith(("Cargo.", ".cargo_vcs")) for it in names), names
        assert {"description", "license", "readme", "rust-version"} <= manifest.keys(), name
    with tarfile.open(packages / f"proscenium-{VERSION}.crate") as archive:
        names = {it.name.split("/", 1)[1] for it in archive}
    assert names >= LICENCES | {"src/main.rs", "build.rs", "schema/openapi.json", "web-demo/index.html"}
    assert not [it for it in names if it.split("/")[0] in {"tests", "deploy", "sdk", "scripts", "benches", "target"} or "node_modules" in it]


def test_an_empty_project_resolves_the_crates_of_the_archives(packages, tmp_path):
    names = [path.name.removesuffix(f"-{VERSION}.crate") for path in packages.glob("*.crate")]
    for name in names:
        with tarfile.open(packages / f"{name}-{VERSION}.crate") as archive:
            archive.extractall(tmp_path, filter="data")
    manifest = {"package": '[package]\nname = "empty"\nversion = "0.0.0"\nedition = "2024"\n'}
    wanted = "".join(f'{name} = "{VERSION}"\n' for name in names)
    patches = "".join(f'{name} = {{ path = "../{name}-{VERSION}" }}\n' for name in names)
    (tmp_path / "empty/src").mkdir(parents=True)
    (tmp_path / "empty/src/lib.rs").touch()
    (tmp_path / "empty/Cargo.toml").write_text(f"{manifest['package']}[dependencies]\n{wanted}[patch.crates-io]\n{patches}")
    (tmp_path / "empty/Cargo.lock").write_bytes((ROOT / "Cargo.lock").read_bytes())
    # The dependencies of all systems, which a build for one has not fetched.
    run("cargo", "fetch", "--quiet", "--locked", cwd=ROOT)
    found = json.loads(run("cargo", "metadata", "--offline", "--format-version", "1", cwd=tmp_path / "empty"))
    ours = {it["name"]: it["manifest_path"] for it in found["packages"] if it["name"] in names}
    assert ours.keys() == set(names) and all(str(tmp_path) in path for path in ours.values())


def test_an_empty_environment_installs_the_python_archives_and_uses_them(packages, tmp_path):
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    run(*pip, packages / f"proscenium_client-{VERSION}-py3-none-any.whl")
    consumer = tmp_path / "consumer.py"
    consumer.write_text(CONSUMER)
    run(ROOT / "target/python-sdk/bin/mypy", "--strict", "--python-executable", python, "--cache-dir", ROOT / "target/mypy", consumer)
    # The archive of the sources makes the same library.
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path / "again", packages / f"proscenium_client-{VERSION}.tar.gz")
    with zipfile.ZipFile(next((tmp_path / "again").iterdir())) as again:
        with zipfile.ZipFile(packages / f"proscenium_client-{VERSION}-py3-none-any.whl") as first:
            assert {name: again.read(name) for name in again.namelist()} == {name: first.read(name) for name in first.namelist()}

    log = tmp_path / "address"
    with log.open("w") as output:
        server = subprocess.Popen([BINARY, "serve", "--listen", "127.0.0.1:0", "--store", "memory"], stdout=output)
    try:
        url = wait_for("the address", lambda: log.read_text().removeprefix("listening on ").strip(), server)
        run(python, consumer, url)
        assert "From an archive." in run(BINARY, "tail", "installed", "--url", url)
    finally:
        server.terminate()
        server.wait()


def test_the_chart_of_the_archive_renders(packages):
    with helm.Chart.load(str(packages / f"proscenium-{VERSION}-chart.tgz")) as chart:
        values = {"image": {"repository": "a"}, "secret": {"existing": "a"}, "dashboards": {"enabled": True}, "prometheusRule": {"enabled": True}}
        files = chart.render(values, name="a")
    assert "ProsceniumDown" in files["proscenium/templates/monitoring.yaml"]
