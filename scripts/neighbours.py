#!/usr/bin/env python3
"""Set hostile neighbours beside other clients of a server, and measure what the others feel.

Compare builds, one neighbour after the other, each on a fresh server:

  scripts/neighbours.py --binary PATH [--also NAME=PATH …] [--only junk-sse,log] [--seconds 8]

A second client requests `/healthz` and posts a small fact at fixed times. A wait counts from the time at which the request was
due, so a stall counts for each request that it delays. The table has the waits without and with the neighbour, for each build.

Load one server for hours, with all neighbours in turns:

  scripts/neighbours.py --binary PATH --hours 1 [--serve ARGUMENTS] [--log FILE]

Producers over POST, streamed bodies and WebSocket repeat what they send, hang up, and are cut off. Readers of all kinds come
and go. Recorded runs of all sources, a connected program, a worker with approvals, and lists run beside them. Each minute has a
line. At the end the script reads every checked run: each acknowledged fact is there once and in order, and no stream lost or
repeated an event. It compares the first and the last quarter of memory, descriptors and threads. It fails if something is wrong.

One neighbour beside a server that runs already, for a debugger:

  scripts/neighbours.py --neighbour pending --port 8787 --seconds 20 < <(echo go)

All traffic is on loopback, and everything has limits of time, messages and memory. The script needs Linux and about 1,300
descriptors. `taskset -c 1` before it keeps the server and the load on one core; --server-core and --load-core part them.
"""

import argparse
import asyncio
import base64
import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import re
import resource
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
MIB = 1024 * 1024
# The longest wait for one answer, in seconds.
TIMEOUT = 20
# The largest line of a stream, and head of an answer, that a client here reads.
LINE_BYTES_MAX = 32 * MIB
# The server's limit of open files, as `ulimit -n` sets it.
FILES_MAX = 1024
FAILURES = (OSError, EOFError, TimeoutError, asyncio.TimeoutError, ValueError)


# Clients.

Answer = collections.namedtuple("Answer", "status headers body")


async def connect(port):
    return await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port, limit=LINE_BYTES_MAX), TIMEOUT)


def request_bytes(method, path, body=None, headers=()):
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "host: localhost", *(f"{name}: {value}" for name, value in dict(headers).items())]
    if body is not None:
        lines += ["content-type: application/json"] if "content-type" not in dict(headers) else []
        lines += [f"content-length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


async def read_head(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = dict((name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in head[1:] if line))
    return int(head[0].split(" ")[1]), headers


async def chunks(reader, headers):
    """Yield the pieces of a body."""
    if headers.get("transfer-encoding") == "chunked":
        while size := int(await reader.readline() or b"0", 16):
            yield await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readline()
    elif "content-length" in headers:
        yield await reader.readexactly(int(headers["content-length"]))
    elif headers.get("connection") == "close":
        while piece := await reader.read(65536):
            yield piece


async def read_answer(reader):
    status, headers = await read_head(reader)
    body = b"" if status in (204, 304) else b"".join([piece async for piece in chunks(reader, headers)])
    return Answer(status, headers, body)


class Client:
    """A client with one connection, which it keeps."""

    def __init__(self, port):
        self.port, self.writer = port, None

    async def request(self, method, path, body=None, headers=(), timeout=TIMEOUT):
        try:
            if not self.writer:
                self.reader, self.writer = await connect(self.port)
            self.writer.write(request_bytes(method, path, body, headers))
            answer = await asyncio.wait_for(read_answer(self.reader), timeout)
            if answer.headers.get("connection") == "close":
                self.close()
            return answer
        except BaseException:
            self.close()
            raise

    async def ok(self, method, path, body=None, headers=()):
        """Repeat a request that may be repeated until the server accepts it; return the answer's JSON."""
        begun = time.monotonic()
        while time.monotonic() < begun + 6 * TIMEOUT:
            with contextlib.suppress(*FAILURES):
                answer = await self.request(method, path, body, headers)
                if answer.status < 300:
                    return json.loads(answer.body) if answer.body else None
                if answer.status not in (429, 503):
                    raise AssertionError(f"{method} {path}: {answer.status} {answer.body[:300].decode(errors='replace')}")
            await asyncio.sleep(0.25)
        raise AssertionError(f"{method} {path}: no answer in {6 * TIMEOUT} s")

    async def post(self, run, facts, query=""):
        return await self.ok("POST", f"/v1/runs/{run}/facts{query}", facts)

    def close(self):
        if self.writer:
            self.writer.transport.abort()
        self.writer = None


class Stream:
    """A stream of server-sent events."""

    async def open(self, port, path, method="GET", body=None, headers=()):
        self.reader, self.writer = await connect(port)
        try:
            self.writer.write(request_bytes(method, path, body, headers))
            self.status, self.headers = await asyncio.wait_for(read_head(self.reader), TIMEOUT)
        except BaseException:
            self.close()
            raise
        return self

    async def events(self):
        """Yield each event's own id, if it has one, and its data, until the stream ends."""
        rest, at, data = b"", None, None
        async for piece in chunks(self.reader, self.headers):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                if line.startswith(b"data:"):
                    data = line[5:].strip()
                elif line.startswith(b"id:"):
                    at = line[3:].strip().decode()
                elif not line and data is not None:
                    yield at, data
                    at = data = None

    def close(self):
        self.writer.transport.abort()


class WebSocket:
    """A WebSocket whose frames have a mask of zeros, so that large messages cost nothing here."""

    async def open(self, port):
        self.reader, self.writer = await connect(port)
        key = base64.b64encode(random.randbytes(16)).decode()
        upgrade = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13", "sec-websocket-key": key}
        try:
            self.writer.write(request_bytes("GET", "/v1/ws", headers=upgrade))
            status, _ = await asyncio.wait_for(read_head(self.reader), TIMEOUT)
            if status != 101:
                raise ConnectionError(f"status {status} for a WebSocket")
        except BaseException:
            self.close()
            raise
        return self

    @staticmethod
    def frame(payload, opcode=1):
        size = len(payload)
        head = bytes([0x80 | size]) if size < 126 else struct.pack("!BH", 0xFE, size) if size < 65536 else struct.pack("!BQ", 0xFF, size)
        return bytes([0x80 | opcode]) + head + bytes(4) + payload

    async def send(self, message):
        self.writer.write(self.frame(message if isinstance(message, bytes) else json.dumps(message).encode()))
        await asyncio.wait_for(self.writer.drain(), TIMEOUT)

    async def receive(self):
        """Return the next message; EOFError at the close."""
        while True:
            opcode, size = await self.reader.readexactly(2)
            if size == 126:
                size, = struct.unpack("!H", await self.reader.readexactly(2))
            elif size == 127:
                size, = struct.unpack("!Q", await self.reader.readexactly(8))
            payload = await self.reader.readexactly(size)
            match opcode & 15:
                case 1:
                    return json.loads(payload)
                case 8:
                    raise EOFError("closed")
                case 9:
                    self.writer.write(self.frame(payload, 10))

    def close(self):
        self.writer.transport.abort()


def fact(kind, **members):
    return {"type": kind, **members}


def text(message, words):
    return fact("text.delta", messageId=message, payload={"text": words})


def sent(agent, run):
    """A control that begins a run of a connected agent."""
    return {"control": "send", "agentId": agent, "value": {"runId": run, "messages": [{"id": f"u-{run}", "role": "user", "content": "Go"}]}}


# The server.

# The programs of connected agents. They are nicer than the server, because their own work is not measured.
PROGRAMS = {
    # Answers each prompt with ten chunks.
    "polite": ("acp", r"""
while read -r line; do
  id=$(printf '%s\n' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
  case "$line" in
    *'"initialize"'*) echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"protocolVersion\":1,\"agentCapabilities\":{}}}" ;;
    *'"session/new"'*) echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"sessionId\":\"s\"}}" ;;
    *'"session/prompt"'*)
      for n in 0 1 2 3 4 5 6 7 8 9; do
        echo "{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{\"sessionId\":\"s\",\"update\":{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{\"type\":\"text\",\"text\":\"$n \"}}}}"
      done
      echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"stopReason\":\"end_turn\"}}" ;;
  esac
done"""),
    # Writes without an end, and does not read the request to stop.
    "endless": ("acp", r"""
read -r line; echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"agentCapabilities":{}}}'
read -r line; echo '{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}'
read -r line
exec yes '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"and on and on "}}}}'"""),
    # Works for a while, and says so by a file.
    "many": ("claude-stream-json", r"""
while read -r line; do
  : > "$0.$$.works"
  n=0; while [ $n -lt 20000 ]; do n=$((n + 1)); done
  sleep 2
  rm "$0.$$.works"
  echo '{"type":"result","subtype":"success","is_error":false,"session_id":"s","uuid":"r","result":"","num_turns":1}'
done"""),
    # Writes LINES large lines after the end of each turn.
    "late": ("claude-stream-json", r"""
while read -r line; do
  echo '{"type":"result","subtype":"success","is_error":false,"session_id":"s","uuid":"r","result":"","num_turns":1}'
  n=0; while [ $n -lt 64 ]; do cat "$0.line"; n=$((n + 1)); done
  : > "$0.$$.wrote"
done"""),
}
LATE_LINE_BYTES = 16 * MIB - 1


class Server:
    """A server process on an empty directory, with all agents and a limit of open files."""

    def __init__(self, binary, arguments=(), core=None, stderr=subprocess.DEVNULL):
        self.keeper = tempfile.TemporaryDirectory(prefix="neighbours-")
        self.dir = pathlib.Path(self.keeper.name)
        agents = []
        for name, (protocol, script) in PROGRAMS.items():
            file = self.dir / f"{name}.sh"
            file.write_text(script)
            agents += ["--connect", f"{name}={protocol}:nice -n 10 /bin/sh {file}"]
        (self.dir / "late.sh.line").write_bytes(b"x" * LATE_LINE_BYTES + b"\n")
        command = [binary, "serve", "--listen", "127.0.0.1:0", "--data-dir", str(self.dir / "data"), *agents, *arguments]
        if core is not None:
            command = ["taskset", "-c", str(core), *command]
        limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FILES_MAX, FILES_MAX))
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, preexec_fn=limit, cwd=self.dir)
        address = re.search(r"http://[^\s:]+:(\d+)", self.process.stdout.readline())
        # A build that dies at its first line of the log has none.
        self.port = int(address[1]) if address else 0
        self.pid = self.process.pid

    def is_alive(self):
        return self.process.poll() is None

    def status(self):
        """Return the resident memory, its peak and the threads of the process; zeros if it has ended."""
        with contextlib.suppress(OSError):
            found = dict(re.findall(r"^(VmRSS|VmHWM|Threads):\s+(\d+)", pathlib.Path(f"/proc/{self.pid}/status").read_text(), re.M))
            if found.get("VmRSS"):
                return {"rss": int(found["VmRSS"]) / 1024, "peak": int(found["VmHWM"]) / 1024, "threads": int(found["Threads"])}
        return {"rss": 0, "peak": 0, "threads": 0}

    def cpu_seconds(self):
        """Return the processor time of the process, without its children; 0 if it has ended."""
        with contextlib.suppress(OSError):
            times = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
        return 0

    def descriptors(self):
        """Count the open descriptors by kind: sockets, files of the store, and others."""
        kinds = collections.Counter(sockets=0, files=0, others=0)
        with contextlib.suppress(OSError):
            for entry in os.scandir(f"/proc/{self.pid}/fd"):
                with contextlib.suppress(OSError):
                    target = os.readlink(entry.path)
                    kinds["sockets" if target.startswith("socket:") else "files" if target.startswith("/") else "others"] += 1
        return kinds

    def stop(self):
        """End the server; return how it ended, if it did so before."""
        ended = self.process.poll()
        if ended is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()
        with contextlib.suppress(OSError):
            self.keeper.cleanup()
        return ended


