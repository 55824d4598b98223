/**
 * JSON Patch (RFC 6902) on values that nobody may change.
 *
 * What a patch touches is copied, from the root down to there; everything else is shared with what was before. So whoever
 * holds the old value keeps it whole, and two values can be compared by `===` at any depth to see whether they differ. A patch
 * applies as a whole or not at all.
 */

/** @typedef {import("./types.js").Operation} Operation */

/** How long a string of streamed text is before another one is begun, in UTF-16 code units. */
const BLOCK_UNITS = 16_384;

/** A patch that does not apply. Nothing of it was. */
export class PatchError extends Error {
  /**
   * @param {number} index
   * @param {string} why
   */
  constructor(index, why) {
    super(`operation ${index} of the patch: ${why}`);
    this.name = "PatchError";
    /** Which operation, from 0. */
    this.index = index;
  }
}

/**
 * The content with a patch applied.
 *
 * A list that `isText` names is streamed text: appending to it makes its last string longer, until that is long enough and
 * another is begun. So a chunk costs itself, the list stays short, and whoever wants to know what was added need not touch what
 * was there. Nothing may address its chunks by their index.
 *
 * @template T
 * @param {T} content
 * @param {Operation[]} patch
 * @param {(pointer: string) => boolean} [isText] By the list's JSON Pointer.
 * @returns {T} The same object, if the patch changes nothing.
 * @throws {PatchError}
 */
export function apply(content, patch, isText = noText) {
  const draft = new Draft(content, isText);
  patch.forEach((operation, index) => {
    try {
      draft.do(operation);
    } catch (error) {
      throw error instanceof Miss ? new PatchError(index, error.message) : error;
    }
  });
  return /** @type {T} */ (draft.root);
}

const noText = () => false;

/** What keeps one operation from applying. */
class Miss extends Error {}

class Draft {
  /**
   * @param {any} root
   * @param {(pointer: string) => boolean} isText
   */
  constructor(root, isText) {
    this.root = root;
    this.#isText = isText;
  }

  #isText;
  /** Copies that this draft made, and may change. @type {Set<object>} */
  #own = new Set();

  /** @param {Operation} operation */
  do(operation) {
    const path = tokens(operation.path, "path");
    switch (operation.op) {
      case "add": return this.#add(path, value(operation), operation.path);
      case "replace": return this.#replace(path, value(operation));
      case "remove": return void this.#remove(path);
      case "test": {
        if (!equal(this.#at(path), value(operation))) throw new Miss(`${operation.path} is not what the test says`);
        return;
      }
      case "copy": {
        const copied = this.#at(tokens(operation.from, "from"));
        // What stands in two places belongs to neither.
        this.#own.clear();
        return this.#add(path, copied, operation.path);
      }
      case "move": {
        const from = tokens(operation.from, "from");
        if (from.length < path.length && from.every((token, at) => token === path[at])) throw new Miss(`${operation.from} cannot move into itself`);
        const moved = this.#at(from);
        if (operation.from === operation.path) return;
        this.#remove(from);
        return this.#add(path, moved, operation.path);
      }
      default: throw new Miss(`${JSON.stringify(operation.op)} is no operation`);
    }
  }

  /** @param {string[]} path */
  #at(path) {
    return path.reduce((at, token) => at[place(at, token)], this.root);
  }

  /**
   * The object or list that the last token is in, copied down to it.
   * @param {string[]} path
   */
  #parent(path) {
    let at = this.root = this.#copied(this.root);
    for (const token of path.slice(0, -1)) {
      const key = place(at, token);
      const child = this.#copied(at[key]);
      put(at, key, child);
      at = child;
    }
    return at;
  }

  /** @param {any} container */
  #copied(container) {
    if (typeof container !== "object" || container === null) throw new Miss(`nothing can be in ${JSON.stringify(container)}`);
    if (this.#own.has(container)) return container;
    const copy = Array.isArray(container) ? container.slice() : { ...container };
    this.#own.add(copy);
    return copy;
  }

  /**
   * @param {string[]} path
   * @param {any} added
   * @param {string} pointer
   */
  #add(path, added, pointer) {
    const token = path.at(-1);
    if (token === undefined) return void (this.root = added);
    const parent = this.#parent(path);
    if (!Array.isArray(parent)) return put(parent, token, added);
    const last = parent.at(-1);
    if (token === "-" && typeof added === "string" && typeof last === "string" && last.length < BLOCK_UNITS && this.#isText(pointer.slice(0, -2))) {
      return void (parent[parent.length - 1] = last + added);
    }
    parent.splice(token === "-" ? parent.length : index(token, parent.length), 0, added);
  }

  /**
   * @param {string[]} path
   * @param {any} other
   */
  #replace(path, other) {
    const token = path.at(-1);
    if (token === undefined) return void (this.root = other);
    const parent = this.#parent(path);
    put(parent, place(parent, token), other);
  }

  /** @param {string[]} path */
  #remove(path) {
    const token = path.at(-1);
    if (token === undefined) throw new Miss("the whole cannot be removed");
    const parent = this.#parent(path);
    const key = place(parent, token);
    if (Array.isArray(parent)) parent.splice(Number(key), 1);
    else delete parent[key];
  }
}

/**
 * The reference tokens of a JSON Pointer (RFC 6901).
 * @param {unknown} pointer
 * @param {string} member
 */
function tokens(pointer, member) {
  if (typeof pointer !== "string") throw new Miss(`its ${member} is missing`);
  if (pointer === "") return [];
  if (!pointer.startsWith("/") || /~(?![01])/.test(pointer)) throw new Miss(`${JSON.stringify(pointer)} is no JSON Pointer`);
  return pointer.slice(1).split("/").map((token) => token.replaceAll("~1", "/").replaceAll("~0", "~"));
}

/** @param {Operation} operation */
function value(operation) {
  if (!Object.hasOwn(operation, "value")) throw new Miss("its value is missing");
  return operation.value;
}

/**
 * Where a token leads in what is there.
 * @param {any} container
 * @param {string} token
 * @returns {string | number}
 */
function place(container, token) {
  if (Array.isArray(container)) return index(token, container.length - 1);
  if (typeof container === "object" && container !== null && Object.hasOwn(container, token)) return token;
  throw new Miss(`there is no ${JSON.stringify(token)}`);
}

/**
 * @param {string} token
 * @param {number} max
 */
function index(token, max) {
  const at = /^(0|[1-9]\d*)$/.test(token) ? Number(token) : NaN;
  if (!(at <= max)) throw new Miss(`${JSON.stringify(token)} is no place in a list that ends at ${max}`);
  return at;
}

/**
 * Sets a member, whatever its name: `__proto__` is one like any other.
 * @param {any} container
 * @param {string | number} key
 * @param {any} value
 */
function put(container, key, value) {
  if (key === "__proto__") Object.defineProperty(container, key, { value, writable: true, enumerable: true, configurable: true });
  else container[key] = value;
}

/**
 * Whether two JSON values say the same. The order of an object's members means nothing.
 * @param {any} a
 * @param {any} b
 * @returns {boolean}
 */
export function equal(a, b) {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  if (Array.isArray(a)) return a.length === b.length && a.every((item, at) => equal(item, b[at]));
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => Object.hasOwn(b, key) && equal(a[key], b[key]));
}
