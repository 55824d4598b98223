/** Published AG-UI clients, unchanged, against the real server. */

import { agUis } from "./ag-ui.mjs";
import { testClients } from "./matrix.mjs";

testClients(agUis);
