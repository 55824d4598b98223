//! What ends, what goes stale and what is unknown: runs, agents, tasks, reviews and artifacts after an end.
