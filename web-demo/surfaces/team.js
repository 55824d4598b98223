/** The surfaces of the Team tab, which load together. */

import "./background-teammates.js";
import "./delegation-graph.js";
import "./handoff-lane.js";
import "./remote-teammates.js";
import "./team-policy.js";
import "./team-roster.js";
import "./worker-notifications.js";
