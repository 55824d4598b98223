//! The limits page.
//!
//! Settings as the binary describes them, and fixed limits with their figures from the code.
//!
//! A figure in [`LIMITS`] is a flag (`{--fact-max}`) or a constant of the code (`{BODY_FACTS_MAX}`). Where several constants share a
//! name, a part of the file's path chooses: `{RUNS_MAX in clients/}`. A member of a `Default` is named in the same way.

use super::markdown::table;
use super::reference::{printed, schema};
use crate::harness::repository;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::LazyLock;

/// What is limited, to what, and what happens beyond it.
type Limit = (&'static str, &'static str, &'static str);

const LIMITS: &[(&str, &[Limit])] = &[
    (
        "Facts and bodies",
        &[
            ("One fact; one line of a streamed body", "{--fact-max}", "413 `fact_too_large`"),
            ("One JSON body. A streamed body has no limit", "{--body-max}", "413 `body_too_large`"),
            ("Facts of one JSON body or one `publish` message", "{BODY_FACTS_MAX}", "413 `too_many_facts`"),
            (
                "Envelopes of one JSON body: its text, and for each envelope {ENVELOPE_BYTES} and the ids of the request",
                "{ENVELOPES_BYTES_MAX}, or twice the body",
                "413 `envelopes_too_large`",
            ),
            ("One append. A longer body becomes several, all or none", "{APPEND_ROWS_MAX} rows, {APPEND_BYTES_MAX}", "none"),
            ("Nesting of the JSON of a fact", "{--depth-max} levels", "422 `too_deep`"),
            ("An id, without control characters", "1 to {ID_BYTES_MAX in model/}", "400 `bad_id`, 422 `bad_member`"),
            (
                "Time for a JSON body",
                "{--body-time-ms}, and 1 s for each {BODY_BYTES_PER_SEC_MIN}",
                "408 `body_too_slow`; nothing is kept",
            ),
            (
                "Silence of a streamed body; a blank line breaks it",
                "{--line-time-ms}",
                "408 `body_silent`; what came before is kept",
            ),
            (
                "Facts per second of one producer: of a token's `sub`; without keys, of a `Producer-Id`, else of a run. \
                 `--publish-burst` sets how many may come at once",
                "{--publish-rate}",
                "429 `publish_rate`; a streamed body is read no faster",
            ),
            (
                "Memory of facts on their way to the store, counted before they are parsed: their text, and their envelopes twice",
                "{--in-flight-max}",
                "producers wait; after {--busy-after-ms}, 503 `busy`",
            ),
            (
                "Facts on their way to the store before diagnostics and metrics are omitted",
                "{--shed-above}",
                "none; the answer counts them as `shed`",
            ),
        ],
    ),
    (
        "Runs and logs",
        &[
            (
                "Free space on the disk of the store, less twice the envelopes on their way to it",
                "{--disk-reserve}",
                "507 `disk_full` for writes; reads go on",
            ),
            ("Backups that are read at once", "{BACKUPS_MAX}", "429 `too_many_backups`"),
            ("Names of files in the request of a backup", "{BACKUP_BODY_BYTES_MAX}", "413 `body_too_large`"),
            (
                "Bytes of a backup that are sent in a second, unless the client names another rate",
                "{BACKUP_BYTES_PER_SEC}",
                "none",
            ),
            ("Time in which a client reads a backup", "{BACKUP_TIME_MAX}", "the backup ends"),
            ("Time in which the client of a backup reads nothing", "{BACKUP_STALL_MAX}", "the backup ends"),
            (
                "Runs, and sessions with a log of their own",
                "{--runs-max}",
                "507 `too_many_runs` for a fact that would begin one more",
            ),
            (
                "Calls, messages, parts and other subjects of one log. One body may exceed it by its own",
                "{subjects_max in ingest/limits}",
                "422 `too_many_subjects`; the run can still be settled",
            ),
            (
                "Time for which the id of an erased session, or of a run of it, is refused; such ids",
                "{ERASED_TIME}; {ERASED_IDS_MAX}",
                "410 `erased`; beyond, the oldest may be used again",
            ),
            (
                "Time that a run at work has to end before its session is erased",
                "{STOP_TIME_MAX in maintenance/}",
                "none; it is settled",
            ),
            (
                "Legal holds; the reason of one",
                "{HOLDS_MAX}; {HOLD_REASON_CHARS_MAX} characters",
                "429 `too_many_holds`; 422 `bad_member`",
            ),
            (
                "Rules of retention, of the configuration or of a dry run; patterns of owners of one; its `after`",
                "{RETENTION_RULES_MAX}; {OWNER_PATTERNS_MAX}; 1 s to {RETENTION_AFTER_MAX}",
                "the server does not start; 422 `bad_member`",
            ),
            (
                "Sessions and runs that a dry run names of one rule",
                "{DRY_RUN_NAMED_MAX}",
                "422 `bad_member`; the counts have all",
            ),
            ("Child sessions that a refused erasure names", "{NAMED_CHILDREN_MAX}", "none; `count` has all"),
            ("Time for which a request waits for the erasure of an owner", "{OWNER_WAIT_SECS_MAX}", "202; the erasure goes on"),
            ("Numbered producers of a run", "{PRODUCERS_MAX in ingest/}", "422 `too_many_producers`"),
            ("Places of its hash chain that a log saves", "one for each {POINT_ROWS} rows, and one for each decision", "none"),
            ("One line that `proscenium verify` reads", "{LINE_OF_EXPORT_BYTES_MAX}", "exit code 2, with the reason"),
            ("Keys, or a head, that `proscenium verify` reads", "{SMALL_FILE_BYTES_MAX}", "the rest is not read"),
            ("Checkpoints of a run", "three for each {ROWS_BETWEEN} rows; 1/{LOG_TO_CHECKPOINT} of the bytes of the log", "none"),
        ],
    ),
    (
        "Guarding",
        &[
            (
                "A tool's input or output, or a text in a state, that stays in its envelope",
                "{--inline-max}",
                "none; it moves to a blob",
            ),
            (
                "A text of a message, thought, plan or streamed output, and a value of a decision, in its envelope",
                "{TEXT_BYTES_MAX}",
                "none; the whole moves to a blob, and the activity has the beginning and `clipped`",
            ),
            ("Bodies in the history that an agent is sent", "{SENT_BYTES_MAX}", "none; the oldest have only their previews"),
            ("Bodies that move out of one envelope", "{BODIES_MAX}", "none; the member around them moves whole"),
            (
                "JSON pointer that names a blob's place in its envelope",
                "{POINTER_BYTES_MAX}",
                "none; the value around it moves whole",
            ),
            ("Text held back because it may begin a secret", "{HELD_BYTES_MAX in guard/}", "none; longer text is redacted"),
            (
                "Audiences that alternate within held text",
                "{PARTS_MAX in guard/} parts",
                "none; the server decides about the text at once",
            ),
            ("Streams of one log with held text", "{HOLDING_STREAMS_MAX}", "none; the server decides about the oldest at once"),
            (
                "Silent logs that stay in memory for held text that may be most of a secret",
                "{HOLDING_LOGS_MAX}",
                "none; in others that text reads `[redacted]`",
            ),
        ],
    ),
    (
        "Activities",
        &[
            (
                "Activities of a run for one audience; the last {ACTIVITIES_RESERVED} are kept for actions",
                "{ACTIVITIES_MAX}",
                "none; the `run` activity has `activitiesOmitted`, the log has all",
            ),
            ("A streamed text of an activity", "{TEXT_BYTES_MAX}", "none; `clipped`, the log has all"),
            (
                "Components of a surface (A2UI); its whole state",
                "{COMPONENTS_MAX}; {SURFACE_BYTES_MAX}",
                "the message is not applied; `diagnostics` says so",
            ),
            (
                "Surfaces that one fact changes; changes of a data model since an earlier run",
                "{SURFACES_PER_FACT_MAX}; {DATA_UPDATES_MAX}",
                "the same",
            ),
            ("Messages of other A2UI versions of a surface", "{OTHER_MESSAGES_MAX}", "the oldest leave"),
            (
                "A surface that AG-UI's clients get whole with each change",
                "{WHOLE_SURFACE_BYTES_MAX}",
                "changes are appended as messages",
            ),
            ("Parts of a message", "{PARTS_MAX in projection/}", "none; `clipped`, the log has all"),
            (
                "Channels of a call's output beside `stdout`; the length of their names",
                "{CHANNELS_MAX}; {CHANNEL_BYTES_MAX}",
                "none; `clipped`, the log has all",
            ),
            (
                "A state or custom content after patches",
                "{CONTENT_BYTES_MAX}, {DEPTH_MAX in projection/} levels",
                "none; the patch is not applied, and `diagnostics` says so",
            ),
            (
                "List items that one patch shifts, and values that it copies or moves deeper; {BYTES_PER_STEP} of text count as one",
                "{STEPS_MAX in projection/}",
                "none; the patch is not applied, and `diagnostics` says so",
            ),
        ],
    ),
    (
        "Controls",
        &[
            ("A request for a control", "{CONTROL_BYTES_MAX}", "413 `control_too_large`"),
            (
                "A `send` of an existing client; its body as one JSON body",
                "{SEND_BYTES_MAX}",
                "413 `control_too_large`, `body_too_large`",
            ),
            ("Open controls of one run or session", "{OPEN_CONTROLS_MAX}", "429 `too_many_controls`"),
            ("Finished controls that a log remembers", "{CLOSED_CONTROLS_MAX}", "none; a repeated `controlId` is a new control"),
            (
                "Answered and expired questions that a log remembers",
                "{CLOSED_QUESTIONS_MAX}",
                "none; a late decision is then `action_not_pending`",
            ),
            (
                "Pending actions of one call for which its input makes another version",
                "{CALL_QUESTIONS_MAX}",
                "none; further ones stay as they were asked",
            ),
            (
                "Pending actions of one log whose deadline the server keeps",
                "{PENDING_ACTIONS_MAX}",
                "none; further ones do not expire",
            ),
            (
                "Rules for actions that wait; patterns or receivers of one key",
                "{RULES_MAX}; {PATTERNS_MAX}",
                "the server does not start",
            ),
            ("`after` of a rule", "1 s to {AFTER_MAX}", "the server does not start"),
            (
                "Approvals that an action needs",
                "{APPROVALS_MAX}",
                "of a rule: the server does not start; of a fact: it counts as this",
            ),
            (
                "Publishers of one question whose approvals the log refuses",
                "{PUBLISHERS_MAX}",
                "409 `approval_not_counted` for every approval",
            ),
            (
                "Turns of one connected agent at once: of an address; of a program",
                "{ENDPOINT_TURNS_MAX}; {PROGRAM_TURNS_MAX} (`turns-max`)",
                "none; further messages wait in the agent's queue, in order",
            ),
            (
                "Secrets in the values of open controls that are held for their owners, and as much of headers for agents: \
                 of one `sub` (without one: of one session); of all without a `sub`; of all",
                "{HELD_SECRETS_SHARE_BYTES_MAX}, or one value; {HELD_SECRETS_NAMELESS_BYTES_MAX}; {HELD_SECRETS_BYTES_MAX}",
                "429 `too_many_secrets`",
            ),
            ("Attempts to hand over a control", "{ATTEMPTS_MAX in control/}", "none; it expires"),
            (
                "Time until a control expires; its longest `ttlSeconds`",
                "{TTL in control/}; {TTL_MAX in control/}",
                "504 `control_expired` in a client's stream",
            ),
            ("JSON values of a body of an existing client", "{VALUES_MAX}", "413 `body_too_large`"),
            ("Controls of one claim; its longest `wait`", "{CLAIM_MAX}; {WAIT_SECS_MAX}", "none; larger values count as this"),
            ("A lease", "1 s to {LEASE_SECS_MAX}", "400 `bad_query`"),
            (
                "Pending actions of one log that `attention` lists and a `send` names",
                "{PENDING_ACTIONS_MAX}",
                "none; counts and `total` include the others",
            ),
            (
                "Items of one page of `attention`; the JSON of a subject",
                "{ITEMS_MAX in serve/api/attention}; {SUBJECT_BYTES_MAX}",
                "none; larger values count as this, and a longer subject is cut",
            ),
            (
                "Characters of a session's title by a person; of one made of a message",
                "{SESSION_TITLE_CHARS_MAX}; {MADE_TITLE_CHARS_MAX}",
                "422 `bad_member`; cut",
            ),
            (
                "Agents that an entry of a session names; newest runs that it takes them from",
                "{SESSION_AGENTS_MAX}; {AGENT_RUNS_MAX}",
                "none; others are left out",
            ),
            (
                "Newest logs of a session whose cursors a mark takes",
                "{MARK_LOGS_MAX}",
                "400 `bad_cursor`; a cursor of the session is always taken",
            ),
            (
                "Entries of each list at the start of a list stream",
                "{LIST_ENTRIES_MAX}",
                "none; `truncated`, and further ones follow when they change",
            ),
            (
                "Changes of lists that the server remembers for list streams",
                "{LIST_CHANGES_MAX}",
                "none; a reader further behind gets a `Reset` and all entries",
            ),
            (
                "Changes that a list stream reads at once; the time until it reads again",
                "{ENTRIES_AT_ONCE}; {LOOK_INTERVAL in api/lists}",
                "none; an entry that changed several times is sent once",
            ),
            (
                "Entries that a list stream remembers as sent",
                "{SENT_ENTRIES_MAX}",
                "none; it forgets them, and may send an entry again",
            ),
            (
                "Text of a waiting message in a list of controls",
                "{TEXT_CHARS_MAX in control/listing} characters",
                "none; the agent gets the whole",
            ),
            ("Options of an action", "{OPTIONS_MAX}", "none; the first ones in the protocol's order stay"),
            (
                "Ids of a pending action's options against which its controls are checked, together",
                "{OPTION_IDS_BYTES_MAX}",
                "none; further ones are not checked",
            ),
            (
                "Fields, and diffs, of an action's subject; subjects of an action",
                "{ITEMS_MAX in projection/subject}; {SUBJECTS_MAX}",
                "none; `clipped`",
            ),
        ],
    ),
    (
        "Requests and connections",
        &[
            (
                "The head of a request; its headers",
                "{--head-max}; {HEADERS_MAX}",
                "431 `head_too_large`; the connection is closed",
            ),
            ("Time for the head of a request", "{--head-time-ms}", "the connection is closed"),
            ("Time for a TLS handshake", "{--handshake-time-ms}", "the connection is closed"),
            (
                "Requests and streams of one HTTP/2 connection",
                "{--streams-max}",
                "none; more wait, or HTTP/2 refuses them for the client to try again",
            ),
            ("Connections", "{--connections-max}", "503 `too_many_connections`"),
            (
                "Open files and connections: the system's hard limit. Connections leave some of it to the store, but at most half",
                "{RESERVED_DESCRIPTORS}",
                "503 `too_many_connections`",
            ),
            (
                "Refused connections that wait until their clients have read the reason",
                "{REFUSALS_MAX}",
                "the connection is closed",
            ),
            (
                "Connections of one client: an IPv4 address, or 64 bits of an IPv6 address",
                "{--connections-per-client-max}",
                "429 `too_many_connections_of_client`",
            ),
            (
                "Streams, WebSockets, streamed bodies and waiting claims under tokens of one `sub`",
                "{--connections-per-token-max}",
                "429 `too_many_connections_of_token`; a WebSocket that authenticates late is closed with 1013",
            ),
            ("A token", "{TOKEN_BYTES_MAX}", "401 `unauthenticated`"),
            (
                "Keys of a set; the file of keys; the file of revoked tokens",
                "{KEYS_MAX}; {KEYS_BYTES_MAX}; {REVOKED_BYTES_MAX}",
                "the server does not take the file",
            ),
            ("A user that a proxy names", "{USER_BYTES_MAX}", "401 `unauthenticated`"),
            ("Values of one entry of a claim mapping", "{EXPANSIONS_MAX}", "401 `unauthenticated`"),
            (
                "Open share links of one maker; of the server; days of a link",
                "{LINKS_PER_MAKER_MAX}; {LINKS_MAX}; {LINK_DAYS_MAX}",
                "429 `too_many_links`; 422 `bad_member`",
            ),
            (
                "Marks on sessions of one `sub`; of the server",
                "{MARKS_PER_SUB_MAX}; {MARKS_MAX}",
                "none; those that pin nothing go first, then the least recently set",
            ),
            (
                "People whose feedback one message or run takes; characters of the words of each",
                "{FEEDBACK_MAX}; {WORDS_CHARS_MAX}",
                "409 `too_much_feedback`; 422 `bad_member`",
            ),
            ("Size of one attachment", "{ATTACHMENT_BYTES_MAX}", "413 `body_too_large`"),
            (
                "Attachments of the last day, of one session; of the server",
                "{ATTACHMENTS_PER_SESSION_MAX}; {ATTACHMENTS_MAX}",
                "429 `too_many_attachments`",
            ),
            ("Files of one message of an A2A client", "{MESSAGE_FILES_MAX}", "-32602"),
            (
                "Tasks of one page of `ListTasks`; bytes after which it takes no further one",
                "{TASKS_PER_PAGE_MAX}; {TASKS_BYTES_MAX}",
                "-32602; the next page",
            ),
            ("Branches of one tree; branches of branches", "{BRANCHES_MAX}; {BRANCH_DEPTH_MAX}", "429 `too_many_branches`"),
            (
                "Bytes of the attachments of one call of a connected agent",
                "{CALL_ATTACHMENTS_BYTES_MAX}",
                "the run ends with `file_refused`; of earlier messages, the newest get in",
            ),
            ("Openings of one share link in a minute", "{EXCHANGES_PER_MINUTE_MAX}", "429 `link_rate`"),
            ("Tickets of one token; of all", "{TICKETS_PER_TOKEN_MAX}; {TICKETS_MAX}", "429 `too_many_tickets`"),
        ],
    ),
    (
        "Traces of runs",
        &[
            (
                "Contents of one attribute; of one trace",
                "{ATTRIBUTE_CONTENT_BYTES_MAX}; {TRACE_CONTENT_BYTES_MAX}",
                "the rest is cut; `proscenium.content.truncated` says so",
            ),
            ("Another text of a span", "{ATTRIBUTE_BYTES_MAX}", "the rest is cut"),
            ("Runs that leave in part and go on", "{PARTIALS_MAX}", "further ones leave at their end only"),
            (
                "Traces that are sent at once; the spans of one request",
                "{TRACES_AT_ONCE_MAX}; {REQUEST_BYTES_MAX in traces/}",
                "the next waits; the next are another request",
            ),
        ],
    ),
    (
        "Webhooks, devices and rules",
        &[
            ("Webhooks", "{WEBHOOKS_MAX}", "429 `too_many_webhooks`"),
            (
                "Secrets of a webhook; entries of its lists; a body of its request",
                "{SECRETS_MAX in notify/}; {LIST_MAX in notify/}; {BODY_BYTES_MAX in api/webhooks}",
                "422 `bad_member`; 413 `body_too_large`",
            ),
            (
                "Devices of one person (`sub`); of the server; sessions, and agents, that one device mutes",
                "{SUBSCRIPTIONS_PER_PERSON_MAX}; {SUBSCRIPTIONS_MAX}; {MUTED_MAX}",
                "429 `too_many_devices`; 422 `bad_member`",
            ),
            ("Days of a device's subscription without renewal", "{SUBSCRIPTION_DAYS}", "it ends"),
            (
                "Push addresses (A2A) of one task; of one person (`sub`); of the server; bytes of an id, a token, a scheme or \
                 credentials of one",
                "{TASK_PUSHES_PER_TASK_MAX}; {TASK_PUSHES_PER_PERSON_MAX}; {TASK_PUSHES_MAX}; {TASK_PUSH_TEXT_BYTES_MAX}",
                "429 `too_many_push_addresses`; -32602",
            ),
            (
                "Messages that wait for one webhook, device or push address",
                "{OPEN_MAX in notify/}",
                "further ones are dropped; `proscenium_notifications_refused_total` counts them",
            ),
            (
                "Messages that are remembered of one webhook or device; attempts at once; time of one attempt",
                "{CLOSED_MAX}; {CONCURRENT_MAX}; {ATTEMPT_TIME_MAX}",
                "the oldest is forgotten; the next waits; it counts as `timeout`",
            ),
            (
                "A message to a webhook; to a device, before it is encrypted",
                "{BODY_BYTES_MAX in notify/}; {PUSH_TEXT_BYTES_MAX}",
                "it goes without its activity; without its ids",
            ),
            (
                "Rules for waits; patterns or receivers of one; approvals of one action",
                "{RULES_MAX in waits}; {PATTERNS_MAX in waits}; {APPROVALS_MAX}",
                "the server does not start",
            ),
        ],
    ),
    (
        "Streams and WebSockets",
        &[
            (
                "Names of one list of a query or message, such as `type`, `surfaces` and `runs`; each of them",
                "{NAMES_MAX in http/}; {NAME_BYTES_MAX in http/}",
                "400 `bad_query`",
            ),
            (
                "What the client of a stream sends after its request",
                "{SURPLUS_BYTES_MAX}",
                "the stream ends, or nothing more is read",
            ),
            (
                "Runs and logs of sessions that one session stream follows",
                "{MEMBERS_MAX in feed/}",
                "an `Error` frame with 422 `session_too_large`",
            ),
            (
                "Ancestors of a session whose streams (`children=true`) learn of its new runs",
                "{ANCESTORS_MAX}",
                "none; a stream that is opened later finds them",
            ),
            (
                "Activities that a reader gets at once when it joins or resumes",
                "{HYDRATION_BYTES_MAX}, or one activity; four times as much of what changed meanwhile, and so on",
                "none; the rest comes as it reads",
            ),
            (
                "Items of one answer of a durable stream, but at least one page of the log",
                "{DURABLE_PAGE_BYTES_MAX}",
                "none; the next answer has more",
            ),
            (
                "Snapshots in one answer of a durable stream with `frames=activities`",
                "{SNAPSHOT_BYTES_MAX in durable/}",
                "422 `activities_too_large`",
            ),
            (
                "Wait of a long poll of a durable stream; its live answers",
                "{POLL_TIME_MAX}; {EVENTS_TIME_MAX}",
                "204; the answer ends, and the client asks again",
            ),
            (
                "Events that a stream of several runs reads ahead",
                "{QUEUED_BYTES_MAX}, but at least {PAGE_BYTES_MIN} of each run",
                "none; the rest is read later",
            ),
            (
                "Frames in memory, per run, audience and kind of frame that is read",
                "{--ring-max}",
                "none; older ones are read from the log",
            ),
            (
                "Translations of the newest frames of a run, per audience, that readers of existing clients' formats share",
                "{SHARED_TRANSLATIONS_MAX}",
                "none; readers with other options translate alone",
            ),
            ("Newest rows in memory per run that is read", "{RECENT_BYTES_MAX}", "none; older ones are read from the log"),
            ("The cache of older frames, for all readers", "{--pages-max}", "none; they are read again"),
            ("Values of a filter of runs, and its different words", "{FILTER_VALUES_MAX}; {QUERY_WORDS_MAX}", "400 `bad_query`"),
            ("Names of one facet of a list of runs", "{FACET_NAMES_MAX}", "none; those of the fewest runs are left out"),
            (
                "Runs of which one page of a list reads texts for the words of a filter",
                "{READ_RUNS_MAX}",
                "none; a page may have fewer runs than its limit, and a `nextCursor`",
            ),
            ("Buckets of one answer of statistics", "{STATS_BUCKETS_MAX}", "400 `bad_query`"),
            (
                "Waits for decisions of one run that statistics count",
                "the newest {WAITS_MAX}",
                "none; older ones are not counted",
            ),
            (
                "Texts of sessions and titles of runs that lists have read, and their highlights",
                "{ENTRY_TEXTS_BYTES_MAX} each",
                "none; they are read again",
            ),
            ("A WebSocket message", "{--body-max}", "413 `body_too_large`; closed with 1009"),
            ("Members of a WebSocket message, except its facts", "{MEMBERS_BYTES_MAX}", "400 `bad_query`"),
            ("Subscriptions of one WebSocket", "{--subscriptions-max}", "422 `too_many_subscriptions`"),
            ("A WebSocket that has not authenticated", "{UNAUTHENTICATED_BYTES_MAX}, {AUTH_TIME_MAX}", "closed with 4401"),
            (
                "Messages without an answer, bytes of answers, and pings of a WebSocket client that does not read",
                "{REPLIES_PENDING_MAX}; {REPLIES_BYTES_MAX}; {PONGS_AHEAD_MAX}",
                "the server stops reading; after {PINGS_UNANSWERED_MAX in socket/} unanswered pings it closes with 1008",
            ),
            (
                "Time that an A2A request waits for the end of its task; that a cancellation waits",
                "{TASK_WAIT_MAX}; {CANCEL_WAIT_MAX}",
                "none; the answer is the task as it is",
            ),
            (
                "The id of an A2A message; messages of the user in a task",
                "{MESSAGE_ID_BYTES_MAX}; {TASK_HISTORY_MAX}",
                "−32602; the newest stay",
            ),
            (
                "An ACP message: a prompt; any other",
                "{PROMPT_BYTES_MAX}; {MESSAGE_BYTES_MAX in acp/}",
                "−32602; from {--body-max} on, −32600, closed with 1009",
            ),
            ("The value of an ACP prompt", "{SEND_BYTES_MAX}", "−32602"),
            ("The `cwd` of an ACP session", "{CWD_BYTES_MAX}", "−32602"),
            (
                "Open sessions of one ACP connection; prompts without an answer",
                "{--subscriptions-max}; {PROMPTS_MAX in acp/connection}",
                "−32600",
            ),
            ("ACP requests whose answers are being made", "{JOBS_MAX}", "the server stops reading"),
            ("Requests to an ACP client without an answer", "{ASKED_MAX}", "the oldest is withdrawn"),
            ("Texts of one round in a position of ACP", "{AHEAD_MAX}", "updates have no cursor until the round is complete"),
        ],
    ),
    (
        "Reads",
        &[
            (
                "A page of runs, sessions or events",
                "{PAGE_ITEMS_MAX} items, {PAGE_BYTES_MAX in api/hydrate}",
                "none; `truncated` and `nextCursor` say so",
            ),
            ("Runs that one page of a list looks at", "{SCANNED_MAX}", "none; `nextCursor`, and the page may hold fewer"),
            (
                "Sessions that one page of a filtered list looks at; with `q`",
                "{FILTER_SCANNED_MAX}; {SEARCH_SCANNED_MAX}",
                "none; `nextCursor`, and the page may hold fewer",
            ),
            (
                "Different words of a search in texts; bytes of one word",
                "{QUERY_WORDS_MAX}; {WORD_BYTES_MAX}",
                "400 `bad_query`; none, the rest of a longer word is not searched",
            ),
            (
                "Entries of the index of texts that the beginning of a word reads, for readers of one kind",
                "{BEGINNING_ENTRIES_MAX}",
                "none; words that come later in the alphabet are found by a longer beginning",
            ),
            (
                "A text that is not complete; all of them; logs that the index of texts remembers",
                "{TEXT_PART_BYTES_MAX}; {OPEN_BYTES_MAX in search/}; {READ_LOGS_MAX}",
                "none; a text is found in pieces",
            ),
            ("The index of texts in memory, before it is saved", "{BATCH_BYTES_MAX}, twice", "none; it is saved"),
            ("Logs of a session that its `events` merge", "{MERGED_LOGS_MAX}", "422 `session_too_large`"),
            (
                "Appends and bytes that one page of a session's `events` looks at",
                "{SCANNED_APPENDS_MAX}, {SCANNED_BYTES_MAX}",
                "none; `nextCursor`, and the page may hold fewer",
            ),
            (
                "Logs and bytes of one answer of a session's `activities`",
                "{FOLDED_LOGS_MAX}, {ACTIVITIES_BYTES_MAX} before the last log",
                "none; `nextCursor`",
            ),
            (
                "Runs in the snapshot of a session: the newest; those with pending actions",
                "{SNAPSHOT_RUNS_MAX}; {PENDING_RUNS_MAX}",
                "none; `truncated`",
            ),
            (
                "Runs of a thread that an existing client gets at once",
                "{RUNS_MAX in clients/}",
                "none; `page` and `truncated` say so",
            ),
        ],
    ),
];

/// Every file of the server and its crates, by its path in `src/`, or by its crate and its path there.
static SOURCES: LazyLock<HashMap<String, String>> = LazyLock::new(|| {
    let mut sources = HashMap::new();
    let mut folders: Vec<(PathBuf, String)> = vec![(repository("src"), String::new())];
    let entries =
        |folder: &PathBuf| std::fs::read_dir(folder).expect("the folder exists").map(|entry| entry.expect("it is readable"));
    let of_crates = entries(&repository("crates"));
    folders.extend(of_crates.map(|entry| (entry.path().join("src"), format!("{}/", entry.file_name().display()))));
    while let Some((folder, prefix)) = folders.pop() {
        for entry in entries(&folder) {
            let (path, name) = (entry.path(), format!("{prefix}{}", entry.file_name().display()));
            match path.is_dir() {
                true => folders.push((path, name + "/")),
                false => drop(sources.insert(name, std::fs::read_to_string(&path).expect("sources are text"))),
            }
        }
    }
    sources
});

/// The expressions that the code gives each name, with the path of their file.
static DEFINITIONS: LazyLock<HashMap<&str, Vec<(&str, &str)>>> = LazyLock::new(|| {
    let mut definitions: HashMap<_, Vec<_>> = HashMap::new();
    for (path, text) in SOURCES.iter() {
        for line in text.lines().map(str::trim) {
            let constant = line.split_once("const ").and_then(|(_, rest)| {
                let (name, rest) = rest.split_once(": ")?;
                Some((name, rest.split_once(" = ")?.1.strip_suffix(';')?))
            });
            let member = line.split_once(": ").and_then(|(name, rest)| {
                let value = rest.strip_suffix(',')?;
                value.starts_with(|c: char| c.is_ascii_digit()).then_some((name, value))
            });
            if let Some((name, expression)) = constant.or(member) {
                definitions.entry(name).or_default().push((expression, path.as_str()));
            }
        }
    }
    definitions
});

/// Each expression that the code gives a name, with the path of its file.
fn definitions(name: &str, within: &str) -> Vec<(&'static str, &'static str)> {
    let all = DEFINITIONS.get(name).into_iter().flatten();
    all.copied().filter(|(_, path)| path.contains(within)).collect()
}

/// The one expression that the code gives a name, and the path of its file.
fn definition(name: &str, within: &str) -> (&'static str, &'static str) {
    let found = definitions(name, within);
    assert!(found.len() == 1, "{name} (in {within:?}) is defined {} times, at {found:?}; correct LIMITS", found.len());
    found[0]
}

#[test]
fn every_figure_is_defined_once_in_the_code() {
    let texts = LIMITS.iter().flat_map(|(_, limits)| limits.iter().flat_map(|(what, figure, beyond)| [what, figure, beyond]));
    let figures = texts.flat_map(|text| text.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0)));
    let constants =
        figures.filter(|figure| !figure.starts_with("--")).map(|figure| figure.split_once(" in ").unwrap_or((figure, "")));
    let unclear: Vec<String> = constants
        .filter_map(|(name, within)| match definitions(name, within)[..] {
            [_] => None,
            ref found => Some(format!("{name} (in {within:?}): {found:?}")),
        })
        .collect();
    assert!(
        unclear.is_empty(),
        "LIMITS in tests/it/docs/limits.rs names constants that the code does not define once: {unclear:#?}"
    );
}

