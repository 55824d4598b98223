/**
 * The dialogs of the page, each loaded when it is first opened: the palette, the keys, the output of a tool, and the
 * choice of a recording.
 */

import { loadStyle } from "./styles.js";
import { showToast } from "./toasts.js";

/** @type {import("./body-dialog.js").BodyDialog | undefined} */
let bodyDialog;

/**
 * Runs what loads a part of the page.
 * @param {string} what What the toast names if it does not load.
 * @param {() => Promise<void>} open
 */
export async function opened(what, open) {
  try {
    await open();
  } catch (error) {
    console.warn(`${what} did not load:`, error);
    showToast({ text: `${what} did not load. Check that the server runs, then try again.`, isFailure: true });
  }
}

/** @param {import("./palette.js").PaletteHost} host */
export const openPalette = (host) => opened("The palette", async () => {
  const [{ showPalette }] = await Promise.all([import("./palette.js"), loadStyle("palette.css")]);
  showPalette(host);
});

export const openKeys = () => opened("The list of keys", async () => {
  const [{ showKeys }] = await Promise.all([import("./palette.js"), loadStyle("palette.css")]);
  showKeys();
});

/**
 * Opens an output that the server stored apart.
 * @param {import("./client/http.js").Server} server
 * @param {string} href
 * @param {string} audience
 */
export const openBody = (server, href, audience) => opened("The output", async () => {
  const { BodyDialog } = await import("./body-dialog.js");
  bodyDialog ??= new BodyDialog(/** @type {HTMLDialogElement} */ (document.getElementById("detail")), server);
  bodyDialog.open(href, audience);
});

/**
 * Lets a person choose a recording, and sends it to the server.
 * @param {import("./client/http.js").Server} server
 * @param {(target: { session: string } | { run: string }) => void} sent Takes what the recording is about.
 */
export const openRecording = (server, sent) => opened("The choice", async () => (await import("./recording.js")).chooseRecording(server, sent));
