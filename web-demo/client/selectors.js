/**
 * Selectors: parts of a store as values that stay the same object until they change, as frameworks of pages want them.
 */

import { keyOf } from "./store.js";

/**
 * @typedef {import("./types.js").Activity} Activity
 * @typedef {import("./contents.js").ActionContent} ActionContent
 * @typedef {import("./contents.js").MessageContent} MessageContent
 * @typedef {import("./contents.js").RunContent} RunContent
 * @typedef {import("./store.js").Store} Store
 */

/**
 * @template Content
 * @typedef {Omit<Activity, "content"> & { content: Content }} Of An activity whose content is known.
 */

/**
 * A part of a store. Both functions can be passed on alone, such as to React's `useSyncExternalStore`.
 * @template Value
 * @typedef {object} Selection
 * @property {() => Value} get The current value: the same object as before unless it has changed.
 * @property {(listener: () => void) => () => void} subscribe Calls the listener after each change of the value. Returns
 * the function that unsubscribes.
 */

/**
 * Whether an activity is an action that waits for a decision.
 * @param {Activity} activity
 * @returns {activity is Of<ActionContent>}
 */
export const isPendingAction = (activity) => activity.activityType === "action" && activity.content.status === "pending";

/**
 * Whether an activity is a message.
 * @param {Activity} activity
 * @returns {activity is Of<MessageContent>}
 */
export const isMessage = (activity) => activity.activityType === "message";

/**
 * The activity of a run itself: its title, status and usage.
 * @param {Store} store
 * @param {string} runId
 * @returns {Of<RunContent> | undefined} `undefined` before its first frame.
 */
export const runOf = (store, runId) => /** @type {Of<RunContent> | undefined} */ (store.get(keyOf({ runId, activityType: "run", activityId: runId })));

/**
 * Selects activities, in the order of the store.
 * @template {Activity} [One=Activity]
 * @param {Store} store
 * @param {((activity: Activity) => activity is One) | ((activity: Activity) => boolean)} [shows] Default: all. It may depend on nothing
 * but the activity.
 * @returns {Selection<One[]>}
 */
export function select(store, shows = () => true) {
  /** @type {Activity[]} */
  let value = [];
  let shownKeys = new Set();
  /** @type {Set<() => void>} */
  const listeners = new Set();
  /** @type {(() => void) | undefined} Set while there are listeners: then the value follows the store. */
  let unsubscribe;

  const read = () => {
    const next = store.sorted(shows);
    if (next.length === value.length && next.every((activity, at) => activity === value[at])) return false;
    value = next;
    shownKeys = new Set(next.map(keyOf));
    return true;
  };
  const isConcerned = (/** @type {string} */ key) => {
    const activity = store.get(key);
    return shownKeys.has(key) || (activity !== undefined && shows(activity));
  };
  const follow = () => store.subscribe(({ keys, reset }) => {
    if ((reset || [...keys].some(isConcerned)) && read()) for (const listener of [...listeners]) listener();
  });
  return {
    get: () => {
      if (!unsubscribe) read();
      return /** @type {One[]} */ (value);
    },
    subscribe: (listener) => {
      // The same function may subscribe twice.
      const own = () => listener();
      listeners.add(own);
      if (!unsubscribe) {
        unsubscribe = follow();
        read();
      }
      return () => {
        listeners.delete(own);
        if (listeners.size > 0) return;
        unsubscribe?.();
        unsubscribe = undefined;
      };
    },
  };
}
