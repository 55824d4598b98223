//! The seed's demands, each with the rules that hold it or the reason why no log can show it: nothing is dropped in silence.

/// One sentence of seed 003.
pub struct Demand {
    /// Where it stands.
    pub origin: &'static str,
    pub sentence: &'static str,
    /// The rules that hold what a log shows of it.
    pub rules: &'static [&'static str],
    /// What of it is a client's, and shows in no log.
    pub of_a_client: Option<&'static str>,
}

const fn held(origin: &'static str, sentence: &'static str, rules: &'static [&'static str]) -> Demand {
    Demand { origin, sentence, rules, of_a_client: None }
}

const fn partly(origin: &'static str, sentence: &'static str, rules: &'static [&'static str], why: &'static str) -> Demand {
    Demand { origin, sentence, rules, of_a_client: Some(why) }
}

const fn client(origin: &'static str, sentence: &'static str, why: &'static str) -> Demand {
    Demand { origin, sentence, rules: &[], of_a_client: Some(why) }
}

const CHECK: &str = "checklist";
const MUST: &str = "MUST";
const MUST_NOT: &str = "MUST NOT";

/// Every point of the validation checklist, and every MUST and MUST NOT, in the seed's order.
pub static DEMANDS: &[Demand] = &[
    partly(
        MUST,
        "Preserve runtime event order for the active run.",
        &["sequence-increasing", "sequence-gapless", "one-log"],
        "the order in which a client applies and shows what it reads",
    ),
    partly(
        MUST,
        "Keep final answer text separate from reasoning, tools, actions, artifacts, evidence, status, diagnostics, and team events.",
        &["only-text-in-conversation", "text-surface", "diagnostics-audience"],
        "where a screen shows each of them; a log shows whether the facts are separate",
    ),
    partly(
        MUST,
        "Keep running process visible while work is active; archive completed process into collapsed summaries by default.",
        &["tool-never-ended", "part-never-ended", "run-never-ended"],
        "what a screen folds away; a log shows only whether what runs ever ends",
    ),
    partly(
        MUST,
        "Preserve team ownership when the runtime exposes coordinators, teammates, child sessions, or remote agents.",
        &["required-ids", "agent-lineage", "entity-ids"],
        "whether a client keeps the ids that the facts have",
    ),
    partly(
        MUST,
        "Route user writes through the owning runtime, policy, artifact, evidence, session, or team-control API.",
        &["screen-state"],
        "where a client sends what its user does; a log shows only what the owner made of it",
    ),
    partly(
        MUST,
        "Render unknown or missing facts as unknown, unavailable, stale, or blocked instead of guessing from prose.",
        &["unknown-dimension", "unknown-event-type", "failure-without-message"],
        "what a screen shows in their place",
    ),
    client(
        MUST,
        "Support progressive hydration for old sessions, child sessions, remote tasks, and long runs.",
        "the order in which a client loads; a log is what it loads from",
    ),
    partly(
        MUST_NOT,
        "Infer tool success, permission grants, artifact kind, evidence verdicts, approval state, or teammate completion from assistant prose.",
        &["tool-never-ended", "action-never-required", "action-outcome", "review-fields"],
        "how a client comes to what it shows; a log shows whether the facts are there to be shown",
    ),
    client(
        MUST_NOT,
        "Duplicate the same runtime fact as both expanded inline process and expanded timeline detail on the same screen.",
        "a screen's layout",
    ),
    partly(
        MUST_NOT,
        "Append final completion text after already streamed text without reconciliation.",
        &["final-text", "write-after-seal"],
        "what a client does with a final text; a log shows whether the text agrees with what was streamed",
    ),
    partly(
        MUST_NOT,
        "Treat UI collapse state, selected tab, active pane, or local draft as runtime truth.",
        &["screen-state"],
        "where a client keeps such state; a log shows only whether it was sent as a fact",
    ),
    partly(
        MUST_NOT,
        "Treat internal worker notifications as real user messages, even if a source transport delivers them through a user-role channel.",
        &["worker-as-user"],
        "how a client shows a notification; a log shows only whether it is marked as one",
    ),
    partly(
        MUST_NOT,
        "Collapse all workers into one anonymous assistant when the runtime exposes agent, task, thread, or team identity.",
        &["required-ids", "entity-ids", "entity-details", "delegated-approval"],
        "how a screen names the authors; a log shows whether the facts name them",
    ),
    held(MUST, "Large output MUST be offloaded to a detail ref or artifact/evidence ref.", &["large-inline"]),
    held(MUST, "Raw secrets MUST be redacted before entering projection state.", &["secret"]),
    partly(
        MUST,
        "The UI MUST mark an action resolved only after the owning runtime or policy system confirms the resolution.",
        &["action-never-required", "action-resolved-twice", "screen-state"],
        "when a card changes; a log shows whether the confirmation came, and from whom",
    ),
    partly(
        MUST_NOT,
        "Multi-agent status MUST NOT be flattened into a single assistant author if the source runtime exposes agent/task ownership.",
        &["required-ids", "entity-ids"],
        "how a screen groups status; a log shows whether each fact names its owner",
    ),
    client(MUST, "Hydration events MUST be stale-safe.", "which answer a client drops when its user has gone on"),
    client(CHECK, "Listener binding occurs before submit.", "which of two requests a client sends first"),
    partly(
        CHECK,
        "Runtime accepted/routing/preparing status can render before first text.",
        &["work-before-start"],
        "what a screen renders; a log shows whether the status comes first",
    ),
    partly(
        CHECK,
        "Active message parts render in event/part order.",
        &["sequence-increasing", "part-id"],
        "the order on the screen; a log shows whether parts have ids and an order",
    ),
    partly(
        CHECK,
        "Running reasoning and tools remain visible; completed process collapses into summaries.",
        &["tool-never-ended", "part-never-ended", "tool-end-without-start"],
        "what a screen folds away",
    ),
    partly(
        CHECK,
        "Final answer text remains clean and is reconciled without duplication.",
        &["final-text", "write-after-seal", "text-surface"],
        "how a client reconciles; a log shows whether the texts agree",
    ),
    partly(
        CHECK,
        "Tool input/progress/output/error state does not enter final answer text.",
        &["only-text-in-conversation"],
        "what a client puts into the answer; a log shows what the facts put there",
    ),
    partly(
        CHECK,
        "Human-in-the-loop actions use stable ids and controlled write APIs.",
        &["required-ids", "action-never-required", "action-pending-at-end", "action-kind", "action-fields"],
        "which API a client writes to",
    ),
    client(CHECK, "Queue and steer are visually and semantically distinct.", "how a composer looks, and which control it sends"),
    partly(
        CHECK,
        "Artifact body lives in Artifact Workspace, not in the transcript by default.",
        &["artifact-body"],
        "where a screen shows a body; a log shows whether the facts carry one",
    ),
    partly(
        CHECK,
        "Evidence, replay, review, and citations link to evidence facts.",
        &["dangling-ref", "review-details"],
        "which links a screen offers; a log shows whether their targets exist",
    ),
    partly(
        CHECK,
        "Multi-agent and background tasks use task/agent/team facts, not assistant prose.",
        &["required-ids", "entity-ids", "task-status"],
        "what a client reads; a log shows whether the facts are there",
    ),
    partly(
        CHECK,
        "Team topology is visible when the runtime exposes coordinator, worker, handoff, board, background, review, or remote-agent facts.",
        &["team-topology", "handoff-fields", "handoff-details"],
        "what a screen shows; a log shows whether the facts name a topology",
    ),
    partly(
        CHECK,
        "Worker notifications are distinguishable from real user messages and coordinator final text.",
        &["worker-as-user", "worker-notification-fields", "worker-notification-details"],
        "how a screen tells them apart; a log shows whether the facts do",
    ),
    partly(
        CHECK,
        "Parent/child session/thread/task ids survive hydration, replay, evidence export, and transcript zoom.",
        &["agent-lineage", "entity-ids"],
        "whether a client keeps them; a log shows whether they are there",
    ),
    partly(
        CHECK,
        "Delegated approvals identify the teammate/subagent that requested the action.",
        &["delegated-approval", "delegated-details"],
        "whether a card shows who asks; a log shows whether the fact says so",
    ),
    partly(
        CHECK,
        "Context and compaction are surfaced as facts or boundaries, not hidden text mutations.",
        &["compaction-never-ended", "final-text"],
        "what a screen shows of them; a log shows whether the boundaries are there",
    ),
    partly(
        CHECK,
        "Missing facts render honest fallback states.",
        &["unknown-dimension", "failure-without-message", "tool-without-name", "result-without-output"],
        "what a screen shows in their place",
    ),
    client(
        CHECK,
        "Old sessions hydrate progressively and safely ignore stale results.",
        "the order in which a client loads, and what it drops",
    ),
    partly(
        CHECK,
        "Diagnostics and metrics stay outside normal conversation text.",
        &["diagnostics-audience", "only-text-in-conversation"],
        "where a screen shows them; a log shows whether the facts keep them out",
    ),
];
