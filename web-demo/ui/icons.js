/**
 * Icons, as templates. They are decoration: a button names itself.
 */

import { svg } from "../vendor/lit.js";
import { CHEVRONS, drawn } from "./glyphs.js";

/** Icons on a grid of 16 by 16. */
const ICONS = {
  search: svg`<circle cx="7" cy="7" r="4.5"/><path d="m10.5 10.5 3 3"/>`,
  plus: svg`<path d="M8 3v10M3 8h10"/>`,
  menu: svg`<path d="M2.5 4.5h11M2.5 8h11M2.5 11.5h11"/>`,
  back: svg`<path d="m10 4-4 4 4 4"/>`,
  "chevron-right": CHEVRONS.right,
  "chevron-down": CHEVRONS.down,
  close: svg`<path d="m4 4 8 8M12 4l-8 8"/>`,
  expand: svg`<path d="M9.5 2.5h4v4M13.5 2.5l-5 5M6.5 13.5h-4v-4M2.5 13.5l5-5"/>`,
  more: svg`<path d="M3.5 8h.01M8 8h.01M12.5 8h.01" stroke-width="2.2"/>`,
  inbox: svg`<path d="M2.5 9 4.3 3.5h7.4L13.5 9v3.5h-11zM2.5 9h3l1 1.5h3l1-1.5h3"/>`,
  panel: svg`<rect x="2.5" y="3" width="11" height="10" rx="1.5"/><path d="M10 3v10"/>`,
  compare: svg`<rect x="2.5" y="3" width="11" height="10" rx="1.5"/><path d="M8 3v10"/>`,
  help: svg`<circle cx="8" cy="8" r="5.7"/><path d="M6.3 6.4a1.8 1.8 0 1 1 2.5 1.7c-.5.2-.8.5-.8 1M8 11.3h.01"/>`,
  theme: svg`<circle cx="8" cy="8" r="5.2"/><path d="M8 2.8a5.2 5.2 0 0 1 0 10.4z" fill="currentColor"/>`,
  play: svg`<path d="M5 3.2v9.6l7.5-4.8z" fill="currentColor"/>`,
  pause: svg`<path d="M5.5 3.5v9M10.5 3.5v9"/>`,
  "step-back": svg`<path d="M11 3.5v9L5.5 8zM4 3.5v9"/>`,
  "step-forward": svg`<path d="M5 3.5v9L10.5 8zM12 3.5v9"/>`,
  stop: svg`<rect x="4" y="4" width="8" height="8" rx="1"/>`,
  attach: svg`<path d="M12.8 7.3 8 12.1a3 3 0 0 1-4.3-4.3l5-5a2 2 0 0 1 2.9 2.9l-5 5a1 1 0 0 1-1.4-1.5l4.4-4.4"/>`,
  document: svg`<path d="M4 2.5h5l3.5 3.5v7.5H4zM9 2.5V6h3.5"/>`,
  image: svg`<rect x="2.5" y="3" width="11" height="10" rx="1.5"/><path d="m3 11 3-3 2.5 2.5L11 7.5l2.5 3"/>`,
  copy: svg`<rect x="5.5" y="5.5" width="8" height="8" rx="1.5"/><path d="M10.5 3.2V3a1 1 0 0 0-1-1H3.5a1 1 0 0 0-1 1v6.5a1 1 0 0 0 1 1h.2"/>`,
  link: svg`<path d="M6.5 9.5 9.5 6.5M7 4.8l1.4-1.4a2.8 2.8 0 0 1 4 4L11 8.8M9 11.2l-1.4 1.4a2.8 2.8 0 0 1-4-4L5 7.2"/>`,
  filter: svg`<path d="M2.5 4h11M4.5 8h7M6.5 12h3"/>`,
  up: svg`<path d="M8 13V3.5M4 7l4-4 4 4"/>`,
  pin: svg`<path d="M6 2.5h4l-.5 4 2 2.5h-7l2-2.5zM8 9v4.5"/>`,
  archive: svg`<path d="M2.5 3.5h11v3h-11zM3.5 6.5v6h9v-6M6.5 9h3"/>`,
};

/** @typedef {keyof typeof ICONS} IconName */

/** @param {IconName} name */
export const icon = (name) => drawn(ICONS[name]);
