/** The tree of branches that a session belongs to, and the ways on from its points. */

/** @typedef {import("./client/types.js").BranchPoint} Point */
/** @typedef {import("./client/types.js").Branch} Branch */

/**
 * @typedef {object} Tree
 * @property {string} root The session from which all branches come.
 * @property {Branch[]} branches In the order of creation.
 */

/** The sessions that go on from one point, the oldest first, and which of them is open. @typedef {{ sessions: string[], at: number }} Ways */

/** @param {Point} point */
const keyOf = ({ sessionId, runId, sequence }) => `${sessionId} ${runId} ${sequence}`;

/**
 * The ways on from the point before a message.
 * @param {Tree} tree
 * @param {{ session: string, runId: string, isFirstRun: boolean, from: number, opened: number }} message
 * `session` is that of its run, `isFirstRun` whether the run is the first of that session. `from` is the sequence that
 * opened the message before it in the run, 0 for none.
 * @returns {Ways | undefined}
 */
export function waysAt({ branches }, { session, runId, isFirstRun, from, opened }) {
  const own = branches.find(({ sessionId }) => sessionId === session);
  const leaves = branches.filter(({ parent }) => parent.sessionId === session && parent.runId === runId && parent.sequence < opened && (from === 0 || parent.sequence >= from));
  const point = leaves[0]?.parent ?? (own && isFirstRun && from === 0 ? own.parent : undefined);
  if (!point) return undefined;
  const sessions = [point.sessionId, ...branches.filter(({ parent }) => keyOf(parent) === keyOf(point)).map(({ sessionId }) => sessionId)];
  return { sessions, at: sessions.indexOf(session) };
}
