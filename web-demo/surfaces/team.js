/** The surfaces of the Team tab, which load together. The graph loads once a team is there. */

import "./background-teammates.js";
import "./handoff-lane.js";
import "./remote-teammates.js";
import "./team-policy.js";
import "./team-roster.js";
import "./worker-notifications.js";
