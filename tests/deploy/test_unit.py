"""The systemd unit and its drop-in for agents: the restriction itself, by the system call that newer systemd makes.

The other lines of the drop-in were tried under systemd 252, in a container; this machine may have no systemd.
"""

import configparser
import ctypes
import json
import shutil
import subprocess

import pytest
from conftest import BINARY, ROOT, get, wait_for

UNIT = ROOT / "scripts/proscenium.service"
DROP_IN = ROOT / "deploy/systemd/proscenium.service.d/agents.conf"
# From linux/prctl.h. The kernel has it since 6.3, and systemd since 254 uses it for MemoryDenyWriteExecute.
PR_SET_MDWE, PR_GET_MDWE, REFUSE_EXEC_GAIN = 65, 66, 1
libc = ctypes.CDLL(None)


def service(*files) -> dict[str, str]:
    """The settings of the service; of two lines with one name, the last one, which is enough for those that are read here."""
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str
    parser.read(files)
    return dict(parser["Service"])


def restrict(settings: dict[str, str]):
    def apply() -> None:
        if settings["MemoryDenyWriteExecute"] == "yes" and libc.prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0) != 0:
            raise OSError("the kernel refuses PR_SET_MDWE")

    return apply


def what_an_agent_says(settings: dict[str, str], directory) -> str:
    """The session after a message to an agent in Node, which a server under these settings starts."""
    agent = f"coder=acp:{shutil.which('node')} {ROOT / 'tests/clients/acp-agent.mjs'}"
    log = directory / "address"
    with log.open("w") as output:
        command = [BINARY, "serve", "--listen", "127.0.0.1:0", "--store", "memory", "--connect", agent]
        server = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL, preexec_fn=restrict(settings))
    try:
        url = wait_for("the address", lambda: log.read_text().removeprefix("listening on ").strip(), server)
        subprocess.run([BINARY, "send", "s1", "Hello", "--agent", "coder", "--url", url], check=True, capture_output=True)

        def ended() -> str:
            runs = json.loads(get(f"{url}/v1/runs?sessionId=s1")[1])["runs"]
            done = [run for run in runs if run["status"] in {"completed", "failed"}]
            return done and get(f"{url}/v1/runs/{done[0]['runId']}/activities?audience=internal")[1]

        return wait_for("the end of the turn", ended, server)
    finally:
        server.terminate()
        server.wait()


def test_the_unit_ends_agents_that_make_code_and_the_drop_in_lets_them_run(tmp_path):
    if libc.prctl(PR_GET_MDWE, 0, 0, 0, 0) < 0:
        pytest.skip("this kernel has no PR_SET_MDWE")
    assert "Turn 1: Hello" not in what_an_agent_says(service(UNIT), tmp_path)
    assert "Turn 1: Hello" in what_an_agent_says(service(UNIT, DROP_IN), tmp_path)


def test_the_drop_in_changes_only_what_agents_need():
    unit, both = service(UNIT), service(UNIT, DROP_IN)
    changed = {name for name in both if unit.get(name) != both[name]}
    named = {"BindPaths", "DynamicUser", "MemoryDenyWriteExecute", "ProtectHome", "SystemCallFilter", "User", "WorkingDirectory"}
    assert changed == named
    # Of homes, the service sees its user's alone.
    assert both["ProtectHome"] == "tmpfs" and both["BindPaths"] == both["WorkingDirectory"] == f"/home/{both['User']}"


def test_systemd_reads_the_unit_with_its_drop_in(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("this machine has no systemd-analyze")
    (tmp_path / "proscenium.service.d").mkdir()
    text = UNIT.read_text().replace("/usr/local/bin/proscenium", "/bin/true")
    (tmp_path / "proscenium.service").write_text(text)
    shutil.copy(DROP_IN, tmp_path / "proscenium.service.d")
    verify = ["systemd-analyze", "verify", "--man=no", tmp_path / "proscenium.service"]
    done = subprocess.run(verify, capture_output=True, text=True, env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:", "PATH": "/usr/bin:/bin"})
    about_it = [line for line in done.stderr.splitlines() if "proscenium.service" in line]
    assert done.returncode == 0 and not about_it, done.stderr
