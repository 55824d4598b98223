/**
 * The guides of `docs/src/guides/agents/`, executed: their files are written, their commands run, in their order.
 *
 * A block after a paragraph that ends with a name, such as "`agent.py`:", is that file. A `console` block has commands,
 * which run until `stop`; those after the `text` block, which is what the reader then sees, run when the test says so,
 * to their end. An installation is not repeated: its packages must be among those of the tests.
 *
 * The agents are the published packages. Only the model is another, as for a reader without a key: the addresses of the
 * models lead to that of `examples/fake-model.mjs`, by the variables that it prints and the files that the packages read.
 * Every port of a guide becomes a free one.
 */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { BINARY, waitFor, within } from "./harness.mjs";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const PYTHON = process.env.PROSCENIUM_PYTHON ?? here("../../target/python/bin");
const PACKAGES = [...Object.keys(JSON.parse(readFileSync(here("package.json"), "utf8")).dependencies), ...readFileSync(here("python/requirements.txt"), "utf8").split("\n").map((line) => line.split("==")[0]), "PATH_OF_THE_REPOSITORY/sdk/python"];
const INSTALLATION = /^(?:pip|npm) install (?:--global )?(.*)$/;

/** Reads the files of a guide, its commands before and after what it shows, and the shown lines. */
export function readGuide(name) {
  const lines = readFileSync(here(`../../docs/src/guides/agents/${name}.md`), "utf8").split("\n");
  const guide = { files: [], commands: [], later: [], shown: [] };
  for (let at = 0; at < lines.length; at += 1) {
    const [, language] = /^```(\w+)$/.exec(lines[at]) ?? [];
    if (!language) continue;
    const end = lines.indexOf("```", at);
    const block = lines.slice(at + 1, end);
    const [, file] = /`([\w.]+)`:$/.exec(lines[at - 2] ?? "") ?? [];
    if (file) guide.files.push([file, `${block.join("\n")}\n`]);
    else if (language === "console") (guide.shown.length > 0 ? guide.later : guide.commands).push(...block.filter((line) => line.startsWith("$ ")).map((line) => line.slice(2)));
    else if (language === "text") guide.shown.push(...block);
    at = end;
  }
  return guide;
}

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

const isOpen = (port) =>
  new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1", () => (socket.destroy(), resolve(true)));
    socket.once("error", () => resolve(false));
  });

