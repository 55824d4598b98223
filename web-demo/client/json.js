/**
 * JSON whose numbers keep their digits.
 *
 * A number that no double holds becomes a raw JSON value: `JSON.stringify` writes it as it came, and `digitsOf` reads it. A
 * browser without `JSON.rawJSON` rounds it.
 */

/** @typedef {JSON & { rawJSON?: (text: string) => unknown, isRawJSON?: (value: unknown) => boolean }} RawJson */

const raw = /** @type {RawJson} */ (JSON);

/** What a text has that a double may not hold. */
const LONG = /\d[\d.]{15}|\d[eE]/;

/** The digits of a number without its sign, exponent and outer zeros. @param {string} number */
const significant = (number) => number.replace(/e.*$/i, "").replace(/[-.]/g, "").replace(/^0+|0+$/g, "");

/**
 * @param {string} _name
 * @param {unknown} value
 * @param {{ source?: string }} [context]
 */
function keepDigits(_name, value, { source } = {}) {
  if (typeof value !== "number" || source === undefined) return value;
  return Number.isFinite(value) && significant(source) === significant(String(value)) ? value : raw.rawJSON?.(source);
}

/**
 * @param {string} text
 * @returns {any}
 * @throws {SyntaxError} The text is not JSON.
 */
export const parseJson = (text) => (raw.rawJSON && LONG.test(text) ? JSON.parse(text, keepDigits) : JSON.parse(text));

/** @param {Response} response @returns {Promise<any>} */
export const readJson = async (response) => parseJson(await response.text());

/** The digits of a number that no double holds. @param {unknown} value @returns {string | undefined} */
export const digitsOf = (value) => (raw.isRawJSON?.(value) ? /** @type {{ rawJSON: string }} */ (value).rawJSON : undefined);
