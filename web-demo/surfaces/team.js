/** The surfaces of the Team tab, which load together. */

import "./team-policy.js";
import "./team-roster.js";
