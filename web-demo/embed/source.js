/**
 * The live views of runs and sessions: elements that show the same one share its connection.
 */

/** @typedef {import("../live-model.js").LiveModel} LiveModel */
/** @typedef {import("../client/types.js").Audience} Audience */
/** @typedef {import("../client/types.js").Token} Token */

/**
 * Where an element reads.
 * @typedef {object} Place
 * @property {string} base The server's origin.
 * @property {string | Token | undefined} token As the page has set it: elements with the same one share connections.
 * @property {Token} getToken Returns the newest token of the element.
 * @property {Audience} audience
 * @property {"sse" | "websocket"} transport
 */

/** Nothing: surfaces of a page of others lead nowhere by themselves, and an element reports what a person wants to open. */
const NO_EVENTS = { step() {}, missing() {}, erased() {}, summary() {}, inspect() {}, open() {}, travel() {} };

/** @param {Place} place @returns {import("../client/http.js").Server} */
export const serverOf = ({ base, getToken }) => ({ base, client: "page", token: getToken });

/** @type {{ place: Place, target: string, model: LiveModel, users: number }[]} */
const shared = [];

/** @param {Place} a @param {Place} b */
const isSame = (a, b) => a.base === b.base && a.token === b.token && a.audience === b.audience && a.transport === b.transport;

/**
 * Opens a live view, or shares one that is open.
 * @template {LiveModel} Model
 * @param {Place} place
 * @param {{ run?: string, session?: string }} of
 * @param {new (...of: ConstructorParameters<typeof import("../view-model.js").ViewModel>) => Model} Kind What it must be, at least.
 * @returns {Model}
 */
export function openSource(place, { run, session }, Kind) {
  const target = JSON.stringify([run, session]);
  const open = shared.find(({ model, ...one }) => one.target === target && isSame(one.place, place) && model instanceof Kind && model.connection.state.kind !== "refused");
  if (open) {
    open.users += 1;
    return /** @type {Model} */ (open.model);
  }
  const model = new Kind(serverOf(place), { run, session, audience: place.audience, at: null }, place.transport, NO_EVENTS);
  shared.push({ place, target, model, users: 1 });
  return model;
}

/** @param {LiveModel} model */
export function closeSource(model) {
  const at = shared.findIndex((one) => one.model === model);
  if (at < 0) return;
  shared[at].users -= 1;
  if (shared[at].users > 0) return;
  shared.splice(at, 1);
  model.close();
}