/// The value of a constant's expression.
///
/// Numbers, other constants of the same file or name, `*` and `<<`.
fn value(expression: &str, path: &str) -> u64 {
    if let Some((left, right)) = expression.split_once(" << ") {
        return value(left, path) << value(right, path);
    }
    if expression.contains(" * ") {
        return expression.split(" * ").map(|factor| value(factor, path)).product();
    }
    let expression = expression.trim();
    match expression.replace('_', "").parse() {
        Ok(number) => number,
        Err(_) => {
            let here = SOURCES[path].contains(&format!("const {expression}: "));
            let (expression, path) = definition(expression, if here { path } else { "" });
            value(expression, path)
        }
    }
}

fn count(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).expect("digits")).collect();
    groups.join(",")
}

fn bytes(number: u64) -> String {
    match number {
        0 => "0 bytes".into(),
        _ if number.is_multiple_of(1 << 30) => format!("{} GiB", number >> 30),
        _ if number.is_multiple_of(1 << 20) => format!("{} MiB", number >> 20),
        _ if number.is_multiple_of(1 << 10) => format!("{} KiB", number >> 10),
        _ => format!("{} bytes", count(number)),
    }
}

fn time(millis: u64) -> String {
    match millis {
        _ if !millis.is_multiple_of(1000) => format!("{} ms", count(millis)),
        _ if millis.is_multiple_of(86_400_000) && millis > 86_400_000 => format!("{} days", millis / 86_400_000),
        _ if millis.is_multiple_of(3_600_000) => format!("{} h", millis / 3_600_000),
        _ if millis.is_multiple_of(60_000) => format!("{} min", millis / 60_000),
        _ => format!("{} s", millis / 1000),
    }
}