/** Starts the model as a reader does. `url` has no path; `env` has the variables that it prints. */
export async function startModel() {
  const child = spawn(process.execPath, [here("../../examples/fake-model.mjs"), "--port", "0"], { stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  const [printed] = await within("the variables of the model", once(child.stdout, "data"));
  const env = Object.fromEntries([...printed.toString().matchAll(/(\w+)=(\S+)/g)].map(([, name, value]) => [name, value]));
  return { url: env.ANTHROPIC_BASE_URL, env, stop: () => (child.kill(), ended) };
}

/** No agent reaches another machine. */
const NO_NETWORK = { ALL_PROXY: "http://127.0.0.1:9", HTTPS_PROXY: "http://127.0.0.1:9", NO_PROXY: "127.0.0.1,localhost" };

/**
 * Configuration of the programs that read no variable, or get none.
 *
 * Codex runs commands without its sandbox, because where `bwrap` lacks, the sandbox fails, and Codex runs the command
 * again without it only if the failure comes early (150 ms; on a busy machine it came later).
 */
const homeFiles = (model) => ({
  ".codex/config.toml": `model = "gpt-5"\nmodel_provider = "fake"\ncheck_for_update_on_startup = false\nsandbox_mode = "danger-full-access"\n[analytics]\nenabled = false\n[model_providers.fake]\nname = "fake"\nbase_url = "${model}/v1"\nwire_api = "responses"\n`,
  ".claude/settings.json": JSON.stringify({ env: { ANTHROPIC_BASE_URL: model, ANTHROPIC_API_KEY: "fake", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1", ...NO_NETWORK } }),
});

/**
 * Executes a guide. `url` is the address of its server, `directory` where its agent works.
 * @param {string} name
 * @param {{ url: string, env?: Record<string, string> }} model
 * @param {Record<string, string>} more Further variables of its environment.
 */
export async function startGuide(name, model, more = {}) {
  const guide = readGuide(name);
  const root = mkdtempSync(join(tmpdir(), "proscenium-guide-"));
  const [directory, home] = ["work", "home"].map((part) => join(root, part));
  const write = (base, path, text) => (mkdirSync(dirname(join(base, path)), { recursive: true }), writeFileSync(join(base, path), text));
  mkdirSync(directory);
  symlinkSync(here("node_modules"), join(directory, "node_modules"));
  for (const [path, text] of Object.entries(homeFiles(model.url))) write(home, path, text);

  const whole = [...guide.files.map(([, text]) => text), ...guide.commands].join("\n");
  const ports = new Map([["8787", await freePort()]]);
  for (const [, port] of whole.matchAll(/(?:127\.0\.0\.1:|--port |port=|listen\()(\d{4})\b/g)) if (!ports.has(port)) ports.set(port, await freePort());
  const localised = (text) => [...ports].reduce((text, [port, free]) => text.replace(new RegExp(`\\b${port}\\b`, "g"), free), text).replaceAll("https://api.openai.com", model.url);
  for (const [file, text] of guide.files) write(directory, file, localised(text));

  const env = {
    PATH: [dirname(BINARY), here(`node_modules/@anthropic-ai/claude-code-${process.platform}-${process.arch}`), here("node_modules/.bin"), PYTHON, process.env.PATH].join(delimiter), HOME: home, LANG: "C.UTF-8",
    OPENAI_BASE_URL: `${model.url}/v1`, ...model.env, OPENAI_AGENTS_DISABLE_TRACING: "1", LANGGRAPH_CLI_NO_ANALYTICS: "1", LANGSMITH_TRACING: "false", PYTHONUNBUFFERED: "1",
    PROSCENIUM_URL: `http://127.0.0.1:${ports.get("8787")}`, PROSCENIUM_LISTEN: `127.0.0.1:${ports.get("8787")}`, PROSCENIUM_STORE: "memory", PROSCENIUM_LOG: "warn",
    ...more,
    ...NO_NETWORK,
  };
  const children = [];
  const run = (command) => {
    const child = spawn("bash", ["-o", "pipefail", "-c", localised(command)], { cwd: directory, env, stdio: ["ignore", "pipe", "pipe"], detached: true });
    const output = [];
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (bytes) => output.push(bytes));
    const ended = new Promise((resolve) => child.once("exit", resolve));
    const running = { command, child, ended, output: () => Buffer.concat(output).toString() };
    children.push(running);
    return running;
  };
  for (const command of guide.commands) {
    const [, packages] = INSTALLATION.exec(command) ?? [];
    const [, variable] = /^export (\w+)=…$/.exec(command) ?? [];
    if (packages) for (const one of packages.replaceAll("'", "").split(" ")) assert.ok(PACKAGES.includes(one), `the tests have no package ${one}`);
    else if (variable) env[variable] ??= "fake";
    else run(command);
  }
  const url = `http://127.0.0.1:${ports.get("8787")}`;
  const stop = async () => {
    for (const { child, ended } of children.reverse()) {
      if (child.exitCode === null && child.signalCode === null) process.kill(-child.pid);
      await within("the end of a program", ended);
    }
    rmSync(root, { recursive: true, force: true });
  };
  const check = () => {
    for (const { command, child, output } of children) assert.equal(child.exitCode, null, `${command} ended: ${output()}`);
  };
  /** Runs the commands that follow what the guide shows. */
  const runLater = async () => {
    for (const command of guide.later) {
      const { child, ended, output } = run(command);
      await within(command, ended);
      assert.equal(child.exitCode, 0, `${command}: ${output()}`);
    }
  };
  const output = () => children.map(({ command, output }) => `$ ${command}\n${output()}`).join("\n");
  try {
    for (const port of ports.values()) await waitFor(`port ${port}`, () => (check(), isOpen(port)));
  } catch (error) {
    await stop();
    throw error;
  }
  return { ...guide, url, directory, stop, output, runLater };
}
