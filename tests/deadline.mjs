/**
 * The limits of the tests in `tests/browser` and `tests/clients`. They end a hang and decide nothing: on a quiet machine,
 * no test takes a tenth of its limit. PROSCENIUM_DEADLINE_MS shortens them for an author of tests.
 */

/** The time after which a wait fails, in milliseconds. */
export const DEADLINE = Number(process.env.PROSCENIUM_DEADLINE_MS ?? 300_000);

/** The options of each test. Its limit is longer than that of a wait, so that the failure names the condition. */
export const limit = { timeout: 2 * DEADLINE };
