#!/usr/bin/env python3
"""Compare Proscenium with its peers: one load generator, one run, one table of ratios.

The script starts Proscenium and every installed peer, pins each to one core and fanbench to another, and measures them in
turn, round after round, so that changes of the machine affect all of them. It prints the median of each figure and its ratio
to the first peer (durable-streams). All traffic is on loopback, and every test has limits of messages and time.

  scripts/peers.py --fanbench PATH [--rounds 3] [--only fan,many,history,idle,stalled] [--servers proscenium,durable-streams]
                   [--dialect ag-ui] [--dialect ai-sdk]

The table goes to standard output, and each measurement to standard error.

The script expects the build that is shipped: scripts/pgo. It finds peers on PATH (add a directory with --path): durable-streams-server (cargo install durable-streams@0.1.5),
nginx with the nchan module (Debian: nginx-core libnginx-mod-nchan), s2 (cargo install s2-cli).
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

FACT = '{"type":"text.delta","messageId":"m","partId":"p","payload":{"text":"{payload}"}}'


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Peer:
    """A server, with the command that starts it and the arguments of fanbench for it."""

    def __init__(self, name, command, fanbench, batch=None, child=False):
        self.name, self.command, self.fanbench, self.batch, self.child = name, command, fanbench, batch or [], child

    def start(self, core):
        self.dir = tempfile.mkdtemp(prefix="peers-")
        self.port = free_port()
        command = self.command(self.port, self.dir)
        self.process = subprocess.Popen(["taskset", "-c", str(core), *command], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, cwd=self.dir)
        for _ in range(400):
            try:
                socket.create_connection(("127.0.0.1", self.port), 0.2).close()
                break
            except OSError:
                time.sleep(0.05)
        else:
            raise SystemExit(f"{self.name} did not start")
        time.sleep(0.5)

    def pids(self):
        """Return the ids of the process and its children: nginx serves from a child process."""
        found = [self.process.pid]
        if self.child:
            listed = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True).stdout
            found += [int(pid) for pid in listed.split()]
        return ",".join(map(str, found))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


def nginx(port, directory):
    modules = "/usr/lib/nginx/modules"
    config = pathlib.Path(directory, "nginx.conf")
    config.write_text(f"""
