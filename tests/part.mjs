/**
 * The part of a long list that a run of the gate tests. `scripts/test` selects it by the commit, as PROSCENIUM_PART, and
 * prints it. With PROSCENIUM_FULL=1 tests take all.
 */

export const FULL = process.env.PROSCENIUM_FULL === "1";
const PART = Number(process.env.PROSCENIUM_PART ?? 0);

/** Returns one of so many parts of a list, and another one for each shift. */
export const partOf = (list, parts, shift = 0) => list.filter((_, at) => FULL || (at + shift + PART) % parts === 0);
