/**
 * `<ps-decision run action>`: one decision, with the controls that answer it.
 */

import { keyOf } from "../client/store.js";
import { LiveModel } from "../live-model.js";
import { Action } from "../surfaces/action.js";
import { isDecisionKey } from "../surfaces/decision-keys.js";
import { toText } from "../surfaces/base.js";
import { t } from "../ui/texts.js";
import { EmbeddedElement } from "./element.js";
import { closeSource, openSource } from "./source.js";

export class DecisionElement extends EmbeddedElement {
  /** @type {LiveModel | undefined} */
  #model;
  /** @type {import("../surfaces/base.js").CardView | undefined} */
  #view;
  #card = new Action();
  #unsubscribe = [() => {}];
  /** Whether the decision was pending at the last drawing. */
  #wasPending = false;

  constructor() {
    super();
    this.content.addEventListener("decided", (event) => this.emit("ps-answered", { ...this.#target, .../** @type {CustomEvent} */ (event).detail }));
    this.content.addEventListener("keydown", (event) => isDecisionKey(event) && this.#card.handleKey(event.key) && event.preventDefault());
  }

  /** What it shows, as events name it. */
  get #target() {
    return { runId: this.attribute("run"), sessionId: this.attribute("session"), actionId: this.attribute("action") };
  }

  open() {
    const { runId: run, sessionId: session, actionId } = this.#target;
    if (actionId === undefined || (run === undefined && session === undefined)) return this.fail({ code: "incomplete", detail: t("This element needs its attributes “run” and “action”.") });
    const model = openSource(this.place, { run, session }, LiveModel);
    this.#model = model;
    this.#view = Object.assign(Object.create(model.view()), { open: this.report });
    this.#card = new Action();
    this.#wasPending = false;
    this.#unsubscribe = [model.store.subscribe(this.schedule), model.connection.subscribe(() => this.schedule())];
    this.draw();
  }

  close() {
    for (const unsubscribe of this.#unsubscribe) unsubscribe();
    this.#unsubscribe = [];
    if (this.#model) closeSource(this.#model);
    this.#model = undefined;
  }

  draw() {
    const [model, view] = [this.#model, this.#view];
    if (!model || !view) return;
    const { runId, sessionId, actionId } = this.#target;
    this.showConnection(model.connection.state);
    const action = model.store.get(keyOf({ runId: runId ?? "", sessionId: runId ? undefined : sessionId, activityType: "action", activityId: toText(actionId) }));
    if (!action) return this.#showMissing(model);
    this.showEmpty(false);
    if (!this.#card.isConnected) this.content.replaceChildren(this.#card);
    this.#card.show(view, action);
    const { status, outcome } = action.content;
    if (this.#wasPending && status !== "pending") this.emit("ps-resolved", { ...this.#target, status, outcome });
    this.#wasPending = status === "pending";
  }

  /** @param {LiveModel} model */
  #showMissing({ store, connection }) {
    const { kind } = connection.state;
    const isHydrated = store.runs().some(({ isHydrated }) => isHydrated);
    this.showEmpty(kind === "live" && isHydrated);
    if (kind === "live" && isHydrated) this.notify(t("There is no such decision, or the token does not permit it."));
    else if (kind === "connecting" || kind === "live") this.notify(t("Loading the decision…"));
  }
}
