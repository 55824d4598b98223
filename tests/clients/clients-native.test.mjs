/** Published clients of server-sent events, unchanged, against the real server's own frames. */

import { testClients } from "./matrix.mjs";
import { eventSource, fetchEvents } from "./native.mjs";

testClients([eventSource, fetchEvents]);
