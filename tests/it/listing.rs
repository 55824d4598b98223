//! Session lists, counts of pending actions, and the session-wide views of activities and events.