# A helper process: the second client, or a neighbour. It says `ready`, waits for `go`, and prints what it found.

class Helper:
    """What a helper process knows of its task."""

    def __init__(self, args):
        self.port, self.dir, self.scale, self.seconds = args.port, args.dir, args.scale, args.seconds
        self.interval = args.interval_ms / 1000
        self.client, self.end = Client(args.port), None

    async def begin(self):
        """Report that the preparation is done, and wait for the start; False if no other round is wanted."""
        if not self.end:
            print("ready", flush=True)
        line = await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        self.end = time.monotonic() + self.seconds
        return bool(line)

    def goes_on(self):
        return time.monotonic() < self.end

    async def rest(self):
        await asyncio.sleep(max(0, self.end - time.monotonic()))

    async def erase(self, *runs):
        """Leave nothing behind, on a server that is loaded for hours."""
        for run in runs:
            with contextlib.suppress(AssertionError, *FAILURES):
                await Client(self.port).request("DELETE", f"/v1/runs/{run}")


class Process:
    """A helper process as its parent sees it."""

    async def start(self, core, arguments, ready_within=120):
        command = [sys.executable, __file__, *map(str, arguments)]
        if core is not None:
            command = ["taskset", "-c", str(core), *command]
        pipe = asyncio.subprocess.PIPE
        self.process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=MIB)
        self.is_ready = await self.line(ready_within) == b"ready\n"
        return self

    async def line(self, within):
        try:
            return await asyncio.wait_for(self.process.stdout.readline(), within)
        except asyncio.TimeoutError:
            return b""

    def go(self):
        with contextlib.suppress(OSError):
            self.process.stdin.write(b"go\n")

    async def found(self, within):
        try:
            return json.loads(await self.line(within))
        except ValueError:
            return {}

    async def stop(self):
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
        await self.process.wait()


# Connections of the second client for each kind of request, so that a request waits for the server and not for another one.
CONNECTIONS = 32


async def bystander(at):
    """Request `/healthz` and post a fact at fixed times, on connections that are open before the attack."""
    requests = {
        "healthz": ("GET", "/healthz", None, at.interval),
        "post": ("POST", "/v1/runs/bystander/facts", fact("run.status"), 2 * at.interval),
    }
    # In turns, for the server closes a connection that is idle for 10 s.
    idle = {name: collections.deque(Client(at.port) for _ in range(CONNECTIONS)) for name in requests}

    async def ask(name, due, waits):
        method, path, body, _ = requests[name]
        while not idle[name]:
            await asyncio.sleep(0.001)
        client = idle[name].popleft()
        try:
            answer = await client.request(method, path, body)
            if answer.status == 200:
                waits.append(time.monotonic() - due)
        except FAILURES:
            pass
        finally:
            idle[name].append(client)

    async def measure(name):
        begun, interval, waits, asking, number = time.monotonic(), requests[name][3], [], set(), 0
        while (due := begun + number * interval) < at.end:
            await asyncio.sleep(max(0, due - time.monotonic()))
            task = asyncio.create_task(ask(name, due, waits))
            asking.add(task)
            task.add_done_callback(asking.discard)
            number += 1
        _, unanswered = await asyncio.wait(asking, timeout=TIMEOUT) if asking else (None, ())
        for task in unanswered:
            task.cancel()
        waits.sort()
        rank = lambda share: round(1000 * waits[min(len(waits) - 1, int(share * len(waits)))], 2) if waits else None
        return {"requests": number, "failed": number - len(waits), "p50": rank(0.5), "p99": rank(0.99), "max": rank(1)}

    for name, (method, path, body, _) in requests.items():
        await asyncio.gather(*(client.request(method, path, body) for client in idle[name]))
    while await at.begin():
        print(json.dumps(dict(zip(requests, await asyncio.gather(*map(measure, requests))))), flush=True)