/// The figure that a constant stands for, with its unit.
fn constant(name: &str, within: &str) -> String {
    let (expression, path) = definition(name, within);
    if let Some((unit, argument)) =
        expression.strip_prefix("Duration::from_").and_then(|rest| rest.strip_suffix(')')?.split_once('('))
    {
        let millis = match unit {
            "millis" => 1,
            "secs" => 1000,
            "mins" => 60_000,
            "hours" => 3_600_000,
            _ => panic!("{name}: Duration::from_{unit} is not known here"),
        };
        return time(value(argument, path) * millis);
    }
    let number = value(expression, path);
    match () {
        () if name.contains("BYTES") => bytes(number),
        () if name.contains("SECS") => time(number * 1000),
        () => count(number),
    }
}

/// A flag of `proscenium serve`.
struct Setting {
    group: String,
    flag: String,
    value_name: String,
    default: String,
    help: String,
}

/// Every flag of `proscenium serve`, as its help says.
static SETTINGS: LazyLock<Vec<Setting>> = LazyLock::new(|| {
    // So wide that each option is on one line.
    let help = printed(&["serve", "--help"], 100_000);
    let (mut group, mut settings) = (String::new(), Vec::new());
    for line in help.lines() {
        if let Some(name) = line.strip_suffix(':').filter(|line| !line.starts_with(' ')) {
            group = name.to_owned();
        }
        let Some(option) = line.trim_start().strip_prefix("--") else { continue };
        let (names, text) = option.split_once("  ").expect("an option and its help on one line");
        let (flag, value_name) = names.split_once(' ').unwrap_or((names, ""));
        let (text, details) = text.split_once(" [env: ").expect("every flag is a variable");
        let detail = |name: &str| details.split(" [").find_map(|part| part.strip_prefix(name)?.strip_suffix(']'));
        settings.push(Setting {
            group: group.clone(),
            flag: flag.to_owned(),
            value_name: value_name.trim_matches(['<', '>']).to_owned(),
            default: detail("default: ").unwrap_or_default().to_owned(),
            help: text.trim().to_owned(),
        });
    }
    assert!(settings.len() > 30, "the help of serve lists {} flags", settings.len());
    settings
});

