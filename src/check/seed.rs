//! The seed's demands, each with the rules that check it or the reason why no log can show it.

/// One sentence of seed 003.
pub struct Demand {
    /// The place in the seed: its checklist, or a MUST or MUST NOT.
    pub origin: &'static str,
    pub sentence: &'static str,
    /// The rules that check the part of the demand that a log shows.
    pub rules: &'static [&'static str],
    /// The part of the demand that only a client can meet, and that no log shows.
    pub client_part: Option<&'static str>,
}

const fn by_rules(origin: &'static str, sentence: &'static str, rules: &'static [&'static str]) -> Demand {
    Demand { origin, sentence, rules, client_part: None }
}

const fn partly_by_rules(
    origin: &'static str,
    sentence: &'static str,
    rules: &'static [&'static str],
    client_part: &'static str,
) -> Demand {
    Demand { origin, sentence, rules, client_part: Some(client_part) }
}

const fn by_client(origin: &'static str, sentence: &'static str, client_part: &'static str) -> Demand {
    Demand { origin, sentence, rules: &[], client_part: Some(client_part) }
}

const CHECK: &str = "checklist";
const MUST: &str = "MUST";
const MUST_NOT: &str = "MUST NOT";

/// Every point of the validation checklist, and every MUST and MUST NOT, in the seed's order.
pub static DEMANDS: &[Demand] = &[
    partly_by_rules(
        MUST,
        "Preserve runtime event order for the active run.",
        &["sequence-increasing", "sequence-gapless", "one-log"],
        "the order in which a client applies and shows what it reads",
    ),
    partly_by_rules(
        MUST,
        "Keep final answer text separate from reasoning, tools, actions, artifacts, evidence, status, diagnostics, and team events.",
        &["only-text-in-conversation", "text-surface", "diagnostics-audience"],
        "where a screen shows each of them; a log shows whether the facts are separate",
    ),
    partly_by_rules(
        MUST,
        "Keep running process visible while work is active; archive completed process into collapsed summaries by default.",
        &["tool-never-ended", "part-never-ended", "run-never-ended"],
        "which process a screen collapses; a log shows only whether each process ends",
    ),
    partly_by_rules(
        MUST,
        "Preserve team ownership when the runtime exposes coordinators, teammates, child sessions, or remote agents.",
        &["required-ids", "agent-lineage", "entity-ids"],
        "whether a client keeps the ids that the facts have",
    ),
    partly_by_rules(
        MUST,
        "Route user writes through the owning runtime, policy, artifact, evidence, session, or team-control API.",
        &["screen-state"],
        "the API that a client writes to; a log shows only the result",
    ),
    partly_by_rules(
        MUST,
        "Render unknown or missing facts as unknown, unavailable, stale, or blocked instead of guessing from prose.",
        &["unknown-dimension", "unknown-event-type", "failure-without-message"],
        "the placeholder that a screen shows",
    ),
    by_client(
        MUST,
        "Support progressive hydration for old sessions, child sessions, remote tasks, and long runs.",
        "the order in which a client loads a log",
    ),
    partly_by_rules(
        MUST_NOT,
        "Infer tool success, permission grants, artifact kind, evidence verdicts, approval state, or teammate completion from assistant prose.",
        &["tool-never-ended", "action-never-required", "action-outcome", "review-fields"],
        "how a client derives its display; a log shows whether the facts exist",
    ),
    by_client(
        MUST_NOT,
        "Duplicate the same runtime fact as both expanded inline process and expanded timeline detail on the same screen.",
        "a screen's layout",
    ),
    partly_by_rules(
        MUST_NOT,
        "Append final completion text after already streamed text without reconciliation.",
        &["final-text", "write-after-seal"],
        "how a client handles a final text; a log shows whether it equals the streamed text",
    ),
    partly_by_rules(
        MUST_NOT,
        "Treat UI collapse state, selected tab, active pane, or local draft as runtime truth.",
        &["screen-state"],
        "where a client keeps such state; a log shows only whether it was sent as a fact",
    ),
    partly_by_rules(
        MUST_NOT,
        "Treat internal worker notifications as real user messages, even if a source transport delivers them through a user-role channel.",
        &["worker-as-user"],
        "how a client shows a notification; a log shows only whether it is marked as one",
    ),
    partly_by_rules(
        MUST_NOT,
        "Collapse all workers into one anonymous assistant when the runtime exposes agent, task, thread, or team identity.",
        &["required-ids", "entity-ids", "entity-details", "delegated-approval"],
        "how a screen names the authors; a log shows whether the facts name them",
    ),
    by_rules(MUST, "Large output MUST be offloaded to a detail ref or artifact/evidence ref.", &["large-inline"]),
    by_rules(MUST, "Raw secrets MUST be redacted before entering projection state.", &["secret"]),
    partly_by_rules(
        MUST,
        "The UI MUST mark an action resolved only after the owning runtime or policy system confirms the resolution.",
        &["action-never-required", "action-resolved-twice", "screen-state"],
        "when a card changes; a log shows whether the confirmation exists, and who sent it",
    ),
    partly_by_rules(
        MUST_NOT,
        "Multi-agent status MUST NOT be flattened into a single assistant author if the source runtime exposes agent/task ownership.",
        &["required-ids", "entity-ids"],
        "how a screen groups status; a log shows whether each fact names its owner",
    ),
    by_client(
        MUST,
        "Hydration events MUST be stale-safe.",
        "which late responses a client drops after its user has navigated away",
    ),
    by_client(CHECK, "Listener binding occurs before submit.", "which of two requests a client sends first"),
    partly_by_rules(
        CHECK,
        "Runtime accepted/routing/preparing status can render before first text.",
        &["work-before-start"],
        "the status that a screen renders; a log shows whether the status precedes the text",
    ),
    partly_by_rules(
        CHECK,
        "Active message parts render in event/part order.",
        &["sequence-increasing", "part-id"],
        "the order on the screen; a log shows whether parts have ids and an order",
    ),
    partly_by_rules(
        CHECK,
        "Running reasoning and tools remain visible; completed process collapses into summaries.",
        &["tool-never-ended", "part-never-ended", "tool-end-without-start"],
        "which process a screen collapses",
    ),
    partly_by_rules(
        CHECK,
        "Final answer text remains clean and is reconciled without duplication.",
        &["final-text", "write-after-seal", "text-surface"],
        "how a client reconciles; a log shows whether the texts agree",
    ),
    partly_by_rules(
        CHECK,
        "Tool input/progress/output/error state does not enter final answer text.",
        &["only-text-in-conversation"],
        "the text that a client puts into the answer; a log shows whether the facts are separate",
    ),
    partly_by_rules(
        CHECK,
        "Human-in-the-loop actions use stable ids and controlled write APIs.",
        &["required-ids", "action-never-required", "action-pending-at-end", "action-kind", "action-fields"],
        "which API a client writes to",
    ),
    by_client(
        CHECK,
        "Queue and steer are visually and semantically distinct.",
        "the look of a composer, and the control that it sends",
    ),
    partly_by_rules(
        CHECK,
        "Artifact body lives in Artifact Workspace, not in the transcript by default.",
        &["artifact-body"],
        "where a screen shows a body; a log shows whether the facts carry one",
    ),
    partly_by_rules(
        CHECK,
        "Evidence, replay, review, and citations link to evidence facts.",
        &["dangling-ref", "review-details"],
        "which links a screen offers; a log shows whether their targets exist",
    ),
    partly_by_rules(
        CHECK,
        "Multi-agent and background tasks use task/agent/team facts, not assistant prose.",
        &["required-ids", "entity-ids", "task-status"],
        "the facts that a client reads; a log shows whether they exist",
    ),
    partly_by_rules(
        CHECK,
        "Team topology is visible when the runtime exposes coordinator, worker, handoff, board, background, review, or remote-agent facts.",
        &["team-topology", "handoff-fields", "handoff-details"],
        "the topology that a screen shows; a log shows whether the facts name one",
    ),
    partly_by_rules(
        CHECK,
        "Worker notifications are distinguishable from real user messages and coordinator final text.",
        &["worker-as-user", "worker-notification-fields", "worker-notification-details"],
        "how a screen distinguishes them; a log shows whether the facts do",
    ),
    partly_by_rules(
        CHECK,
        "Parent/child session/thread/task ids survive hydration, replay, evidence export, and transcript zoom.",
        &["agent-lineage", "entity-ids"],
        "whether a client keeps them; a log shows whether they exist",
    ),
    partly_by_rules(
        CHECK,
        "Delegated approvals identify the teammate/subagent that requested the action.",
        &["delegated-approval", "delegated-details"],
        "whether a card names the requester; a log shows whether the fact names it",
    ),
    partly_by_rules(
        CHECK,
        "Context and compaction are surfaced as facts or boundaries, not hidden text mutations.",
        &["compaction-never-ended", "final-text"],
        "how a screen shows them; a log shows whether the boundaries exist",
    ),
    partly_by_rules(
        CHECK,
        "Missing facts render honest fallback states.",
        &["unknown-dimension", "failure-without-message", "tool-without-name", "result-without-output"],
        "the placeholder that a screen shows",
    ),
    by_client(
        CHECK,
        "Old sessions hydrate progressively and safely ignore stale results.",
        "the order in which a client loads, and the results that it drops",
    ),
    partly_by_rules(
        CHECK,
        "Diagnostics and metrics stay outside normal conversation text.",
        &["diagnostics-audience", "only-text-in-conversation"],
        "where a screen shows them; a log shows whether the facts keep them out",
    ),
];
