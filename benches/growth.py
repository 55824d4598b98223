#!/usr/bin/env python3
"""Measure how the costs of a server grow, and draw the curves of docs/src/benchmarks.md.

  benches/growth.py measure [--fanbench PATH --floor PATH] [--only readers,stalled,runs,history,resume,session,idle] [--small]
  benches/growth.py draw

`measure` starts a server for each curve, pinned to one core, and loads it from another. It writes the figures to
docs/src/pictures/growth.json, curve by curve. `draw` turns that file into SVG pictures; it needs matplotlib. All traffic
is on loopback. `--small` takes the first two points of each curve. The number of readers is limited by the open files
that a process may have.
"""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIGURES = ROOT / "docs/src/pictures/growth.json"
SERVER_CORE, LOAD_CORE = 0, 1
JSON = {"content-type": "application/json"}
NDJSON = {"content-type": "application/x-ndjson"}


class Server:
    """A server on an empty data directory, with the CPU time, memory and disk that it takes."""

    def __init__(self, binary, *arguments):
        self.directory = tempfile.TemporaryDirectory(prefix="growth-", dir=ROOT / "target")
        self.process = subprocess.Popen(
            ["taskset", "-c", str(SERVER_CORE), binary, "serve", "--listen", "127.0.0.1:0", "--data-dir", self.directory.name, *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        found = re.search(r"http://([\d.]+):(\d+)", self.process.stdout.readline())
        self.host, self.port = found[1], int(found[2])
        self.client = http.client.HTTPConnection(self.host, self.port, timeout=120)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        self.directory.cleanup()

    def cpu(self):
        """Return the seconds of CPU time so far, of the threads that live."""
        threads = pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

    def resident(self):
        """Return the resident memory in KiB."""
        return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{self.process.pid}/status").read_text())[1])

    def disk(self):
        files = [path.stat() for path in pathlib.Path(self.directory.name).rglob("*") if path.is_file()]
        return sum(file.st_blocks * 512 for file in files)

    def request(self, method, path, body=None, headers=JSON):
        self.client.request(method, path, body, headers)
        answer = self.client.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{method} {path} was answered {answer.status}: {content[:300]!r}")
        return content

    def publish(self, run, facts, query=""):
        self.request("POST", f"/v1/runs/{run}/facts{query}", json.dumps(facts))

    def stream(self, path, *headers):
        """Open a stream and return its socket."""
        connection = socket.create_connection((self.host, self.port), timeout=120)
        connection.sendall("\r\n".join([f"GET {path} HTTP/1.1", f"host: {self.host}:{self.port}", *headers, "", ""]).encode())
        return connection

    def subscribe(self, message):
        """Subscribe on a WebSocket of its own, and return its socket."""
        connection = self.stream("/v1/ws", "connection: upgrade", "upgrade: websocket", "sec-websocket-version: 13",
                                 "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==")
        if not (head := connection.recv(4096)).startswith(b"HTTP/1.1 101 "):
            raise SystemExit(f"the upgrade was refused: {head!r}")
        # A short text frame of a client (RFC 6455, section 5.2), with a mask that changes no byte.
        text = json.dumps(message).encode()
        connection.sendall(bytes([0x81, 0x80 | len(text), 0, 0, 0, 0]) + text)
        return connection

    def join(self, path, logs=1):
        """Return the milliseconds from the request of a stream to the `Hydrated` frame of the last of its logs."""
        begun, name, hydrated, end = time.monotonic(), b'"Hydrated"', 0, b""
        with self.stream(path) as connection:
            while hydrated < logs:
                if not (got := connection.recv(1 << 20)):
                    raise SystemExit(f"{path} ended before all logs were hydrated")
                # The name may lie across two parts, but not in the end of one.
                part = end + got
                hydrated += part.count(name)
                end = part[1 - len(name):]
        return (time.monotonic() - begun) * 1000


def median_of(count, of):
    found = sorted(of() for _ in range(count))
    return found[len(found) // 2]


def settle(server):
    """Wait until the server uses no CPU time, for example for checkpoints and compaction."""
    before = server.cpu()
    for _ in range(300):
        time.sleep(1)
        now = server.cpu()
        if now - before < 0.02:
            break
        before = now
    # The server has closed the connection if this took long.
    server.client.close()


def fan(options, server, path, publish, *arguments):
    """Have fanbench publish to one channel and read it, and return its figures."""
    done = subprocess.run(
        ["taskset", "-c", str(LOAD_CORE), options.fanbench, "--addr", f"127.0.0.1:{server.port}", "--pid", str(server.process.pid),
         "--channels", "1", "--patience", "30", "--publish", publish, "--sub", f"GET {path}", "--pub-header", "Content-Type: application/json",
         "--body", '{"type":"text.delta","messageId":"m","partId":"p","payload":{"text":"{payload}"}}', *map(str, arguments)],
        capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


OURS = ("/v1/runs/c{ch}/stream?frames=activities&audience=user", "POST /v1/runs/c{ch}/facts")


def readers(options):
    """Deliveries a second stay the same: more readers, fewer facts."""
    for count in options.points(10, 100, 1_000, 5_000, 10_000, 19_000):
        rate = max(1, 20_000 // count)
        load, row = ("--subs", count, "--rate", rate, "--messages", rate * 8), {}
        with Server(options.binary) as server:
            figures = {"proscenium": fan(options, server, *OURS, *load)}
            row["resident memory, MiB"] = figures["proscenium"]["rss_kib"] / 1024
        if options.floor:
            with floor(options.floor) as server:
                figures["floor"] = fan(options, server, "/c{ch}", "POST /c{ch}", *load)
        for name, figure in figures.items():
            row[f"{name}: CPU per delivery, µs"] = figure["server_cpu_us_per_delivery"]
            row[f"{name}: p99, ms"] = figure["latency_us"]["p99"] / 1000
        yield count, row


@contextlib.contextmanager
def floor(command):
    """Run the kernel's floor: one blocking write a delivery."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(["taskset", "-c", str(SERVER_CORE), command, f"127.0.0.1:{port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    try:
        yield argparse.Namespace(port=port, process=process)
    finally:
        process.kill()
        process.wait()


def stalled(options):
    """2,000 healthy readers of a run. Beside them, others stop reading: half on the same run, half while they join 60 MiB."""
    without = None
    for count in options.points(0, 500, 1_000, 2_000):
        with Server(options.binary) as server:
            for at in range(600):
                server.publish("long", [{"type": "text.final", "messageId": f"m{at}", "payload": {"text": "x" * 100_000}}])
            settle(server)
            joining = [server.stream("/v1/runs/long/stream?audience=user") for _ in range(count // 2)]
            figures = fan(options, server, *OURS, "--subs", 2_000 + count // 2, "--stalled", count // 2, "--rate", 5, "--messages", 60)
            without = without or figures["rss_kib"]
            row = {"p99 of the healthy, ms": figures["latency_us"]["p99"] / 1000}
            yield count, row | {"memory of one stalled, KiB": max(0, figures["rss_kib"] - without) / max(1, count)}
            for stream in joining:
                stream.close()


def runs(options):
    """Each run has a session of its own, and stays on disk; 1,000 further facts go to runs all over the range."""
    with Server(options.binary) as server:
        made = 0
        for count in options.points(10, 100, 1_000, 10_000, 100_000):
            for at in range(made, count):
                server.publish(f"r{at}", [{"type": "run.started"}, {"type": "text.final", "messageId": "m", "payload": {"text": "hello"}}], f"?sessionId=s{at}")
            made = count
            settle(server)
            before = server.cpu()
            for at in range(1_000):
                server.publish(f"r{at * 7919 % count}", [{"type": "text.delta", "messageId": f"n{at}", "payload": {"text": "x"}}])
            fact = (server.cpu() - before) * 1e3

            def listed():
                begun = time.monotonic()
                server.request("GET", "/v1/runs?limit=100", headers={})
                return (time.monotonic() - begun) * 1000
            yield count, {"CPU of a POST of one fact, µs": fact, "a page of 100 runs, ms": median_of(9, listed), "resident memory, MiB": server.resident() / 1024}


def history(options):
    """One call reports its progress, so the visible state does not grow with the log."""
    with Server(options.binary) as server:
        server.publish("long", [{"type": "tool.started", "toolCallId": "c", "audience": "user", "payload": {"toolName": "dig"}}])
        made = 1
        for count in options.points(1_000, 10_000, 100_000, 1_000_000, 10_000_000):
            line = '{"type":"tool.progress","toolCallId":"c","audience":"user","payload":{"toolName":"dig","progress":0.5,"message":"%06d"}}\n'
            while made < count:
                group = min(count - made, 50_000)
                server.request("POST", "/v1/runs/long/facts", "".join(line % (n % 7) for n in range(group)).encode(), NDJSON)
                made += group
            settle(server)

            def events():
                begun = time.monotonic()
                server.request("GET", "/v1/runs/long/events?limit=100", headers={})
                return (time.monotonic() - begun) * 1000
            joined = median_of(9, lambda: server.join("/v1/runs/long/stream?audience=user"))
            yield count, {"join by activities, ms": joined, "first 100 events by REST, ms": median_of(9, events),
                          "disk, bytes a fact": server.disk() / count, "resident memory, MiB": server.resident() / 1024}


def resume(options):
    """A reader of the events of one agent returns at the end of a long run. Nothing before is of that agent."""
    with Server(options.binary) as server:
        made = 0
        for count in options.points(10_000, 100_000, 1_000_000):
            line = '{"type":"text.delta","messageId":"m%d","partId":"p","payload":{"text":"word "}}\n'
            while made < count:
                group = min(count - made, 50_000)
                server.request("POST", "/v1/runs/long/facts", "".join(line % (made // 50_000) for _ in range(group)).encode(), NDJSON)
                made += group
            settle(server)
            cursor = json.loads(server.request("GET", "/v1/runs/long/activities?limit=1", headers={}))["cursor"]
            server.publish("long", [{"type": "tool.started", "toolCallId": f"c{count}", "agentId": f"a{count}", "payload": {"toolName": "t"}}])
            made += 1
            settle(server)

            def resumed():
                begun, before, received = time.monotonic(), server.cpu(), bytearray()
                with server.stream(f"/v1/runs/long/stream?frames=events&agentId=a{count}&after={cursor}") as connection:
                    while b'"event":' not in received:
                        received += connection.recv(1 << 16)
                if b'"prev":0,' not in received:
                    raise SystemExit(f"the event has another prev: {received[-500:]!r}")
                return (time.monotonic() - begun) * 1000, (server.cpu() - before) * 1000
            times, costs = zip(*(resumed() for _ in range(21)))
            yield count, {"resume of a filtered reader, ms": sorted(times)[10], "CPU of a resume, ms": sorted(costs)[10]}


def session(options):
    """10,000 activities in all: the runs of one session, and their messages; 20 readers follow the session."""
    for count in options.points(1, 10, 50, 100, 1_000, 5_000, 10_000):
        with Server(options.binary) as server:
            each = 10_000 // count - 1
            for at in range(count):
                facts = [{"type": "run.started"}] + [{"type": "text.final", "messageId": f"m{n}", "payload": {"text": "hello"}} for n in range(each)]
                server.publish(f"r{at}", facts, "?sessionId=s")
            settle(server)
            def join():
                return server.join("/v1/sessions/s/stream?audience=user", count)
            first, again = join(), median_of(5, join)
            streams = [server.stream("/v1/sessions/s/stream?audience=user&after=now") for _ in range(20)]
            time.sleep(1)
            drain(streams)
            before = server.cpu()
            for at in range(300):
                server.publish(f"r{at % count}", [{"type": "text.delta", "messageId": "live", "payload": {"text": "x"}}])
                drain(streams)
            yield count, {"first join, ms": first, "further join, ms": again, "CPU of a fact with 20 readers, µs": (server.cpu() - before) / 300 * 1e6}


def drain(streams):
    """Read what has come, so that no stream stalls."""
    waiting = select.poll()
    by_number = {stream.fileno(): stream for stream in streams}
    for number in by_number:
        waiting.register(number, select.POLLIN)
    while ready := waiting.poll(0):
        for number, _ in ready:
            by_number[number].recv(1 << 20)


ORIGIN = "http://localhost:3000"
TRANSPORTS = {
    "SSE, one run": lambda server, at: server.stream("/v1/runs/shared/stream?audience=user"),
    "SSE, own runs": lambda server, at: server.stream(f"/v1/runs/own{at}/stream?audience=user"),
    "SSE of another origin": lambda server, at: server.stream("/v1/runs/shared/stream?audience=user", f"origin: {ORIGIN}"),
    "SSE as AG-UI": lambda server, at: server.stream("/v1/runs/shared/stream?audience=user&format=ag-ui"),
    "SSE, one session": lambda server, at: server.stream("/v1/sessions/shared/stream?audience=user"),
    "WebSocket, one run": lambda server, at: server.subscribe({"op": "subscribe", "id": "s", "run": "shared", "audience": "user"}),
}


def idle(options):
    """The slope of resident memory over idle streams."""
    for name, subscribe in TRANSPORTS.items():
        with Server(options.binary, "--cors-origin", ORIGIN) as server:
            server.publish("shared", [{"type": "run.started"}], "?sessionId=shared")
            streams = []

            def open_to(count):
                for at in range(len(streams), count):
                    streams.append(subscribe(server, at))
                    if not (answer := streams[-1].recv(4096)) or b"HTTP/1.1 4" in answer or b'"error"' in answer:
                        raise SystemExit(f"{name} was refused: {answer!r}")
                time.sleep(2)
                drain(streams)
                return server.resident()
            few = open_to(500)
            many = open_to(1_500 if options.small else 5_500)
            yield name, {"KiB a stream": (many - few) / (len(streams) - 500)}
            for stream in streams:
                stream.close()


CURVES = {"readers": readers, "stalled": stalled, "runs": runs, "history": history, "resume": resume, "session": session, "idle": idle}


def measure(options):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.sched_setaffinity(0, {LOAD_CORE})
    options.points = lambda *all: all[:2] if options.small else all
    figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    for name in options.only.split(","):
        figures[name] = []
        for at, row in CURVES[name](options):
            print(name, at, "  ".join(f"{key} {value:.4g}" for key, value in row.items()), flush=True)
            figures[name].append({"at": at, **{key: float(f"{value:.4g}") for key, value in row.items()}})
        if not options.small:
            FIGURES.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")


def draw(options):
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "growth", "font.size": 9, "font.family": "sans-serif"})
    from matplotlib import pyplot
    titles = {"readers": "readers of one run", "stalled": "stalled readers beside 2,000 healthy ones", "runs": "runs on one server", "history": "facts of one run", "resume": "facts before the resume", "session": "runs of one session",
              "idle": "idle streams"}
    for name, rows in json.loads(FIGURES.read_text()).items():
        keys = [key for key in rows[0] if key != "at"]
        if name == "idle":
            figure, axes = pyplot.subplots(figsize=(7, 2.2))
            axes.barh([row["at"] for row in rows], [row[keys[0]] for row in rows])
            axes.invert_yaxis()
            axes.set_xlabel(keys[0])
        else:
            units = sorted({key.rsplit(", ", 1)[1] for key in keys})
            figure, every = pyplot.subplots(1, len(units), figsize=(3.4 * len(units), 2.8), squeeze=False)
            for unit, axes in zip(units, every[0]):
                for key in (key for key in keys if key.endswith(f", {unit}")):
                    axes.plot([row["at"] for row in rows], [row[key] for row in rows], marker="o", markersize=3, label=key.rsplit(", ", 1)[0])
                axes.set(xscale="linear" if name == "stalled" else "log", xlabel=titles[name], title=unit)
                axes.set_ylim(bottom=0)
                axes.grid(alpha=0.3)
                axes.legend(frameon=False, fontsize=8)
        figure.tight_layout()
        figure.savefig(FIGURES.with_name(f"growth-{name}.svg"), metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("--binary", default=str(ROOT / "target/pgo/proscenium"))
    measuring.add_argument("--fanbench", default="fanbench", help="the load generator of the curve of readers")
    measuring.add_argument("--floor", help="the kernel's floor, drawn beside the curve of readers")
    measuring.add_argument("--only", default=",".join(CURVES))
    measuring.add_argument("--small", action="store_true", help="the first two points of each curve, and nothing written")
    measuring.set_defaults(run=measure)
    commands.add_parser("draw").set_defaults(run=draw)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