impl Setting {
    /// The default as a figure with its unit.
    fn figure(&self) -> String {
        let number = self.default.parse::<u64>();
        match (self.value_name.as_str(), number) {
            ("", _) => "off".into(),
            (_, _) if self.default.is_empty() => "none".into(),
            ("MS", Ok(millis)) => time(millis),
            ("SECONDS", Ok(seconds)) => time(seconds * 1000),
            ("SIZE", _) => self.default.replace("KiB", " KiB").replace("MiB", " MiB").replace("GiB", " GiB"),
            (_, Ok(number)) => count(number),
            _ => format!("`{}`", self.default),
        }
    }
}

/// Replaces each `{…}` of a figure.
fn filled(text: &str) -> String {
    let (mut whole, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').expect("a figure ends");
        whole.push_str(before);
        whole.push_str(&match (name.strip_prefix("--"), name.split_once(" in ")) {
            (Some(flag), _) => {
                let setting = SETTINGS.iter().find(|setting| setting.flag == flag).unwrap_or_else(|| panic!("no flag --{flag}"));
                format!("{} (`--{flag}`)", setting.figure())
            }
            (None, Some((name, within))) => constant(name, within),
            (None, None) => constant(name, ""),
        });
        rest = after;
    }
    whole + rest
}

/// Flags by group: default and meaning.
pub fn settings() -> String {
    let mut page = String::new();
    let mut groups: Vec<&str> = SETTINGS.iter().map(|setting| setting.group.as_str()).collect();
    groups.dedup();
    for group in groups {
        let of_group = SETTINGS.iter().filter(|setting| setting.group == group);
        let rows = of_group.map(|setting| {
            let value = if setting.value_name.is_empty() { String::new() } else { format!(" {}", setting.value_name) };
            vec![format!("`--{}{value}`", setting.flag), setting.figure(), setting.help.clone()]
        });
        page.push_str(&format!("### {group}\n\n{}\n", table(&["flag", "default", "meaning and bounds"], rows)));
    }
    page
}

/// Limits by topic: what is limited, to what, and what happens beyond it.
pub fn limits() -> String {
    let description = schema("openapi.json");
    let problems = description["x-problems"].as_array().expect("problems");
    let is_known = |status: &str, code: &str| {
        let status: u64 = status.parse().expect("a status");
        problems.iter().any(|problem| problem["status"] == status && problem["code"] == code)
    };
    let mut page = String::new();
    for (topic, limits) in LIMITS {
        let rows = limits.iter().map(|(what, figure, beyond)| {
            // A code belongs to the status before it.
            let mut status = "";
            for word in beyond.split([' ', ',', ';']) {
                match word.strip_prefix('`').and_then(|word| word.strip_suffix('`')) {
                    None if word.len() == 3 && word.parse::<u64>().is_ok() => status = word,
                    Some(code) if !status.is_empty() => {
                        assert!(is_known(status, code), "no problem is {status} {code}; correct LIMITS");
                    }
                    _ => {}
                }
            }
            vec![filled(what), filled(figure), filled(beyond)]
        });
        page.push_str(&format!("### {topic}\n\n{}\n", table(&["limit", "figure", "beyond it"], rows)));
    }
    page
}