# The neighbours. Each prepares, begins, is hostile until its time is over, and returns what is worth a note.

JUNK = b"x" * 65536


async def write_all(at, writer, data):
    """Write again and again until the server has closed, or reads nothing for a second; return the bytes."""
    written = 0
    with contextlib.suppress(*FAILURES):
        while at.goes_on():
            writer.write(data)
            await asyncio.wait_for(writer.drain(), 1)
            written += len(data)
    writer.transport.abort()
    return written


async def flood(at, open_one, data):
    """Four connections at once, each of which is opened again when it ends."""
    async def one():
        written = opened = 0
        while at.goes_on():
            with contextlib.suppress(*FAILURES):
                writer = await open_one()
                opened += 1
                written += await write_all(at, writer, data)
            await asyncio.sleep(0.01)
        return written, opened

    await at.begin()
    written, opened = map(sum, zip(*await asyncio.gather(*(one() for _ in range(4)))))
    return {"MiB sent": written // MIB, "connections": opened}


async def junk_on_streams(at):
    await at.client.post("hostile", [text("m", "x")])

    async def open_stream():
        return (await Stream().open(at.port, "/v1/runs/hostile/stream?frames=events")).writer

    found = await flood(at, open_stream, JUNK)
    await at.erase("hostile")
    return found


async def junk_on_sockets(at):
    messages = b"".join(WebSocket.frame(b'{"op":"nonsense","id":1,"x":"%s"}' % (b"x" * size)) for size in range(200))
    pings = WebSocket.frame(b"x" * 125, 9) * 200

    async def open_socket():
        return (await WebSocket().open(at.port)).writer

    return await flood(at, open_socket, messages + pings)


async def many_readers(at):
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    await at.client.post("hostile", [text("m", "x")])
    await at.begin()
    statuses, streams = collections.Counter(), []

    async def read():
        try:
            stream = await asyncio.wait_for(Stream().open(at.port, "/v1/runs/hostile/stream"), 5)
            statuses[stream.status] += 1
            streams.append(stream)
        except FAILURES:
            statuses["none"] += 1

    opening = asyncio.gather(*(read() for _ in range(1100)))
    # As large facts as these soon fill a segment of the journal, so that the store needs another file.
    stored = 0
    for number in range(40):
        if not at.goes_on():
            break
        with contextlib.suppress(*FAILURES):
            stored += (await at.client.request("POST", "/v1/runs/large/facts", [text(f"m{number}", "x" * MIB)])).status == 200
        await asyncio.sleep(at.seconds / 60)
    await opening
    await at.rest()
    for stream in streams:
        stream.close()
    await at.erase("hostile", "large")
    return {"readers": {str(status): count for status, count in statuses.items()}, "MiB stored": stored}


async def long_filters(at):
    names = ",".join(f'"t{n:07}"' for n in range(2_000_000)).encode()
    subscribe = b'{"op":"subscribe","id":%d,"run":"bystander","frames":"events","type":[%s]}'
    answers = collections.Counter()

    async def read(socket):
        with contextlib.suppress(*FAILURES):
            while True:
                answer = await socket.receive()
                answers[answer.get("code", answer.get("op", "frame"))] += 1

    await at.begin()
    reading = []
    for number in range(16):
        if not at.goes_on():
            break
        with contextlib.suppress(*FAILURES):
            if not reading or reading[-1].done():
                socket = await WebSocket().open(at.port)
                reading.append(asyncio.create_task(read(socket)))
            await socket.send(subscribe % (number, names))
        await asyncio.sleep(0 if number < 8 else at.seconds / 16)
    await at.rest()
    for task in reading:
        task.cancel()
    return {"answers": dict(answers)}


async def endless_agent(at):
    run = f"endless-{os.getpid()}"
    await at.client.ok("POST", f"/v1/sessions/{run}/controls", sent("endless", run))

    async def state():
        # The server may have closed a connection that was idle.
        at.client.close()
        with contextlib.suppress(*FAILURES):
            answer = await at.client.request("GET", f"/v1/runs/{run}?audience=internal")
            if answer.status == 200:
                return json.loads(answer.body)
        return {"status": "none", "lastSequence": 0}

    for _ in range(100):
        await asyncio.sleep(0.1)
        if (await state())["lastSequence"] > 100:
            break
    await at.begin()
    stopped, before = time.monotonic(), (await state())["lastSequence"]
    with contextlib.suppress(*FAILURES):
        await at.client.request("POST", f"/v1/runs/{run}/controls", {"control": "interrupt"})
    await at.rest()
    after = await state()
    found = {"envelopes after the stop": after["lastSequence"] - before}
    while after["status"] not in ("cancelled", "failed", "completed", "interrupted") and time.monotonic() < stopped + 20:
        await asyncio.sleep(0.2)
        after = await state()
    found |= {"status": after["status"], "s after the stop": round(time.monotonic() - stopped, 1)}
    await at.erase(run)
    return found


async def many_sessions(at):
    await at.begin()
    runs = [f"many-{os.getpid()}-{n}" for n in range(200)]
    for run in runs:
        with contextlib.suppress(AssertionError, *FAILURES):
            await at.client.ok("POST", f"/v1/sessions/{run}/controls", sent("many", run))
    most = 0
    while at.goes_on():
        most = max(most, len(list(pathlib.Path(at.dir).glob("many.sh.*.works"))))
        await asyncio.sleep(0.1)
    await at.erase(*runs)
    return {"programs at work": most}


async def bad_requests(at):
    await at.begin()
    refused = 0
    while at.goes_on():
        with contextlib.suppress(*FAILURES):
            refused += (await at.client.request("GET", "/v1/runs/missing/events")).status == 404
        await asyncio.sleep(0.005)
    return {"404s": refused}


async def pending_actions(at):
    run, count = f"pending-{os.getpid()}", int(200_000 * at.scale)
    ask = lambda number: fact("action.required", actionId=f"a{number}", payload={"title": "x"})
    begun = time.monotonic()
    await at.client.post(run, [fact("run.started")])
    asked = 0
    while asked < count and time.monotonic() < begun + 60:
        await at.client.post(run, [ask(number) for number in range(asked, asked + 2000)])
        asked += 2000
    await at.begin()
    posted = 0
    while at.goes_on():
        with contextlib.suppress(*FAILURES):
            posted += (await at.client.request("POST", f"/v1/runs/{run}/facts", text("m", "x"))).status == 200
    with contextlib.suppress(AssertionError, *FAILURES):
        await at.client.post(run, [fact("run.finished")])
    await at.erase(run)
    return {"pending": asked, "facts beside": posted}


async def large_bodies(at):
    """Conversations of existing clients: many outputs, many messages, a long thread."""
    tag = os.getpid()
    asked, thread = f"asked-{tag}", f"thread-{tag}"
    runs = [asked, *(f"{thread}-{n}" for n in range(16))]
    await at.client.post(asked, [fact("run.started")], f"?sessionId={asked}")
    for first in range(0, 4000, 1000):
        await at.client.post(asked, [fact("action.required", actionId=f"a{n}", toolCallId=f"c{n}", payload={"kind": "tool_approval"})
                                     for n in range(first, first + 1000)])
    for run in runs[1:]:
        words = [text(f"m{n}", "some words") for n in range(int(3000 * at.scale))]
        await at.client.post(run, [fact("run.started"), *words, fact("run.finished")], f"?sessionId={thread}")
    outputs = [{"type": "tool-x", "toolCallId": f"z{n}", "state": "output-available", "output": 1} for n in range(int(200_000 * at.scale))]
    chat = json.dumps({"id": asked, "messages": [{"id": "asked", "role": "assistant", "parts": outputs}]}).encode()
    messages = [{"id": f"u{n}", "role": "user", "content": "x"} for n in range(int(300_000 * at.scale))]
    ag_ui = json.dumps({"threadId": f"other-{tag}", "runId": f"run-{tag}", "messages": messages}).encode()
    requests = [("POST", "/ai-sdk/absent?version=6", chat), ("POST", "/ag-ui/absent", ag_ui),
                ("GET", f"/ag-ui/absent?threadId={thread}", None), ("GET", f"/ai-sdk/absent/{thread}?version=6", None)]
    await at.begin()
    statuses = collections.Counter()
    while at.goes_on():
        for method, path, body in requests:
            try:
                # The status is enough: a request that is accepted waits for an agent.
                stream = await Stream().open(at.port, path, method, body)
                statuses[stream.status] += 1
                await asyncio.sleep(0.05)
                stream.close()
            except FAILURES:
                statuses["none"] += 1
    # What was accepted would wait for its agent for a day.
    for path in (f"/ai-sdk/absent/{asked}/stop", f"/copilotkit/agent/absent/stop/other-{tag}"):
        with contextlib.suppress(*FAILURES):
            await at.client.request("POST", path)
    await at.erase(*runs)
    return {"statuses": {str(status): count for status, count in statuses.items()}}


async def late_lines(at):
    await at.begin()
    wrote = lambda: len(list(pathlib.Path(at.dir).glob("late.sh.*.wrote")))
    before, runs = wrote(), [f"late-{os.getpid()}-{n}" for n in range(2)]
    for run in runs:
        with contextlib.suppress(AssertionError, *FAILURES):
            await at.client.ok("POST", f"/v1/sessions/{run}/controls", sent("late", run))
    await at.rest()
    await at.erase(*runs)
    return {"GiB each": 1, "programs that wrote all": wrote() - before}


@dataclasses.dataclass
class Neighbour:
    title: str
    act: object
    log_is_full: bool = False
    # The longest time after the measurement until it has cleaned up, in seconds.
    after: int = 60


NEIGHBOURS = {
    "junk-sse": Neighbour("4 readers of SSE that write junk", junk_on_streams),
    "junk-ws": Neighbour("4 WebSockets that write junk and read nothing", junk_on_sockets),
    "readers": Neighbour("1,100 readers, 1,024 descriptors", many_readers),
    "filter": Neighbour("16 subscriptions with a filter of 21 MiB", long_filters),
    "endless": Neighbour("an agent that never stops, told to stop", endless_agent),
    "sessions": Neighbour("200 sessions of a program at once", many_sessions),
    "log": Neighbour("a log on a full disk, 200 lines a second", bad_requests, log_is_full=True),
    "pending": Neighbour("200,000 pending actions and a fact after the other", pending_actions),
    "bodies": Neighbour("AI SDK with 200,000 outputs, AG-UI with 300,000 messages", large_bodies),
    "late": Neighbour("2 idle programs that each write 1 GiB of lines", late_lines),
}


def helper(server, *arguments):
    return ["--port", server.port, "--dir", server.dir, *arguments]


# Mode 1: builds side by side.

async def measure(args, binary, name, is_hostile):
    """Measure the second client on a fresh server, alone or beside a neighbour."""
    neighbour = NEIGHBOURS[name]
    with open("/dev/full", "wb") as full:
        stderr = full if is_hostile and neighbour.log_is_full else subprocess.DEVNULL
        server = Server(binary, args.serve.split(), args.server_core, stderr)
    found, watching, attacking = {}, None, None
    try:
        if not server.port:
            return {"alive": False, "ended": server.process.wait(10), "peak": 0, "cpu": 0, "notes": {}}
        watching = await Process().start(args.load_core, helper(server, "--bystander", "--seconds", args.seconds))
        if is_hostile:
            attack = helper(server, "--neighbour", name, "--seconds", args.seconds)
            attacking = await Process().start(args.load_core, attack)
            found["prepared"] = attacking.is_ready
            attacking.go()
        worked = server.cpu_seconds()
        watching.go()
        found |= await watching.found(args.seconds + 3 * TIMEOUT)
        found["cpu"] = server.cpu_seconds() - worked
        found["notes"] = await attacking.found(neighbour.after) if attacking else {}
        found |= {"alive": server.is_alive(), "peak": server.status()["peak"]}
    finally:
        for process in filter(None, (watching, attacking)):
            await process.stop()
        found["ended"] = server.stop()
    return found


def cell(figures, what, member):
    value = figures.get(what, {}).get(member)
    return "-" if value is None else f"{value:,.1f}"


def ratio(quiet, loud, what):
    before, after = (figures.get(what, {}).get("p99") for figures in (quiet, loud))
    return f"×{after / before:,.1f}" if before and after else "-"


def print_table(builds, results):
    print("\nms, counted from when each request was due; p50 / p99 / max without → with the neighbour (ratio of the p99)\n")
    print("| neighbour | build | `/healthz` | a small POST | failed | CPU s | peak RSS | server | notes |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, by_build in results.items():
        for build in builds:
            quiet, loud = by_build[build]
            row = [NEIGHBOURS[name].title if build == next(iter(builds)) else "", build]
            for what in ("healthz", "post"):
                waits = [" / ".join(cell(figures, what, member) for member in ("p50", "p99", "max")) for figures in (quiet, loud)]
                row.append(f"{waits[0]} → {waits[1]} ({ratio(quiet, loud, what)})")
            failed = sum(loud.get(what, {}).get("failed", 0) for what in ("healthz", "post"))
            asked = sum(loud.get(what, {}).get("requests", 0) for what in ("healthz", "post"))
            row.append(f"{failed} of {asked}")
            if loud["alive"]:
                row += [f"{quiet['cpu']:.1f} → {loud['cpu']:.1f}", f"{loud['peak']:,.0f} MiB", "lives"]
            else:
                row += ["-", "-", f"**ended: {loud['ended']}**"]
            notes = ", ".join(f"{key}: {value}" for key, value in loud["notes"].items())
            print("| " + " | ".join([*row, re.sub(r"[{}'\"]", "", notes)]) + " |")
    if len(builds) > 1:
        print("\nwith the neighbour, p99 of the first build ÷ p99 of the others:")
        first, *others = builds
        for name, by_build in results.items():
            for other in others:
                parts = []
                for what in ("healthz", "post"):
                    ours, theirs = (by_build[build][1].get(what, {}).get("p99") for build in (first, other))
                    parts.append(f"{what} {ours / theirs:.3f}" if ours and theirs else f"{what} -")
                print(f"  {name:9} {first} ÷ {other}: " + ", ".join(parts))


async def compare(args):
    builds = {"this": args.binary, **dict(spec.split("=", 1) for spec in args.also)}
    results = {}
    for name in args.only.split(",") if args.only else NEIGHBOURS:
        results[name] = {}
        for build, binary in builds.items():
            both = [await measure(args, binary, name, is_hostile) for is_hostile in (False, True)]
            results[name][build] = both
            print(json.dumps({"neighbour": name, "build": build, "quiet": both[0], "loud": both[1]}), file=sys.stderr, flush=True)
    print_table(builds, results)


# Mode 2: one server, loaded for hours.

# Facts of each producer of a checked run, and the time between two of its requests, in seconds.
FACTS = 120
PACE = 0.15
# Checked runs at once, and runs of one session.
SLOTS = 8
SESSION_RUNS = 8
# What must not grow: the last quarter of the time has at most 15% more than the first, and so much more, in MiB for memory.
# The store may open more files as it grows, up to a limit of its own. The index of runs grows with each stored run.
FLAT = {"rss_without_runs": 16, "sockets": 16, "others": 16, "files": 64, "threads": 8, "logs_open": 32}
INDEX_BYTES_PER_RUN = 4096
# The largest number of a producer: with it and no facts, a producer asks which number comes next.
ASK = 9007199254740991
WORDS = "the agent reads a file and writes what it found into a report for its user".split()
SOURCES = {"awaken-canonical": "awaken", "turn-runner": "turnrunner"}
DONE = ("completed", "failed", "cancelled", "interrupted")


def numbered(producer, number):
    """A fact whose text begins with its number."""
    return text(producer, f"{number} " + " ".join(WORDS[(number * 7 + n) % len(WORDS)] for n in range(number % 12)) + ";")


def producer_of(message):
    """The producer of a message, whose further parts have ids with a slash."""
    return message.split("/")[0]


def number_of(words):
    return int(words.split(" ", 1)[0])


@dataclasses.dataclass
class Run:
    """A checked run, and what was acknowledged of it."""
    name: str
    session: str
    # The facts of numbering producers, all of which were acknowledged.
    acknowledged: dict = dataclasses.field(default_factory=dict)
    # The numbers that the producer without numbers knows to be stored, and those of which it does not know.
    plain: list = dataclasses.field(default_factory=list)
    unknown: set = dataclasses.field(default_factory=set)
    has_ended: bool = False

    @property
    def path(self):
        return f"/v1/runs/{self.name}"

    @property
    def facts(self):
        return f"{self.path}/facts?sessionId={self.session}"


class Follower:
    """Checks that a stream of events lost and repeated nothing."""

    def __init__(self, load, what):
        self.load, self.what = load, what
        self.last, self.next, self.ended = collections.Counter(), collections.Counter(), set()

    def take(self, frame):
        """Check a frame; return whether it ends its run."""
        run, kind = frame.get("runId"), frame["frame"]
        if kind in ("Reset", "Error"):
            self.load.fault(f"{self.what}: {json.dumps(frame)[:300]}")
        if "prev" in frame and self.last[run] not in (frame["prev"], frame["sequence"] if kind != "Event" else None):
            self.load.fault(f"{self.what} of {run}: after {self.last[run]} came {frame['sequence']}, whose prev is {frame['prev']}")
        if "prev" in frame or kind == "Hydrated":
            self.last[run] = frame["sequence"]
        if kind == "Event":
            self.number(run, frame["event"])
        if kind == "End":
            self.ended.add(run)
        self.load.counts["frames"] += 1
        return kind == "End"

    def number(self, run, event):
        producer = event.get("messageId")
        if event["type"] != "text.delta" or producer == "plain":
            return
        number = number_of(event["payload"]["text"])
        if number != self.next[run, producer]:
            self.load.fault(f"{self.what} of {run}: {producer} has {number} instead of {self.next[run, producer]}")
        self.next[run, producer] = number + 1

    def check(self, run):
        """Check that a whole run came."""
        for producer, count in run.acknowledged.items():
            if self.next[run.name, producer] != count:
                self.load.fault(f"{self.what} of {run.name}: {self.next[run.name, producer]} of {count} facts of {producer}")


class Load:
    def __init__(self, args):
        self.args, self.seconds = args, args.hours * 3600
        self.counts, self.faults, self.fault_count = collections.Counter(), [], 0
        self.runs, self.samples, self.claimed = [], [], collections.deque(maxlen=1000)
        self.recordings = sorted((REPOSITORY / "tests/recordings").glob("*/*.ndjson"))

    def fault(self, words):
        self.fault_count += 1
        if len(self.faults) < 50:
            self.faults.append(words)
            print(f"FAULT {time.strftime('%H:%M:%S')} {words}", flush=True)

    def goes_on(self):
        return time.monotonic() < self.end and self.server.is_alive()

    async def keep(self, what, act, until=lambda: True):
        """Do something again and again, also after a connection failed."""
        while self.goes_on() or not until():
            try:
                await act()
            except FAILURES:
                self.counts["connections failed"] += 1
                await asyncio.sleep(0.3)
            except AssertionError as refused:
                self.fault(f"{what}: {refused}")
                await asyncio.sleep(1)

    # Producers.

    async def post_producer(self, run, name):
        """Post bodies; repeat some at once, hang up after some, and repeat each until it is acknowledged."""
        client, number = Client(self.port), 0
        while number < FACTS:
            batch = [numbered(name, n) for n in range(number, min(FACTS, number + random.randint(1, 5)))]
            headers = {"producer-id": name, "producer-epoch": 0, "producer-seq": number}
            chance = random.random()
            if chance < 0.05:
                with contextlib.suppress(*FAILURES):
                    _, writer = await connect(self.port)
                    writer.write(request_bytes("POST", run.facts, batch, headers))
                    await asyncio.sleep(random.random() / 50)
                    writer.transport.abort()
            elif chance < 0.15:
                twice = asyncio.create_task(Client(self.port).ok("POST", run.facts, batch, headers))
            receipt = await client.ok("POST", run.facts, batch, headers)
            if 0.05 <= chance < 0.15:
                other = await twice
                if receipt["accepted"] + other["accepted"] > len(batch):
                    self.fault(f"{run.name}: a repeated body was accepted twice: {receipt} and {other}")
            if receipt["accepted"] + receipt["duplicates"] != len(batch):
                self.fault(f"{run.name}: a receipt for {len(batch)} facts: {receipt}")
            number += len(batch)
            run.acknowledged[name] = number
            self.counts["facts"] += len(batch)
            await asyncio.sleep(PACE * random.uniform(0.5, 1.5))
        client.close()

    async def socket_producer(self, run, name):
        """Publish on a WebSocket, which breaks at times before the acknowledgement."""
        socket, number = None, 0
        while number < FACTS:
            batch = [numbered(name, n) for n in range(number, min(FACTS, number + random.randint(1, 5)))]
            message = {"op": "publish", "id": number, "runId": run.name, "ids": {"sessionId": run.session}, "facts": batch,
                       "producer": {"id": name, "epoch": 0, "seq": number}}
            try:
                socket = socket or await WebSocket().open(self.port)
                await socket.send(message)
                if random.random() < 0.04:
                    raise ConnectionError("broken on purpose")
                answer = await asyncio.wait_for(socket.receive(), TIMEOUT)
            except FAILURES:
                if socket:
                    socket.close()
                socket = None
                await asyncio.sleep(0.2)
                continue
            if answer["op"] == "ack":
                number += len(batch)
                run.acknowledged[name] = number
                self.counts["facts"] += len(batch)
            elif answer.get("status") not in (429, 503):
                raise AssertionError(f"publish to {run.name}: {answer}")
            await asyncio.sleep(PACE * random.uniform(0.5, 1.5))
        if socket:
            socket.close()

    async def line_producer(self, run, name):
        """Stream lines; at times the connection is cut, and the producer asks where to continue."""
        client = Client(self.port)
        number = 0
        while number < FACTS:
            cut = random.randint(number, FACTS) if random.random() < 0.3 else FACTS
            headers = {"producer-id": name, "producer-epoch": 0, "producer-seq": number,
                       "content-type": "application/x-ndjson", "transfer-encoding": "chunked"}
            with contextlib.suppress(*FAILURES):
                reader, writer = await connect(self.port)
                writer.write(request_bytes("POST", run.facts, headers=headers))
                for line in (json.dumps(numbered(name, n)).encode() + b"\n" for n in range(number, cut)):
                    writer.write(b"%x\r\n%s\r\n" % (len(line), line))
                    await asyncio.wait_for(writer.drain(), TIMEOUT)
                    await asyncio.sleep(PACE / 3 * random.uniform(0.5, 1.5))
                if cut == FACTS:
                    writer.write(b"0\r\n\r\n")
                    await asyncio.wait_for(read_answer(reader), TIMEOUT)
                writer.transport.abort()
            # What the cut body left is stored, or is not. Only the server knows.
            with contextlib.suppress(*FAILURES):
                asked = await client.request("POST", run.facts, [], {"producer-id": name, "producer-epoch": 0, "producer-seq": ASK})
                if asked.status == 409:
                    stored = json.loads(asked.body)["expected"]
                    self.counts["facts"] += max(0, stored - number)
                    if stored < run.acknowledged.get(name, 0):
                        self.fault(f"{run.name}: {name} expects {stored} after {run.acknowledged[name]}")
                    run.acknowledged[name] = number = stored
            await asyncio.sleep(0.2)
        client.close()

    async def plain_producer(self, run, _):
        """Post single facts without numbers, each once."""
        client = Client(self.port)
        for number in range(FACTS // 2):
            try:
                answer = await client.request("POST", run.facts, numbered("plain", number))
                if answer.status == 200:
                    run.plain.append(number)
                    self.counts["facts"] += 1
                elif answer.status not in (429, 503):
                    self.fault(f"{run.name}: {answer.status} {answer.body[:200]}")
            except FAILURES:
                run.unknown.add(number)
            await asyncio.sleep(2 * PACE * random.uniform(0.5, 1.5))
        client.close()

    # Readers.

    async def read_frames(self, follower, path, run, until=None):
        """Read a stream of frames that is cut at random, up to the end of its run."""
        cursor, deadline = None, time.monotonic() + 300
        while time.monotonic() < deadline:
            stream = None
            with contextlib.suppress(*FAILURES):
                headers = {"last-event-id": cursor} if cursor else {}
                stream = await Stream().open(self.port, path, headers=headers)
                if stream.status == 204:
                    return
                left = random.randint(10, 200)
                async with asyncio.timeout(90):
                    async for at, data in stream.events():
                        cursor = at or cursor
                        frame, deadline = json.loads(data), time.monotonic() + 300
                        if follower.take(frame) and (not until or until()):
                            stream.close()
                            return
                        left -= 1
                        # A reader that returns with a cursor has seen everything up to it.
                        if left <= 0 and at:
                            break
            if stream:
                stream.close()
            await asyncio.sleep(random.random())
        self.fault(f"{follower.what} of {run}: no end; last {dict(follower.last)}")

    async def events_reader(self, run):
        follower = Follower(self, "SSE of events")
        await self.read_frames(follower, f"{run.path}/stream?frames=events", run.name)
        follower.check(run)

    async def activities_reader(self, run):
        await self.read_frames(Follower(self, "SSE of activities"), f"{run.path}/stream", run.name)

    async def socket_reader(self, run):
        follower, cursor, deadline = Follower(self, "WebSocket of events"), None, time.monotonic() + 300
        while time.monotonic() < deadline:
            socket = None
            with contextlib.suppress(*FAILURES):
                socket = await WebSocket().open(self.port)
                await socket.send({"op": "subscribe", "id": "s", "run": run.name, "frames": "events"} | ({"after": cursor} if cursor else {}))
                left = random.randint(10, 200)
                while left := left - 1:
                    frame = await asyncio.wait_for(socket.receive(), 90)
                    if "sub" not in frame:
                        if frame["op"] == "error":
                            self.fault(f"subscribe to {run.name}: {frame}")
                        continue
                    cursor = frame.get("cursor", cursor)
                    if follower.take(frame):
                        socket.close()
                        return follower.check(run)
            if socket:
                socket.close()
            await asyncio.sleep(random.random())
        self.fault(f"WebSocket of {run.name}: no end")

    async def dialect_reader(self, run, query, take):
        """Read a run in the dialect of an existing client, without a cut: the text of each producer is whole and in order."""
        for _ in range(20):
            texts = collections.defaultdict(str)
            with contextlib.suppress(*FAILURES):
                stream = await Stream().open(self.port, f"{run.path}/stream?{query}")
                if stream.status != 200:
                    raise ConnectionError(f"status {stream.status} for a stream")
                async with asyncio.timeout(240):
                    async for _, data in stream.events():
                        if data != b"[DONE]":
                            take(json.loads(data), texts)
                stream.close()
                for producer, count in run.acknowledged.items():
                    found = [number_of(part) for part in texts[producer].split(";") if part]
                    if found != list(range(count)):
                        self.fault(f"{query} of {run.name}: {producer} has {len(found)} of {count}: {str(found)[:200]}")
                return
            await asyncio.sleep(0.5)
        self.fault(f"{query} of {run.name}: no stream")

    async def ag_ui_reader(self, run):
        def take(event, texts):
            if event["type"] == "MESSAGES_SNAPSHOT":
                texts.clear()
                for message in event["messages"]:
                    texts[producer_of(message["id"])] += message.get("content") or ""
            elif event["type"] == "TEXT_MESSAGE_CONTENT":
                texts[producer_of(event["messageId"])] += event["delta"]
        await self.dialect_reader(run, "format=ag-ui", take)

    async def ai_sdk_reader(self, run):
        def take(chunk, texts):
            if chunk["type"] == "text-delta":
                texts[producer_of(chunk["id"])] += chunk["delta"]
        await self.dialect_reader(run, "format=ai-sdk&version=7", take)

    async def late_reader(self, run):
        """Read a run that has ended, from its start."""
        follower = Follower(self, "SSE of an ended run")
        await self.read_frames(follower, f"{run.path}/stream?frames=events", run.name)
        follower.check(run)

    # Checked runs: producers and readers of each.

    async def slot(self, slot):
        number = 0
        while self.goes_on():
            session, total, runs = f"session-{slot}-{number}", [], []
            follower = Follower(self, "SSE of a session")
            following = asyncio.create_task(self.read_frames(
                follower, f"/v1/sessions/{session}/stream?frames=events", session, lambda: total and len(follower.ended) >= total[0]))
            while not total:
                run = Run(f"checked-{slot}-{number}", session)
                runs.append(run)
                await self.checked_run(run, lambda: total.append(len(runs)) if len(runs) == SESSION_RUNS or not self.goes_on() else None)
                number += 1
            await following
            for run in runs:
                follower.check(run)

    async def checked_run(self, run, before_end):
        lead = Client(self.port)
        await lead.ok("POST", run.facts, fact("run.started"), {"producer-id": "lead", "producer-seq": 0, "producer-epoch": 0})
        self.runs.append(run)
        live = [self.events_reader, self.activities_reader, self.socket_reader, self.ag_ui_reader, self.ai_sdk_reader]
        reading = [asyncio.create_task(self.guarded(reader(run))) for reader in live]
        producers = {"posts": self.post_producer, "socket": self.socket_producer, "lines": self.line_producer, "plain": self.plain_producer}
        await asyncio.gather(*(self.guarded(produce(run, name)) for name, produce in producers.items()))
        before_end()
        await lead.ok("POST", run.facts, fact("run.finished"), {"producer-id": "lead", "producer-seq": 1, "producer-epoch": 0})
        run.has_ended = True
        lead.close()
        if random.random() < 0.3:
            reading.append(asyncio.create_task(self.guarded(self.late_reader(run))))
        await asyncio.gather(*reading)
        self.counts["checked runs"] += 1

    async def guarded(self, work):
        try:
            await work
        except AssertionError as refused:
            self.fault(str(refused))

    # What else clients do.

    async def stalled_reader(self):
        if self.runs:
            stream = await Stream().open(self.port, f"{self.runs[-1].path}/stream?frames=events")
            await self.pause(random.uniform(3, 15))
            stream.close()
        await self.pause(1)

    async def recorder(self):
        """Post a recorded run of one of the sources; erase every second one."""
        self.counts["recorded runs"] += 1
        number, path = self.counts["recorded runs"], random.choice(self.recordings)
        source = SOURCES.get(path.parent.name, path.parent.name)
        lines, run = path.read_bytes(), f"recorded-{number}"
        headers = {"content-type": "application/x-ndjson", "producer-id": "recorder", "producer-epoch": 0, "producer-seq": 0}
        client = Client(self.port)
        receipt = await client.ok("POST", f"/v1/runs/{run}/facts?source={source}&sessionId=recorded-{number // 10}", lines, headers)
        count = sum(1 for line in lines.splitlines() if line.strip())
        if receipt["accepted"] + receipt["duplicates"] != count:
            self.fault(f"{path.name}: {receipt} for {count} facts")
        await client.ok("GET", f"/v1/runs/{run}/activities")
        await client.ok("POST", f"/v1/runs/{run}/settle")
        if number % 2:
            await client.request("DELETE", f"/v1/runs/{run}")
        client.close()
        await self.pause(2)

    async def chat(self, number):
        """Ten turns with a connected program, in the dialects of existing clients in turns."""
        session = f"chat-{number}-{self.counts['chats']}"
        self.counts["chats"] += 1
        for turn in range(10):
            if not self.goes_on():
                break
            user = {"id": f"u{turn}", "role": "user"}
            if turn % 2:
                path, body = "/ag-ui/polite", {"threadId": session, "runId": f"{session}-{turn}", "state": {}, "tools": [], "context": [],
                                               "forwardedProps": {}, "messages": [user | {"content": "Go"}]}
            else:
                path, body = "/ai-sdk/polite?version=7", {"id": session, "messages": [user | {"parts": [{"type": "text", "text": "Go"}]}]}
            stream = await Stream().open(self.port, path, "POST", body)
            if stream.status != 200:
                stream.close()
                if stream.status not in (429, 503):
                    self.fault(f"POST {path}: {stream.status}")
                return await self.pause(1)
            said = ""
            async with asyncio.timeout(120):
                async for _, data in stream.events():
                    event = {} if data == b"[DONE]" else json.loads(data)
                    said += event.get("delta", "") if event.get("type") in ("TEXT_MESSAGE_CONTENT", "text-delta") else ""
            stream.close()
            if said != "".join(f"{n} " for n in range(10)):
                self.fault(f"turn {turn} of {session} at {path}: the answer is {said!r}")
            self.counts["turns"] += 1
            await self.pause(random.uniform(0.5, 2))

    async def worker(self):
        """Claim controls: begin a run that asks, end it when the answer is there."""
        client = Client(self.port)
        claimed = await client.request("POST", "/v1/agents/worker/controls/claim?wait=5&max=4", timeout=30)
        if claimed.status != 200:
            return await self.pause(1)
        for control in json.loads(claimed.body)["controls"]:
            self.counts["controls"] += 1
            if control["attempt"] == 1 and control["controlId"] in self.claimed:
                self.fault(f"a control was handed over twice: {control}")
            self.claimed.append(control["controlId"])
            is_begin = control["control"] == "send"
            run = control["value"]["runId"] if is_begin else control["runId"]
            asks = [fact("run.started"), fact("tool.args", toolCallId="c", payload={"toolName": "rm", "input": {"path": "a.txt"}}),
                    fact("action.required", actionId="ask", toolCallId="c", payload={"kind": "tool_approval"})]
            ends = [fact("action.resolved", actionId="ask", payload={"outcome": "approved"}),
                    fact("tool.result", toolCallId="c", payload={"output": "done"}), fact("run.finished")]
            headers = {"producer-id": "worker", "producer-epoch": 0, "producer-seq": 0 if is_begin else len(asks)}
            await client.ok("POST", f"/v1/runs/{run}/facts?sessionId={control['sessionId']}&agentId=worker", asks if is_begin else ends, headers)
            await client.request("POST", f"/v1/controls/{control['controlId']}/ack", {"lease": control["lease"]})
        client.close()

    async def approver(self):
        """Send a message to the worker, approve what it asks, and see the run end."""
        self.counts["approvals"] += 1
        run, client = f"work-{self.counts['approvals']}", Client(self.port)

        async def until(*statuses):
            for _ in range(300):
                with contextlib.suppress(*FAILURES):
                    answer = await client.request("GET", f"/v1/runs/{run}")
                    if answer.status == 200 and json.loads(answer.body)["status"] in statuses:
                        return
                await asyncio.sleep(0.3)
            self.fault(f"{run} did not become {statuses}")

        await client.ok("POST", f"/v1/sessions/work-{self.counts['approvals'] // 10}/controls", sent("worker", run) | {"controlId": f"send-{run}"})
        await until("waiting")
        await client.ok("POST", f"/v1/runs/{run}/controls", {"control": "approve", "actionId": "ask", "controlId": f"approve-{run}"})
        await until("completed")
        client.close()
        await self.pause(1)

    async def rest_reader(self):
        client = Client(self.port)
        session, run = (self.runs[-1].session, self.runs[-1].name) if self.runs else ("none", "none")
        of_session = [f"/v1/sessions/{session}{rest}" for rest in ("", "/window", "/timeline", "/events?limit=200")]
        for path in ("/v1/runs?limit=50", "/v1/sessions?limit=50", "/v1/sessions?needsAction=true&limit=50", "/v1/attention", *of_session,
                     f"/v1/runs/{run}/activities", f"/v1/runs/{run}/events?limit=200", f"/ai-sdk/polite/{session}?version=7",
                     f"/ag-ui/polite?threadId={session}"):
            answer = await client.request("GET", path)
            # A run that is erased meanwhile is 404.
            if answer.status not in (200, 404, 429, 503):
                self.fault(f"GET {path}: {answer.status} {answer.body[:200]}")
            self.counts["reads"] += 1
            await self.pause(0.1)
        client.close()

    async def list_reader(self):
        stream = await Stream().open(self.port, "/v1/lists/stream?attention=true&sessions=true&limit=100")
        with contextlib.suppress(asyncio.TimeoutError):
            async with asyncio.timeout(random.uniform(5, 40)):
                async for _ in stream.events():
                    self.counts["list entries"] += 1
        stream.close()

    async def neighbours(self):
        """Let each neighbour be hostile in its turn."""
        turn = max(3, min(20, self.seconds / 60))
        while self.goes_on():
            for name in random.sample(list(NEIGHBOURS), len(NEIGHBOURS)):
                if not self.goes_on():
                    return
                attack = helper(self.server, "--neighbour", name, "--seconds", turn, "--scale", 0.1)
                process = await Process().start(self.args.load_core, attack)
                process.go()
                found = await process.found(turn + NEIGHBOURS[name].after)
                await process.stop()
                self.counts["hostile turns"] += 1
                print(f"  {time.strftime('%H:%M:%S')} beside {name}: {found}", flush=True)
                await self.pause(turn / 2)

    async def pause(self, seconds):
        await asyncio.sleep(max(0, min(seconds, self.end - time.monotonic())))

    # Figures.

    async def sample(self):
        """Read what the server uses now."""
        figures = {"at": time.monotonic() - self.begun, **self.server.status(), **self.server.descriptors()}
        with contextlib.suppress(OSError):
            tasks = pathlib.Path(f"/proc/{self.server.pid}/task").glob("*/children")
            figures["programs"] = sum(len(task.read_text().split()) for task in tasks)
            # An agent keeps up to 16 idle programs, and the server three pipes and the process of each.
            figures["others"] -= 4 * figures["programs"]
        with contextlib.suppress(*FAILURES):
            text = (await self.metrics_client.request("GET", "/metrics")).body.decode()
            for name in ("logs", "logs_open", "connections", "store_bytes", "log_lines_lost_total", "in_flight_bytes"):
                found = re.search(rf"^proscenium_{name} (\S+)", text, re.M)
                figures[name] = float(found[1]) if found else 0
            figures["rss_without_runs"] = figures["rss"] - figures["logs"] * INDEX_BYTES_PER_RUN / (1 << 20)
            figures["readers"] = sum(map(float, re.findall(r"^proscenium_readers\S* (\S+)", text, re.M)))
        return figures

    async def report(self):
        """Print a line for each minute."""
        every = max(10, min(60, self.seconds / 6))
        watching = await Process().start(self.args.load_core, helper(self.server, "--bystander", "--seconds", every, "--interval-ms", 20))
        print("time       RSS MiB (max)  descriptors: sockets files others  threads programs  connections streams  runs  open  store MiB  facts/s"
              "  healthz ms p50 p99 max  POST ms p50 p99 max  failed", flush=True)
        facts = 0
        while self.goes_on():
            watching.go()
            waiting, batch = asyncio.create_task(watching.found(every + 3 * TIMEOUT)), []
            while not waiting.done():
                batch.append(await self.sample())
                await asyncio.wait([waiting], timeout=5)
            self.samples += batch
            waits, last = waiting.result(), batch[-1]
            middle = lambda name: statistics.median(sample.get(name, 0) for sample in batch)
            per_second, facts = (self.counts["facts"] - facts) / every, self.counts["facts"]
            ms = lambda what: " ".join(cell(waits, what, member) for member in ("p50", "p99", "max"))
            failed = sum(waits.get(what, {}).get("failed", 0) for what in ("healthz", "post"))
            self.counts["requests of the second client that failed"] += failed
            print(f"{time.strftime('%H:%M:%S')}  {middle('rss'):,.0f} ({max(s['rss'] for s in batch):,.0f})  {middle('sockets'):.0f} {middle('files'):.0f}"
                  f" {middle('others'):.0f}  {middle('threads'):.0f} {middle('programs'):.0f}  {middle('connections'):.0f} {middle('readers'):.0f}"
                  f"  {last.get('logs', 0):.0f} {last.get('logs_open', 0):.0f}  {last.get('store_bytes', 0) / MIB:,.0f}  {per_second:.0f}"
                  f"  {ms('healthz')}  {ms('post')}  {failed}", flush=True)
        await watching.stop()

    async def verify(self):
        """Read each checked run: what was acknowledged is there once and in order."""
        client = Client(self.port)
        for run in self.runs:
            numbers, cursor, sequence = collections.defaultdict(list), "", 0
            while cursor is not None:
                page = await client.ok("GET", f"{run.path}/events?audience=internal&limit=1000" + (f"&after={cursor}" if cursor else ""))
                for event in page["events"]:
                    sequence += 1
                    if event["sequence"] != sequence:
                        return self.fault(f"{run.name}: sequence {event['sequence']} instead of {sequence}")
                    if event["type"] == "text.delta":
                        numbers[event["messageId"]].append(number_of(event["payload"]["text"]))
                    self.counts["verified envelopes"] += 1
                cursor = page["nextCursor"] if page.get("truncated") else None
            for producer, count in run.acknowledged.items():
                if numbers[producer] != list(range(count)):
                    self.fault(f"{run.name}: {producer} has {len(numbers[producer])} of {count} acknowledged facts: {str(numbers[producer])[:300]}")
            stored, known = numbers["plain"], set(run.plain)
            if stored != sorted(set(stored)) or not known <= set(stored) <= known | run.unknown:
                self.fault(f"{run.name}: plain has {stored}, acknowledged are {run.plain}, unknown {run.unknown}")
        client.close()

    def is_flat(self, name, slack):
        """Compare the quarters of the load by a figure; return whether the last has no more than the first.

        In a quarter of an hour the caches are still filling.
        """
        length = self.seconds / 4
        quarters = [statistics.median([s.get(name, 0) for s in self.samples if n * length <= s["at"] < (n + 1) * length] or [0]) for n in range(4)]
        flat = quarters[3] <= 1.15 * quarters[0] + slack
        verdict = "flat" if flat else "NOT FLAT" if self.args.hours > 0.25 else "too short to tell"
        print(f"  {name:16} " + "  ".join(f"{value:,.0f}" for value in quarters) + f"  {verdict}", flush=True)
        return verdict != "NOT FLAT"

    async def run(self):
        with open(self.args.log, "ab") as log:
            self.server = Server(self.args.binary, self.args.serve.split(), self.args.server_core, log)
        self.port, self.metrics_client = self.server.port, Client(self.server.port)
        self.begun = time.monotonic()
        self.end = self.begun + self.seconds
        try:
            return await self.load()
        finally:
            self.server.stop()

    async def load(self):
        before = await self.sample()
        acts = {"stalled reader": self.stalled_reader, "recorder": self.recorder, "reads": self.rest_reader, "lists": self.list_reader}
        acts |= {f"chat {n}": lambda n=n: self.chat(n) for n in range(3)}
        approving = asyncio.create_task(self.keep("approver", self.approver))
        tasks = [self.slot(slot) for slot in range(SLOTS)] + [self.keep(name, act) for name, act in acts.items()]
        tasks += [self.keep("worker", self.worker, approving.done), self.neighbours(), self.report()]
        tasks = [approving, *map(asyncio.create_task, tasks)]
        done, stuck = await asyncio.wait(tasks, timeout=self.seconds + 400)
        for task in done:
            if task.exception():
                self.fault(f"a client failed: {task.exception()!r}")
        for task in stuck:
            self.fault(f"a client does not end: {task}")
            task.cancel()
        after = await self.at_rest(before)
        print(f"\n{self.counts['checked runs']} checked runs; reading them", flush=True)
        await self.verify()
        print("\n" + ", ".join(f"{name}: {count:,}" for name, count in sorted(self.counts.items())))
        print("before the load: " + self.summary(before) + "\nafter the load:  " + self.summary(after))
        print("medians by quarter of the time:")
        flat = [self.is_flat(name, slack) for name, slack in FLAT.items()]
        if not self.server.is_alive():
            self.fault(f"the server ended with {self.server.process.returncode}")
        print(f"\n{self.fault_count} faults: " + ("each acknowledged fact is there once and in order, no stream lost or repeated an event"
                                                  if not self.fault_count else "\n  ".join(["", *self.faults])))
        return 0 if not self.fault_count and all(flat) else 1

    @staticmethod
    def summary(figures):
        return ", ".join(f"{name} {value:,.0f}" for name, value in figures.items() if name != "at")

    async def at_rest(self, before):
        """Wait until what the load took is given back, and return what the server uses then."""
        # A thread for blocking work ends after 10 s without any. The server has some four times a second, for another thread each time.
        slack = {"sockets": 2, "connections": 0, "readers": 0, "others": 4, "threads": 40}
        for _ in range(10):
            await asyncio.sleep(12)
            after = await self.sample()
            if all(after.get(name, 0) <= before.get(name, 0) + more for name, more in slack.items()):
                return after
        self.fault(f"after the load: {self.summary(after)}; before it: {self.summary(before)}")
        return after


async def help_out(args):
    """Be a helper process."""
    at = Helper(args)
    if args.bystander:
        return await bystander(at)
    os.nice(5)
    print(json.dumps(await NEIGHBOURS[args.neighbour].act(at)), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(REPOSITORY / "target/release/proscenium"))
    parser.add_argument("--also", action="append", default=[], metavar="NAME=BINARY", help="a further build to compare")
    parser.add_argument("--serve", default="", help="further arguments of `proscenium serve`")
    parser.add_argument("--only", help="comma-separated neighbours; by default all: " + ", ".join(NEIGHBOURS))
    parser.add_argument("--seconds", type=float, default=8, help="the time of each measurement")
    parser.add_argument("--hours", type=float, help="load one server for so long instead")
    parser.add_argument("--log", default="/dev/full", help="where the server's log goes while it is loaded for hours")
    parser.add_argument("--seed", type=int, default=36, help="of what the clients do at random")
    parser.add_argument("--server-core", type=int)
    parser.add_argument("--load-core", type=int)
    parser.add_argument("--neighbour", choices=NEIGHBOURS, help="be this neighbour of the server at --port")
    parser.add_argument("--bystander", action="store_true", help="be the second client of the server at --port")
    parser.add_argument("--port", type=int)
    parser.add_argument("--dir", default=".", help="the directory of the agents' programs")
    parser.add_argument("--scale", type=float, default=1, help="the part of the neighbours' sizes that is used")
    parser.add_argument("--interval-ms", type=float, default=5, help="of the second client's requests")
    args = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    random.seed(args.seed)
    if args.neighbour or args.bystander:
        asyncio.run(help_out(args))
    elif args.hours:
        sys.exit(asyncio.run(Load(args).run()))
    else:
        asyncio.run(compare(args))


if __name__ == "__main__":
    main()
