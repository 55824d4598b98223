/** Published clients of the AI SDK and of TanStack AI, unchanged, against the real server. */

import { ai } from "./ai-sdk.mjs";
import { testClients } from "./matrix.mjs";
import { tanstack } from "./tanstack.mjs";

testClients([tanstack, ...ai]);