load_module {modules}/ngx_nchan_module.so;
daemon off; worker_processes 1; pid {directory}/pid; error_log {directory}/error.log;
worker_rlimit_nofile 65536;
events {{ worker_connections 32768; }}
http {{
  access_log off; client_body_temp_path {directory}; proxy_temp_path {directory}; fastcgi_temp_path {directory};
  uwsgi_temp_path {directory}; scgi_temp_path {directory}; keepalive_requests 100000000; client_max_body_size 64m;
  nchan_shared_memory_size 1024M;
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location ~ /pub/(\\w+)$ {{ nchan_publisher; nchan_channel_id $1; nchan_message_buffer_length 100000; nchan_message_timeout 1h; }}
    location ~ /sub/(\\w+)$ {{ nchan_subscriber; nchan_channel_id $1; nchan_subscriber_first_message oldest; }}
  }}
}}
""")
    return ["nginx", "-c", str(config), "-e", f"{directory}/error.log"]


# What a reader of a dialect asks for.
DIALECTS = {"ag-ui": "format=ag-ui&protocolVersion=1.0", "ai-sdk": "format=ai-sdk&version=7"}


def proscenium(name, binary, arguments, frames="frames=activities"):
    return Peer(name, lambda port, d: [binary, "serve", "--listen", f"127.0.0.1:{port}", "--data-dir", f"{d}/data", *arguments],
                ["--pub-header", "Content-Type: application/json", "--publish", "POST /v1/runs/c{ch}/facts",
                 "--sub", f"GET /v1/runs/c{{ch}}/stream?{frames}&audience=user", "--body", FACT],
                ["--open", "[", "--join", ",", "--close", "]"])


def peers(args):
    json_header = ["--pub-header", "Content-Type: application/json"]
    ours = args.binary
    builds = [spec.partition("=") for spec in args.also]
    own = {"proscenium": ours, **{name: binary for name, _, binary in builds}}
    dialects = {f"{name}:{dialect}": (binary, DIALECTS[dialect]) for name, binary in own.items() for dialect in args.dialect}
    found = [
        *(proscenium(name, binary, args.serve.split()) for name, binary in own.items()),
        *(proscenium(name, binary, args.serve.split(), frames) for name, (binary, frames) in dialects.items()),
        Peer("durable-streams", lambda port, d: ["durable-streams-server", "--port", str(port), "--data-dir", f"{d}/data", "--durability", "wal"],
             [*json_header, "--init", "PUT /c{ch}", "--publish", "POST /c{ch}", "--sub", "GET /c{ch}?offset=-1&live=sse",
              "--body", '{"t":"{payload}"}'],
             ["--open", "[", "--join", ",", "--close", "]"]),
        Peer("floor", lambda port, d: [args.floor, f"127.0.0.1:{port}"],
             ["--publish", "POST /c{ch}", "--sub", "GET /c{ch}", "--body", '{"t":"{payload}"}']),
        Peer("nchan", nginx, ["--publish", "POST /pub/c{ch}", "--sub", "GET /sub/c{ch}"], child=True),
        Peer("s2-lite", lambda port, d: ["s2", "lite", "--port", str(port)],
             [*json_header, "--pub-header", "s2-basin: bench-basin", "--sub-header", "s2-basin: bench-basin",
              "--publish", "POST /v1/streams/c{ch}/records", "--sub", "GET /v1/streams/c{ch}/records?seq_num=0",
              "--body", '{"records":[{"body":"{payload}"}]}']),
    ]
    wanted = args.servers.split(",") if args.servers else None
    tools = {**own, **{name: binary for name, (binary, _) in dialects.items()}, "durable-streams": "durable-streams-server", "floor": args.floor, "nchan": "nginx", "s2-lite": "s2"}
    named = [name for name, _, _ in builds] + list(dialects)
    return [p for p in found if (not wanted or p.name in wanted or p.name in named) and shutil.which(tools[p.name])]


# name: description, arguments of fanbench, whether requests batch messages if the server supports that
TESTS = {
    "fan": ("1 x 1000 readers, 50 msg/s", ["--channels", "1", "--subs", "1000", "--rate", "50", "--messages", "300"], False),
    "fanout": ("1 x 1000 readers, flat out", ["--channels", "1", "--subs", "1000", "--rate", "0", "--messages", "3000"], False),
    "many": ("500 x 1 reader, 20 msg/s", ["--channels", "500", "--subs", "1", "--rate", "20", "--messages", "120"], False),
    "manyout": ("500 x 1 reader, flat out", ["--channels", "500", "--subs", "1", "--rate", "0", "--messages", "120"], False),
    "bodies": ("8 x 1 reader, 100 msg a request, flat out", ["--channels", "8", "--subs", "1", "--rate", "0", "--messages", "20000"], True),
    "history": ("20,000 messages x 10 readers", ["--channels", "1", "--subs", "10", "--rate", "0", "--messages", "20000", "--history"], True),
    "idle": ("2000 idle streams", ["--channels", "2000", "--subs", "1", "--idle", "3"], False),
    "stalled": ("100 readers beside 200 stalled", ["--channels", "1", "--subs", "300", "--stalled", "200", "--rate", "0", "--messages", "20000"], True),
}


def measure(args, peer, test, first):
    _, arguments, batched = TESTS[test]
    batch = ["--batch", "100", *peer.batch] if batched and peer.batch else []
    command = ["taskset", "-c", str(args.load_core), args.fanbench, "--name", peer.name, "--addr", f"127.0.0.1:{peer.port}",
               "--pid", peer.pids(), "--first", str(first), *arguments, *peer.fanbench, *batch]
    done = subprocess.run(command, capture_output=True, text=True, timeout=args.timeout)
    if done.returncode or not done.stdout.strip():
        return {"failed": done.stderr.strip()[-300:]}
    return json.loads(done.stdout)


def prepare(peer):
    if peer.name == "s2-lite":
        import urllib.request
        body = json.dumps({"basin": "bench-basin", "config": {"create_stream_on_append": True, "create_stream_on_read": True}})
        request = urllib.request.Request(f"http://127.0.0.1:{peer.port}/v1/basins", body.encode(), {"content-type": "application/json"})
        urllib.request.urlopen(request, timeout=5).read()


FIGURES = {
    "idle": [("KiB/conn", lambda r: r["kib_per_connection"])],
    "history": [("cpu us/delivery", lambda r: r["server_cpu_us_per_delivery"]), ("deliveries/s", lambda r: r["deliver_per_s"])],
    "*": [("cpu us/delivery", lambda r: r["server_cpu_us_per_delivery"]), ("p50 us", lambda r: r["latency_us"]["p50"]),
          ("p99 us", lambda r: r["latency_us"]["p99"]), ("deliveries/s", lambda r: r["deliver_per_s"])],
    "stalled": [("cpu us/delivery", lambda r: r["server_cpu_us_per_delivery"]), ("p99 us", lambda r: r["latency_us"]["p99"]),
                ("rss MiB", lambda r: r["rss_kib"] / 1024)],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fanbench", default=os.environ.get("FANBENCH", "fanbench"), help="the load generator")
    parser.add_argument("--floor", default="fanout-floor", help="the kernel's floor: one blocking write a delivery, nothing else")
    parser.add_argument("--binary", default=str(pathlib.Path(__file__).resolve().parent.parent / "target/pgo/proscenium"))
    parser.add_argument("--serve", default="", help="further arguments of `proscenium serve`")
    parser.add_argument("--also", action="append", default=[], metavar="NAME=BINARY",
                        help="a further Proscenium build to measure, such as one with another allocator")
    parser.add_argument("--dialect", action="append", default=[], choices=DIALECTS,
                        help="also measure readers of this dialect; may repeat")
    parser.add_argument("--path", action="append", default=[], help="a directory with peers")
    parser.add_argument("--servers", help="comma-separated; by default all installed servers")
    parser.add_argument("--only", help="comma-separated tests; by default all: " + ", ".join(TESTS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--server-core", type=int, default=0)
    parser.add_argument("--load-core", type=int, default=1)
    parser.add_argument("--timeout", type=int, default=180, help="time limit of one measurement, in seconds")
    args = parser.parse_args()
    os.environ["PATH"] = os.pathsep.join([*args.path, os.environ["PATH"]])
    tests = args.only.split(",") if args.only else list(TESTS)
    servers = peers(args)
    results = {}
    for round_number in range(args.rounds):
        for test in tests:
            for peer in servers:
                peer.start(args.server_core)
                try:
                    prepare(peer)
                    result = measure(args, peer, test, round_number * 100000)
                except subprocess.TimeoutExpired:
                    result = {"failed": "timeout"}
                finally:
                    peer.stop()
                results.setdefault((test, peer.name), []).append(result)
                # Print each measurement at once, so that an interrupted run keeps its results.
                print(json.dumps({"round": round_number, "test": test, "server": peer.name, **result}), file=sys.stderr, flush=True)
    report(args, tests, servers, results)


def report(args, tests, servers, results):
    base = next((p.name for p in servers if p.name == "durable-streams"), servers[0].name)
    print(f"median of {args.rounds}; server on core {args.server_core}, load on core {args.load_core}; ratio to {base} in brackets")
    for test in tests:
        print(f"\n{test}: {TESTS[test][0]}")
        for figure, of in FIGURES.get(test, FIGURES["*"]):
            def median(name):
                values = [of(r) for r in results[test, name] if "failed" not in r]
                return statistics.median(values) if values else None
            cells = []
            for peer in servers:
                value, against = median(peer.name), median(base)
                ratio = f" ({value / against:.2f})" if value is not None and against else ""
                cells.append(f"{peer.name} {'failed' if value is None else f'{value:,.2f}'}{ratio}")
            print(f"  {figure:16} " + "   ".join(cells))
        for peer in servers:
            for r in results[test, peer.name]:
                bad = {k: r[k] for k in ("lost", "disorder", "errors", "refused") if r.get(k)}
                if "failed" in r or bad:
                    print(f"  ! {peer.name}: {r.get('failed') or bad}")


if __name__ == "__main__":
    main()
