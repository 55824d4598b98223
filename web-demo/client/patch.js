/**
 * JSON Patch (RFC 6902) on immutable values.
 *
 * `apply` copies the path from the root to each change and shares the rest with the old value. The holder of the old
 * value keeps it unchanged, and `===` tells at any depth whether two values differ. A patch applies as a whole or not
 * at all.
 */

/** @typedef {import("./types.js").Operation} Operation */

/** The length of a chunk of streamed text at which `apply` begins another, in UTF-16 code units. */
const CHUNK_UNITS_MAX = 16_384;

/** A patch that does not apply. No operation of it was applied. */
export class PatchError extends Error {
  /**
   * @param {number} parseIndex
   * @param {string} why
   */
  constructor(parseIndex, why) {
    super(`operation ${parseIndex} of the patch: ${why}`);
    this.name = "PatchError";
    /** The index of the failed operation, from 0. */
    this.index = parseIndex;
  }
}

/**
 * Applies a patch to a content.
 *
 * A list for which `isText` holds is streamed text. `apply` extends its last chunk until that reaches the maximum, and
 * then begins another. An append thus costs its own length, the list stays short, and a reader of the new text need not
 * read the old one. No patch may address the chunks by index.
 *
 * @template T
 * @param {T} content
 * @param {Operation[]} patch
 * @param {(pointer: string) => boolean} [isText] Takes the list's JSON Pointer.
 * @returns {T} The same object, if the patch changes nothing.
 * @throws {PatchError}
 */
export function apply(content, patch, isText = neverText) {
  const draft = new Draft(content, isText);
  patch.forEach((operation, index) => {
    try {
      draft.applyOperation(operation);
    } catch (error) {
      throw error instanceof InapplicableOperation ? new PatchError(index, error.message) : error;
    }
  });
  return /** @type {T} */ (draft.root);
}

const neverText = () => false;

/** An operation that does not apply. */
class InapplicableOperation extends Error {}

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
  /** Copies that this draft made and may therefore change. @type {Set<object>} */
  #copies = new Set();

  /** @param {Operation} operation */
  applyOperation(operation) {
    const path = parsePointer(operation.path, "path");
    switch (operation.op) {
      case "add": return this.#add(path, value(operation), operation.path);
      case "replace": return this.#replace(path, value(operation));
      case "remove": return void this.#remove(path);
      case "test": {
        if (!equal(this.#valueAt(path), value(operation))) throw new InapplicableOperation(`${operation.path} does not equal the value of the test`);
        return;
      }
      case "copy": {
        const source = this.#valueAt(parsePointer(operation.from, "from"));
        // A value that is in two places must be copied again before a change.
        this.#copies.clear();
        return this.#add(path, source, operation.path);
      }
      case "move": {
        const from = parsePointer(operation.from, "from");
        if (from.length < path.length && from.every((token, at) => token === path[at])) throw new InapplicableOperation(`${operation.from} cannot move into itself`);
        const source = this.#valueAt(from);
        if (operation.from === operation.path) return;
        this.#remove(from);
        return this.#add(path, source, operation.path);
      }
      default: throw new InapplicableOperation(`${JSON.stringify(operation.op)} is not an operation`);
    }
  }

  /** @param {string[]} path */
  #valueAt(path) {
    return path.reduce((at, token) => at[resolveKey(at, token)], this.root);
  }

  /**
   * Copies the containers from the root to the parent of the last token, and returns that parent.
   * @param {string[]} path
   */
  #parent(path) {
    let at = this.root = this.#copyOnce(this.root);
    for (const token of path.slice(0, -1)) {
      const key = resolveKey(at, token);
      const child = this.#copyOnce(at[key]);
      setMember(at, key, child);
      at = child;
    }
    return at;
  }

  /** @param {any} container */
  #copyOnce(container) {
    if (typeof container !== "object" || container === null) throw new InapplicableOperation(`${JSON.stringify(container)} has no members`);
    if (this.#copies.has(container)) return container;
    const copy = Array.isArray(container) ? container.slice() : { ...container };
    this.#copies.add(copy);
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
    if (!Array.isArray(parent)) return setMember(parent, token, added);
    const last = parent.at(-1);
    if (token === "-" && typeof added === "string" && typeof last === "string" && last.length < CHUNK_UNITS_MAX && this.#isText(pointer.slice(0, -2))) {
      return void (parent[parent.length - 1] = last + added);
    }
    parent.splice(token === "-" ? parent.length : parseIndex(token, parent.length), 0, added);
  }

  /**
   * @param {string[]} path
   * @param {any} other
   */
  #replace(path, other) {
    const token = path.at(-1);
    if (token === undefined) return void (this.root = other);
    const parent = this.#parent(path);
    setMember(parent, resolveKey(parent, token), other);
  }

  /** @param {string[]} path */
  #remove(path) {
    const token = path.at(-1);
    if (token === undefined) throw new InapplicableOperation("the root cannot be removed");
    const parent = this.#parent(path);
    const key = resolveKey(parent, token);
    if (Array.isArray(parent)) parent.splice(Number(key), 1);
    else delete parent[key];
  }
}

/**
 * Parses a JSON Pointer (RFC 6901) into its reference tokens.
 * @param {unknown} pointer
 * @param {string} member
 */
function parsePointer(pointer, member) {
  if (typeof pointer !== "string") throw new InapplicableOperation(`${member} is missing`);
  if (pointer === "") return [];
  if (!pointer.startsWith("/") || /~(?![01])/.test(pointer)) throw new InapplicableOperation(`${JSON.stringify(pointer)} is not a JSON Pointer`);
  return pointer.slice(1).split("/").map((token) => token.replaceAll("~1", "/").replaceAll("~0", "~"));
}

/** @param {Operation} operation */
function value(operation) {
  if (!Object.hasOwn(operation, "value")) throw new InapplicableOperation("value is missing");
  return operation.value;
}

/**
 * Resolves a token to an existing key or index of a container.
 * @param {any} container
 * @param {string} token
 * @returns {string | number}
 */
function resolveKey(container, token) {
  if (Array.isArray(container)) return parseIndex(token, container.length - 1);
  if (typeof container === "object" && container !== null && Object.hasOwn(container, token)) return token;
  throw new InapplicableOperation(`member ${JSON.stringify(token)} does not exist`);
}

/**
 * @param {string} token
 * @param {number} max
 */
function parseIndex(token, max) {
  const at = /^(0|[1-9]\d*)$/.test(token) ? Number(token) : NaN;
  if (!(at <= max)) throw new InapplicableOperation(`${JSON.stringify(token)} is not an index from 0 to ${max}`);
  return at;
}

/**
 * Sets a member. `__proto__` is an ordinary name here.
 * @param {any} container
 * @param {string | number} key
 * @param {any} value
 */
function setMember(container, key, value) {
  if (key === "__proto__") Object.defineProperty(container, key, { value, writable: true, enumerable: true, configurable: true });
  else container[key] = value;
}

/**
 * Whether two JSON values are equal. The order of an object's members is irrelevant.
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
