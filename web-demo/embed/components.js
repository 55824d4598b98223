/**
 * The shared classes that a decision does not need. Any other sheet may override them.
 */

import sheet from "../components.css";
import { addSheet } from "./sheets.js";

addSheet(sheet, { isFirst: true });
