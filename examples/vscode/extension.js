/**
 * A panel of VS Code: it follows a session by WebSocket, and sends the person's decisions.
 *
 * The extension connects, and not the webview: a webview has an origin of its own for each window, which a server cannot
 * allow, and it never sees the token. The webview gets what it draws, and says which button was pressed.
 */

const { readFileSync } = require("node:fs");
const { join } = require("node:path");
const { randomBytes } = require("node:crypto");
const vscode = require("vscode");

const TOKEN = "proscenium.token";

exports.activate = (context) => {
  const panel = new Panel(context);
  const { registerCommand } = vscode.commands;
  context.subscriptions.push(
    panel,
    vscode.window.registerWebviewViewProvider("proscenium.panel", panel),
    registerCommand("proscenium.open", () => panel.choose()),
    registerCommand("proscenium.token", async () => {
      const token = await vscode.window.showInputBox({ prompt: "The token of the server", password: true, ignoreFocusOut: true });
      if (token !== undefined) await context.secrets.store(TOKEN, token);
      await panel.follow();
    }),
  );
};

class Panel {
  constructor(context) {
    this.context = context;
    this.closing = [];
  }

  /** The server, as the client's functions take it. */
  server() {
    const base = vscode.workspace.getConfiguration("proscenium").get("url").replace(/\/$/, "");
    return { base, token: () => this.context.secrets.get(TOKEN) };
  }

  resolveWebviewView(view) {
    this.view = view;
    view.webview.options = { enableScripts: true };
    view.webview.onDidReceiveMessage((message) => this.receive(message));
    view.onDidDispose(() => this.dispose());
    const nonce = randomBytes(16).toString("base64");
    const script = readFileSync(join(__dirname, "panel.js"), "utf8");
    const policy = `default-src 'none'; script-src 'nonce-${nonce}'; style-src 'nonce-${nonce}'`;
    view.webview.html = `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Session</title>
<meta http-equiv="content-security-policy" content="${policy}">
<style nonce="${nonce}">${readFileSync(join(__dirname, "panel.css"), "utf8")}</style></head>
<body><p id="state" role="status"></p><main id="session" aria-live="polite"></main><script nonce="${nonce}">${script}</script></body></html>`;
  }

  post(message) {
    this.view?.webview.postMessage(message);
  }

  async receive({ type, ...control }) {
    if (type === "ready") return this.follow();
    const { submit } = await import("@proscenium/client");
    try {
      await submit(this.server(), control);
    } catch (error) {
      this.post({ type: "refused", actionId: control.actionId, why: error.detail ?? error.message });
    }
  }

  /** Follows the session of the settings, or the newest one. */
  async follow() {
    this.dispose();
    const { Hydration, Store, connect } = await import("@proscenium/client");
    const server = this.server();
    try {
      const named = vscode.workspace.getConfiguration("proscenium").get("session");
      const session = named || (await new Hydration(server).sessions()).sessions[0]?.sessionId;
      if (!session) return this.post({ type: "state", text: "The server has no session yet." });
      const store = new Store();
      const link = connect({ ...server, session, transport: "websocket" }, store);
      // Many changes become one message.
      let isDue = false;
      const show = () => {
        if (isDue) return;
        isDue = true;
        setTimeout(() => {
          isDue = false;
          this.post({ type: "activities", activities: store.sorted(({ activityType }) => ["message", "action", "run"].includes(activityType)) });
        }, 50);
      };
      const about = ({ kind, why, problem }) => this.post({ type: "state", text: `${session}: ${problem?.detail || why || kind}` });
      this.closing = [store.subscribe(show), link.subscribe(about), () => link.close()];
      about(link.state);
      show();
    } catch (error) {
      this.post({ type: "state", text: error.detail ?? `The server does not answer: ${error.message}` });
    }
  }

  /** Asks which session to show, and remembers it in the settings of the workspace. */
  async choose() {
    const { Hydration } = await import("@proscenium/client");
    const { sessions } = await new Hydration(this.server()).sessions();
    const items = sessions.map(({ sessionId, title }) => ({ label: title ?? sessionId, description: sessionId }));
    const chosen = await vscode.window.showQuickPick(items, { placeHolder: "The session to show" });
    if (!chosen) return;
    await vscode.workspace.getConfiguration("proscenium").update("session", chosen.description);
    await this.follow();
  }

  dispose() {
    for (const close of this.closing.splice(0)) close();
  }
}
