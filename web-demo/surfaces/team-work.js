/** The surfaces of the Team tab that show the work of a team. They load with the first activity that one of them shows. */

import "./background-teammates.js";
import "./handoff-lane.js";
import "./remote-teammates.js";
import "./worker-notifications.js";
