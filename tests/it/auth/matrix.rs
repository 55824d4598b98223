//! Every address and every WebSocket op under every kind of token.
//!
//! The expected answer, and no hidden text in it.

use super::{
    AuthServer, HIDDEN, OTHER_SECRET, OWN, Ws, admin, bearer, now, reader, signed, token, token_with_claims, write_example_runs,
};
use crate::harness::{fact, with_timeout};
use proscenium::serve::contract::access_rule::AccessRule;
use proscenium::serve::contract::operations::OPERATIONS;
use proscenium::serve::socket::SocketOperation;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The kinds of callers, in the order of a row's columns.
const COLUMNS: [&str; 11] =
    ["none", "forged", "expired", "nothing", "reads", "publishes", "controls", "elsewhere", "admin", "owner", "neighbour"];

fn token_for(column: &str) -> Option<String> {
    let all = |can: &str| token(&json!({ "sessions": ["*"], "agents": ["*"], "can": [can] }));
    Some(match column {
        "none" => return None,
        "forged" => signed(
            OTHER_SECRET,
            &json!({ "sub": "user-1", "exp": now() + 3600, "proscenium": { "sessions": ["*"], "can": ["admin"] } }),
            None,
        ),
        "expired" => token_with_claims(
            &json!({ "sub": "user-1", "exp": now() - 1, "proscenium": { "sessions": ["*"], "can": ["admin"] } }),
        ),
        // A valid signature, but no permissions.
        "nothing" => token_with_claims(&json!({ "sub": "user-1", "exp": now() + 3600 })),
        "reads" => all("read"),
        "publishes" => all("publish"),
        "controls" => all("control"),
        "elsewhere" => token(&json!({
            "audience": "internal", "sessions": ["t", "u"], "runs": ["q"], "agents": ["a"], "can": ["admin"] })),
        "admin" => admin(),
        // Whose session `s` is, and whose session `t` is.
        "owner" => owned_by("acme", "user"),
        "neighbour" => owned_by("other", "internal"),
        other => unreachable!("{other}"),
    })
}

fn owned_by(owner: &str, audience: &str) -> String {
    token(&json!({ "audience": audience, "owner": owner, "owners": [owner], "agents": ["a"], "can": ["admin"] }))
}

/// Every address, a request to it, and the expected status for each of [`COLUMNS`].
#[rustfmt::skip]
const MATRIX: &[(&str, &str, &str, &str, [u16; 11])] = &[
    //                                                                        none   forged expired nothing reads publishes controls elsewhere admin owner neighbour
    ("POST",   "/v1/runs/{run}/facts",             "/v1/runs/r/facts",           FACT, [401, 401, 401, 403, 403, 200, 403, 403, 200, 200, 403]),
    ("POST",   "/v1/sessions/{session}/facts",     "/v1/sessions/s/facts",       FACT, [401, 401, 401, 403, 403, 200, 403, 403, 200, 200, 403]),
    ("POST",   "/v1/runs/{run}/settle",            "/v1/runs/gone/settle",       "",   [401, 401, 401, 403, 403, 403, 200, 403, 200, 410, 403]),
    ("POST",   "/v1/runs/{run}/controls",          "/v1/runs/r/controls",        STEER, [401, 401, 401, 403, 403, 403, 202, 403, 202, 202, 403]),
    ("GET",    "/v1/runs/{run}/controls",          "/v1/runs/r/controls",        "",   [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("POST",   "/v1/runs/{run}/feedback",          "/v1/runs/r/feedback",        THUMB, [401, 401, 401, 403, 403, 403, 200, 403, 200, 200, 403]),
    ("POST",   "/v1/runs/{run}/feedback",          "/v1/runs/never/feedback",    THUMB, [401, 401, 401, 403, 403, 403, 404, 403, 404, 403, 403]),
    ("GET",    "/v1/runs/{run}/feedback",          "/v1/runs/r/feedback",        "",   [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("POST",   "/v1/sessions/{session}/controls",  "/v1/sessions/s/controls",    SEND, [401, 401, 401, 403, 403, 403, 202, 403, 202, 202, 403]),
    ("GET",    "/v1/sessions/{session}/controls",  "/v1/sessions/s/controls",    "",   [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    // An agent that the column `elsewhere` may act for, and one that it may not.
    ("POST",   "/v1/agents/{agent}/controls/claim", "/v1/agents/a/controls/claim?wait=0", "", [401, 401, 401, 403, 403, 200, 403, 200, 200, 200, 200]),
    ("POST",   "/v1/agents/{agent}/controls/claim", "/v1/agents/b/controls/claim?wait=0", "", [401, 401, 401, 403, 403, 200, 403, 403, 200, 403, 403]),
    ("GET",    "/v1/runs/{run}/decisions",         "/v1/runs/r/decisions",       "",   [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("GET",    "/v1/sessions/{session}/decisions", "/v1/sessions/s/decisions",   "",   [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("GET",    "/v1/attention",                    "/v1/attention",              "",   [401, 401, 401, 403, 200, 403, 403, 200, 200, 200, 200]),
    ("GET",    "/v1/lists/stream",                 "/v1/lists/stream?attention=true", "", [401, 401, 401, 403, 200, 403, 403, 200, 200, 200, 200]),
    ("GET",    "/v1/lists/stream",                 "/v1/lists/stream?runs=",     "",   [401, 401, 401, 403, 200, 403, 403, 200, 200, 200, 200]),
    ("DELETE", "/v1/controls/{control}",           "/v1/controls/none",          "",   [401, 401, 401, 403, 403, 403, 404, 404, 404, 404, 404]),
    ("POST",   "/v1/controls/{control}/ack",       "/v1/controls/none/ack",      LEASE, [401, 401, 401, 403, 403, 409, 403, 409, 409, 409, 409]),
    ("POST",   "/v1/controls/{control}/nack",      "/v1/controls/none/nack",     LEASE, [401, 401, 401, 403, 403, 409, 403, 409, 409, 409, 409]),
    ("GET",    "/v1/cluster",                      "/v1/cluster",                "",   [401, 401, 401, 403, 403, 403, 403, 404, 404, 404, 404]),
    ("GET",    "/metrics",                         "/metrics",                   "",   [401, 401, 401, 403, 403, 403, 403, 200, 200, 200, 200]),
    ("GET",    "/v1/runs/{run}/stream",            "/v1/runs/r/stream",          "",   [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("GET",    "/v1/runs/{run}/durable",           "/v1/runs/r/durable",         "",   [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("HEAD",   "/v1/runs/{run}/durable",           "/v1/runs/r/durable",         "",   [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("GET",    "/v1/runs/{run}/durable",           "/v1/runs/never/durable",     "",   [401, 401, 401, 403, 404, 403, 403, 403, 404, 403, 403]),
    ("GET",    "/v1/sessions/{session}/durable",   "/v1/sessions/s/durable",     "",   [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("HEAD",   "/v1/sessions/{session}/durable",   "/v1/sessions/s/durable",     "",   [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("GET",    "/v1/sessions/{session}/stream",    "/v1/sessions/s/stream",      "",   [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("GET",    "/v1/stream",                       "/v1/stream?runs=q,r",        "",   [401, 401, 401, 403, 200, 403, 403, 403, 200, 403, 403]),
    ("GET",    "/v1/stream",                       "/v1/stream?runs=q",          "",   [401, 401, 401, 403, 200, 403, 403, 200, 200, 403, 200]),
    ("GET",    "/v1/sessions",                     "/v1/sessions",               "",   [401, 401, 401, 403, 200, 403, 403, 200, 200, 200, 200]),
    ("GET",    "/v1/sessions/{session}",           "/v1/sessions/s",             "",   [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("GET",    "/v1/sessions/{session}",           "/v1/sessions/never",         "",   [401, 401, 401, 403, 404, 403, 403, 403, 404, 404, 404]),
    // Renaming it to what it is called adds no fact.
    ("PATCH",  "/v1/sessions/{session}",           "/v1/sessions/s",             RENAME, [401, 401, 401, 403, 403, 403, 200, 403, 200, 200, 403]),
    ("PATCH",  "/v1/sessions/{session}",           "/v1/sessions/never",         RENAME, [401, 401, 401, 403, 403, 403, 404, 403, 404, 404, 404]),
    // The body says nothing of a session, so a token that controls may begin one.
    ("POST",   "/v1/sessions/{session}/attachments", "/v1/sessions/s/attachments", FILE, [401, 401, 401, 403, 403, 403, 201, 403, 201, 201, 403]),
    // It reads what the branch has, so it needs both verbs.
    ("POST",   "/v1/sessions/{session}/branches",  "/v1/sessions/s/branches",    BRANCH, [401, 401, 401, 403, 403, 403, 403, 403, 404, 404, 403]),
    ("POST",   "/v1/sessions/{session}/branches",  "/v1/sessions/never/branches", BRANCH, [401, 401, 401, 403, 403, 403, 403, 403, 404, 404, 404]),
    ("PUT",    "/v1/sessions/{session}/marks",     "/v1/sessions/s/marks",       PIN,  [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("PUT",    "/v1/sessions/{session}/marks",     "/v1/sessions/never/marks",   PIN,  [401, 401, 401, 403, 404, 403, 403, 403, 404, 404, 404]),
    ("GET",    "/v1/sessions/{session}/window",    "/v1/sessions/s/window",      "",   [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("GET",    "/v1/sessions/{session}/timeline",  "/v1/sessions/s/timeline",    "",   [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("GET",    "/v1/sessions/{session}/events",    "/v1/sessions/s/events",      "",   [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("GET",    "/v1/sessions/{session}/export",    "/v1/sessions/s/export",      "",   [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("GET",    "/v1/sessions/{session}/events",    "/v1/sessions/never/events",  "",   [401, 401, 401, 403, 404, 403, 403, 403, 404, 404, 404]),
    ("GET",    "/v1/sessions/{session}/activities", "/v1/sessions/s/activities", "",   [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("GET",    "/v1/sessions/{session}/activities", "/v1/sessions/t/activities", "",   [401, 401, 401, 403, 200, 403, 403, 200, 200, 403, 200]),
    ("GET",    "/v1/runs",                         "/v1/runs",                   "",   [401, 401, 401, 403, 200, 403, 403, 200, 200, 200, 200]),
    ("GET",    "/v1/runs",                         "/v1/runs?filter=status:running&sort=-cost", "", [401, 401, 401, 403, 200, 403, 403, 200, 200, 200, 200]),
    ("GET",    "/v1/stats",                        "/v1/stats",                  "",   [401, 401, 401, 403, 200, 403, 403, 200, 200, 200, 200]),
    ("GET",    "/v1/runs/{run}",                   "/v1/runs/r",                 "",   [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("GET",    "/v1/runs/{run}",                   "/v1/runs/never",             "",   [401, 401, 401, 403, 404, 403, 403, 403, 404, 403, 403]),
    ("GET",    "/v1/runs/{run}",                   "/v1/runs/q",                 "",   [401, 401, 401, 403, 200, 403, 403, 200, 200, 403, 200]),
    ("GET",    "/v1/runs/{run}/events",            "/v1/runs/r/events",          "",   [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("GET",    "/v1/runs/{run}/activities",        "/v1/runs/r/activities",      "",   [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("GET",    "/v1/runs/{run}/export",            "/v1/runs/r/export",          "",   [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("GET",    "/v1/blobs/{blob}",                 OWN_BLOB,                     "",   [401, 401, 401, 403, 200, 403, 403, 404, 200, 200, 404]),
    ("GET",    "/v1/blobs/{blob}",                 HIDDEN_BLOB,                  "",   [401, 401, 401, 403, 404, 403, 403, 404, 404, 404, 404]),
    // Webhooks and the audit concern all sessions.
    ("GET",    "/v1/webhooks",                     "/v1/webhooks",               "",   [401, 401, 401, 403, 403, 403, 403, 403, 200, 403, 403]),
    ("POST",   "/v1/webhooks",                     "/v1/webhooks",          WEBHOOK,   [401, 401, 401, 403, 403, 403, 403, 403, 201, 403, 403]),
    ("DELETE", "/v1/webhooks/{webhook}",           "/v1/webhooks/none",          "",   [401, 401, 401, 403, 403, 403, 403, 403, 404, 403, 403]),
    ("POST",   "/v1/webhooks/{webhook}/test",      "/v1/webhooks/none/test",     "",   [401, 401, 401, 403, 403, 403, 403, 403, 404, 403, 403]),
    ("POST",   "/v1/webhooks/{webhook}/redeliver", "/v1/webhooks/none/redeliver", "",  [401, 401, 401, 403, 403, 403, 403, 403, 404, 403, 403]),
    ("GET",    "/v1/webhooks/{webhook}/deliveries", "/v1/webhooks/none/deliveries", "", [401, 401, 401, 403, 403, 403, 403, 403, 404, 403, 403]),
    // The person's own devices. Rights come before the body, which lacks all.
    ("GET",    "/v1/push",                         "/v1/push",                   "",   [401, 401, 401, 403, 200, 403, 403, 200, 200, 200, 200]),
    ("PUT",    "/v1/push",                         "/v1/push",                 "{}",   [401, 401, 401, 403, 422, 403, 403, 422, 422, 422, 422]),
    ("DELETE", "/v1/push",                         "/v1/push",                 "{}",   [401, 401, 401, 403, 422, 403, 403, 422, 422, 422, 422]),
    ("GET",    "/v1/audit",                        "/v1/audit",                  "",   [401, 401, 401, 403, 403, 403, 403, 403, 200, 403, 403]),
    ("GET",    "/v1/audit/export",                 "/v1/audit/export",           "",   [401, 401, 401, 403, 403, 403, 403, 403, 200, 403, 403]),
    ("POST",   "/v1/backup",                       "/v1/backup",               "{}",   [401, 401, 401, 403, 403, 403, 403, 403, 409, 403, 403]),
    ("GET",    "/v1/me",                           "/v1/me",                     "",   [401, 401, 401, 200, 200, 200, 200, 200, 200, 200, 200]),
    ("GET",    "/v1/keys",                         "/v1/keys",                   "",   [401, 401, 401, 403, 200, 403, 403, 200, 200, 200, 200]),
    ("POST",   "/v1/tickets",                      "/v1/tickets",                TICKET, [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    // Rights come before the body, which lacks its end.
    ("POST",   "/v1/links",                        "/v1/links",                  LINK, [401, 401, 401, 403, 403, 403, 403, 403, 422, 422, 403]),
    ("GET",    "/v1/links",                        "/v1/links",                  "",   [401, 401, 401, 403, 403, 403, 403, 200, 200, 200, 200]),
    ("DELETE", "/v1/links/{link}",                 "/v1/links/none",             "",   [401, 401, 401, 403, 403, 403, 403, 404, 404, 404, 404]),
    ("DELETE", "/v1/runs/{run}",                   "/v1/runs/gone",              "",   [401, 401, 401, 403, 403, 403, 403, 403, 204, 410, 403]),
    ("DELETE", "/v1/sessions/{session}",           "/v1/sessions/never",         "",   [401, 401, 401, 403, 403, 403, 403, 403, 404, 404, 404]),
    ("DELETE", "/v1/sessions/{session}",           "/v1/sessions/u",             "",   [401, 401, 401, 403, 403, 403, 403, 404, 404, 404, 404]),
    ("DELETE", "/v1/owners/{owner}",               "/v1/owners/nothing",         "",   [401, 401, 401, 403, 403, 403, 403, 403, 204, 403, 403]),
    // Holds need `admin` and the audience `dashboard`. Rights come before the body, which lacks the reason.
    ("PUT",    "/v1/sessions/{session}/hold",      "/v1/sessions/never/hold",   HOLD, [401, 401, 401, 403, 403, 403, 403, 403, 404, 403, 404]),
    ("DELETE", "/v1/sessions/{session}/hold",      "/v1/sessions/never/hold",   "",   [401, 401, 401, 403, 403, 403, 403, 403, 404, 403, 404]),
    ("PUT",    "/v1/owners/{owner}/hold",          "/v1/owners/nothing/hold", "{}",   [401, 401, 401, 403, 403, 403, 403, 403, 422, 403, 403]),
    ("DELETE", "/v1/owners/{owner}/hold",          "/v1/owners/nothing/hold",   "",   [401, 401, 401, 403, 403, 403, 403, 403, 404, 403, 403]),
    ("GET",    "/v1/holds",                        "/v1/holds",                 "",   [401, 401, 401, 403, 403, 403, 403, 200, 200, 403, 200]),
    // The rules concern all sessions.
    ("POST",   "/v1/retention/dry-run",            "/v1/retention/dry-run",   "{}",   [401, 401, 401, 403, 403, 403, 403, 403, 200, 403, 403]),
    ("GET",    "/v1/owners/{owner}/export",        "/v1/owners/acme/export",    "",   [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    // In its own session, in another one, and for an agent that the column `elsewhere` may not act for.
    ("POST",   "/ag-ui/{agent}",                   "/ag-ui/a",                   OF_S, [401, 401, 401, 403, 403, 403, 403, 403, 200, 200, 403]),
    ("POST",   "/ag-ui/{agent}",                   "/ag-ui/a",                   OF_T, [401, 401, 401, 403, 403, 403, 403, 200, 200, 403, 200]),
    ("POST",   "/ag-ui/{agent}",                   "/ag-ui/b",                   OF_T, [401, 401, 401, 403, 403, 403, 403, 403, 200, 403, 403]),
    // A run of another session, under the name of a session that the token has.
    ("POST",   "/ag-ui/{agent}",                   "/ag-ui/a",                  MIXED, [401, 401, 401, 403, 403, 403, 403, 403, 409, 403, 403]),
    ("GET",    "/ag-ui/{agent}",                   "/ag-ui/a?threadId=s",        "",   [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("GET",    "/ag-ui/{agent}",                   "/ag-ui/b?threadId=t",        "",   [401, 401, 401, 403, 200, 403, 403, 200, 200, 403, 200]),
    ("GET",    "/ag-ui/{agent}",                   "/ag-ui/a?runId=r",           "",   [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("GET",    "/a2a/{agent}/.well-known/agent-card.json", "/a2a/a/.well-known/agent-card.json", "", [401, 401, 401, 403, 403, 403, 200, 200, 200, 200, 200]),
    ("GET",    "/a2a/{agent}/.well-known/agent-card.json", "/a2a/b/.well-known/agent-card.json", "", [401, 401, 401, 403, 403, 403, 200, 403, 200, 403, 403]),
    // Begins a task in its own session, in another one, and reads the task of a run of its own session.
    ("POST",   "/a2a/{agent}",                     "/a2a/a",                   SAID_IN_S, [401, 401, 401, 403, 403, 403, 403, 403, 200, 200, 403]),
    ("POST",   "/a2a/{agent}",                     "/a2a/a",                   SAID_IN_T, [401, 401, 401, 403, 403, 403, 403, 200, 200, 403, 200]),
    ("POST",   "/a2a/{agent}",                     "/a2a/b",                   SAID_IN_T, [401, 401, 401, 403, 403, 403, 403, 403, 200, 403, 403]),
    ("POST",   "/a2a/{agent}",                     "/a2a/a",                   TASK_OF_R, [401, 401, 401, 403, 200, 403, 403, 200, 200, 200, 200]),
    ("POST",   "/a2a/{agent}",                     "/a2a/a",                       TASKS, [401, 401, 401, 403, 200, 403, 403, 200, 200, 200, 200]),
    ("GET",    "/copilotkit/info",                 "/copilotkit/info",           "",   [401, 401, 401, 403, 200, 403, 403, 200, 200, 200, 200]),
    ("POST",   "/copilotkit/agent/{agent}/run",    "/copilotkit/agent/a/run",    OF_S, [401, 401, 401, 403, 403, 403, 403, 403, 200, 200, 403]),
    ("POST",   "/copilotkit/agent/{agent}/run",    "/copilotkit/agent/b/run",    OF_T, [401, 401, 401, 403, 403, 403, 403, 403, 200, 403, 403]),
    ("POST",   "/copilotkit/agent/{agent}/connect", "/copilotkit/agent/a/connect", OF_S, [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("POST",   "/copilotkit/agent/{agent}/stop/{thread}", "/copilotkit/agent/a/stop/s", "", [401, 401, 401, 403, 403, 403, 200, 403, 200, 200, 403]),
    ("POST",   "/copilotkit/agent/{agent}/stop/{thread}", "/copilotkit/agent/b/stop/t", "", [401, 401, 401, 403, 403, 403, 200, 403, 200, 403, 403]),
    ("POST",   "/copilotkit",                      "/copilotkit",                INFO, [401, 401, 401, 403, 200, 403, 403, 200, 200, 200, 200]),
    ("POST",   "/copilotkit",                      "/copilotkit",              RUN_OF_S, [401, 401, 401, 403, 403, 403, 403, 403, 200, 200, 403]),
    ("POST",   "/copilotkit",                      "/copilotkit",              STOP_OF_S, [401, 401, 401, 403, 403, 403, 200, 403, 200, 200, 403]),
    ("GET",    "/copilotkit/threads",              "/copilotkit/threads?agentId=a", "", [401, 401, 401, 403, 200, 403, 403, 200, 200, 200, 200]),
    // The callers of this table began no session.
    ("POST",   "/copilotkit/threads/clear",        "/copilotkit/threads/clear",  "",   [401, 401, 401, 403, 403, 403, 403, 204, 204, 204, 204]),
    ("POST",   "/copilotkit/threads/subscribe",    "/copilotkit/threads/subscribe", "{}", [401, 401, 401, 403, 422, 403, 403, 422, 422, 422, 422]),
    ("PATCH",  "/copilotkit/threads/{thread}",     "/copilotkit/threads/s",      NAME, [401, 401, 401, 403, 403, 403, 200, 403, 200, 200, 403]),
    ("PATCH",  "/copilotkit/threads/{thread}",     "/copilotkit/threads/never",  NAME, [401, 401, 401, 403, 403, 403, 404, 403, 404, 404, 404]),
    ("DELETE", "/copilotkit/threads/{thread}",     "/copilotkit/threads/never",  "{}", [401, 401, 401, 403, 403, 403, 403, 403, 404, 404, 404]),
    ("DELETE", "/copilotkit/threads/{thread}",     "/copilotkit/threads/u",      "{}", [401, 401, 401, 403, 403, 403, 403, 404, 404, 404, 404]),
    ("POST",   "/copilotkit/threads/{thread}/archive", "/copilotkit/threads/never/archive", "{}", [401, 401, 401, 403, 403, 403, 404, 403, 404, 404, 404]),
    ("GET",    "/copilotkit/threads/{thread}/messages", "/copilotkit/threads/s/messages", "", [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("GET",    "/copilotkit/threads/{thread}/events", "/copilotkit/threads/s/events", "", [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("GET",    "/copilotkit/threads/{thread}/state", "/copilotkit/threads/s/state", "", [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("GET",    "/copilotkit/threads/{thread}/state", "/copilotkit/threads/t/state", "", [401, 401, 401, 403, 200, 403, 403, 200, 200, 403, 200]),
    ("POST",   "/copilotkit",                      "/copilotkit",           LIST_THREADS, [401, 401, 401, 403, 200, 403, 403, 200, 200, 200, 200]),
    ("POST",   "/copilotkit",                      "/copilotkit",            READ_OF_S, [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("POST",   "/copilotkit",                      "/copilotkit",            NAME_OF_S, [401, 401, 401, 403, 403, 403, 200, 403, 200, 200, 403]),
    ("POST",   "/copilotkit",                      "/copilotkit",         DELETE_NEVER, [401, 401, 401, 403, 403, 403, 403, 403, 404, 404, 404]),
    ("POST",   "/ai-sdk/{agent}",                  "/ai-sdk/a",                CHAT_OF_S, [401, 401, 401, 403, 403, 403, 403, 403, 200, 200, 403]),
    ("POST",   "/ai-sdk/{agent}",                  "/ai-sdk/b",                CHAT_OF_T, [401, 401, 401, 403, 403, 403, 403, 403, 200, 403, 403]),
    ("GET",    "/ai-sdk/{agent}",                  "/ai-sdk/a",                  "",   [401, 401, 401, 403, 200, 403, 403, 200, 200, 200, 200]),
    // A chat, a run of it, a stream of that run, and an id that nothing has.
    ("GET",    "/ai-sdk/{agent}/{chat}/stream",    "/ai-sdk/a/s/stream?startIndex=-1", "", [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("GET",    "/ai-sdk/{agent}/{chat}/stream",    "/ai-sdk/a/r/stream?startIndex=0", "", [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("GET",    "/ai-sdk/{agent}/{chat}/stream",    "/ai-sdk/a/r~7~user/stream?startIndex=0", "", [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("GET",    "/ai-sdk/{agent}/{chat}/stream",    "/ai-sdk/a/r~7~internal/stream?startIndex=0", "", [401, 401, 401, 403, 403, 403, 403, 403, 200, 403, 403]),
    ("GET",    "/ai-sdk/{agent}/{chat}/stream",    "/ai-sdk/a/never/stream?startIndex=0", "", [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 200]),
    ("GET",    "/ai-sdk/{agent}/{chat}/stream",    "/ai-sdk/a/s/stream",         "",   [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("GET",    "/ai-sdk/{agent}/{chat}",           "/ai-sdk/a/s",                "",   [401, 401, 401, 403, 200, 403, 403, 403, 200, 200, 403]),
    ("POST",   "/ai-sdk/{agent}/{chat}/stop",      "/ai-sdk/a/s/stop",           "",   [401, 401, 401, 403, 403, 403, 200, 403, 200, 200, 403]),
    // For every caller, whether or not the target exists.
    ("POST",   "/v1/links/exchange",               "/v1/links/exchange",       SECRET, [404; 11]),
    ("GET",    "/v1/ws",                           "/v1/ws",                     "",   [426; 11]),
    ("GET",    "/acp",                             "/acp",                       "",   [426; 11]),
    ("GET",    "/v1/sign-in",                      "/v1/sign-in",                "",   [200; 11]),
    ("GET",    "/healthz",                         "/healthz",                   "",   [200; 11]),
    ("GET",    "/readyz",                          "/readyz",                    "",   [200; 11]),
    ("GET",    "/openapi.json",                    "/openapi.json",              "",   [200; 11]),
    ("GET",    "/schema/{*file}",                  "/schema/problem.schema.json", "",  [200; 11]),
    ("GET",    "/",                                "/",                          "",   [200; 11]),
    ("GET",    "/assets/{*file}",                  "/assets/app.js",             "",   [200; 11]),
    ("GET",    "/push-worker.js",                  "/push-worker.js",            "",   [200; 11]),
    ("GET",    "/embed.js",                        "/embed.js",                  "",   [200; 11]),
    ("GET",    "/docs",                            "/docs",                      "",   [200; 11]),
    ("GET",    "/docs/",                           "/docs/",                     "",   [200; 11]),
    ("GET",    "/docs/{*page}",                    "/docs/guides/ask",           "",   [200; 11]),
    ("GET",    "/llms.txt",                        "/llms.txt",                  "",   [200; 11]),
];

const FACT: &str = r#"{"type":"text.delta","payload":{"text":"more"}}"#;
const RENAME: &str = r#"{"title":null,"archived":false}"#;
const NAME: &str = r#"{"agentId":"a","name":null,"archived":false}"#;
const PIN: &str = r#"{"pinned":false}"#;
const STEER: &str = r#"{"control":"steer","value":"to the left"}"#;
const SEND: &str = r#"{"control":"send","value":"hello"}"#;
const BRANCH: &str = r#"{"after":{"runId":"none","sequence":1}}"#;
/// It withdraws what was not given.
const THUMB: &str = r#"{"thumb":null}"#;
const FILE: &str = "the bytes of a file";
const OF_S: &str = r#"{"threadId":"s","runId":"r"}"#;
const OF_T: &str = r#"{"threadId":"t","runId":"q"}"#;
const SAID_IN_S: &str = r#"{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"configuration":{"blocking":false},"message":{"messageId":"m","role":"user","contextId":"s","parts":[{"kind":"text","text":"Go"}]}}}"#;
const SAID_IN_T: &str = r#"{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"configuration":{"blocking":false},"message":{"messageId":"m","role":"user","contextId":"t","parts":[{"kind":"text","text":"Go"}]}}}"#;
const TASK_OF_R: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"r"}}"#;
const TASKS: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"includeArtifacts":true}}"#;
const MIXED: &str = r#"{"threadId":"t","runId":"r"}"#;
const INFO: &str = r#"{"method":"info"}"#;
const RUN_OF_S: &str = r#"{"method":"agent/run","params":{"agentId":"a"},"body":{"threadId":"s","runId":"r"}}"#;
const STOP_OF_S: &str = r#"{"method":"agent/stop","params":{"agentId":"a","threadId":"s"}}"#;
const LIST_THREADS: &str = r#"{"method":"resource/request","params":{"path":"/threads?agentId=a","httpMethod":"GET"}}"#;
const READ_OF_S: &str = r#"{"method":"resource/request","params":{"path":"/threads/s/messages","httpMethod":"GET"}}"#;
const NAME_OF_S: &str =
    r#"{"method":"resource/request","params":{"path":"/threads/s","httpMethod":"PATCH"},"body":{"name":null}}"#;
const DELETE_NEVER: &str = r#"{"method":"resource/request","params":{"path":"/threads/never","httpMethod":"DELETE"},"body":{}}"#;
const CHAT_OF_S: &str = r#"{"id":"s","messages":[{"id":"u","role":"user","parts":[]}]}"#;
const CHAT_OF_T: &str = r#"{"id":"t","messages":[{"id":"u","role":"user","parts":[]}]}"#;
const LEASE: &str = r#"{"lease":"none"}"#;
const WEBHOOK: &str = r#"{"url":"https://example.com/"}"#;
const HOLD: &str = r#"{"reason":"Case 1"}"#;
const LINK: &str = r#"{"sessionId":"s"}"#;
const SECRET: &str = r#"{"secret":"none"}"#;
const TICKET: &str = r#"{"for":"stream","run":"r"}"#;
const OWN_BLOB: &str = "the body for users";
const HIDDEN_BLOB: &str = "the internal body";

#[test]
fn the_matrix_has_a_row_for_every_address_and_none_for_any_other() {
    let served: BTreeSet<_> = OPERATIONS.iter().map(|route| (route.method.to_string(), route.path.to_owned())).collect();
    let tested: BTreeSet<_> = MATRIX.iter().map(|(method, path, ..)| ((*method).to_owned(), (*path).to_owned())).collect();
    assert_eq!(served, tested, "every address needs a row");
    for route in OPERATIONS {
        let (_, _, _, _, expected) = MATRIX.iter().find(|row| row.0 == route.method.as_str() && row.1 == route.path).unwrap();
        let is_open = matches!(route.access_rule, AccessRule::Public | AccessRule::InBand);
        assert_eq!(expected[..3] != [401; 3], is_open, "{} {}: {:?}", route.method, route.path, route.access_rule);
    }
}

#[tokio::test]
async fn every_address_requires_its_permission_and_hides_hidden_texts() {
    let guarded = AuthServer::start().await;
    let [hidden_blob, own_blob] = write_example_runs(&guarded).await;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    for (n, column) in COLUMNS.iter().enumerate() {
        let token = token_for(column);
        for (method, _, path, body, expected) in MATRIX {
            let path = match *path {
                OWN_BLOB => &own_blob,
                HIDDEN_BLOB => &hidden_blob,
                other => other,
            };
            let mut request = http.request(method.parse().unwrap(), format!("http://{}{path}", guarded.client.at));
            if let Some(token) = &token {
                request = request.header("authorization", bearer(token));
            }
            if !body.is_empty() {
                request = request.header("content-type", "application/json").body(*body);
            }
            let answer = with_timeout("an answer", request.send()).await.unwrap();
            let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
            let what = format!("{column}: {method} {path}");
            assert_eq!(status, expected[n], "{what}");
            let is_live = headers.get("content-type").is_some_and(|kind| kind == "text/event-stream");
            // Live streams are checked below, and in `talks`.
            let text = if is_live { String::new() } else { with_timeout("a body", answer.text()).await.unwrap() };
            if status >= 400 && status != 426 && *method != "HEAD" {
                check_problem(&headers, status, &text, &what);
            }
            if *column != "admin" {
                assert!(!text.contains(HIDDEN), "{what}: {text}");
            }
            if !matches!(*column, "admin" | "reads" | "owner") {
                assert!(!text.contains(OWN), "{what}: {text}");
            }
            if let Some(token) = &token {
                assert!(!text.contains(token.as_str()), "{what} repeats the token");
            }
        }
    }
}

fn check_problem(headers: &HeaderMap, status: u16, text: &str, what: &str) {
    assert_eq!(headers["content-type"], "application/problem+json", "{what}");
    assert_eq!(headers["cache-control"], "no-store", "{what}");
    let problem: Value = serde_json::from_str(text).unwrap();
    crate::schema::assert_valid("problem.schema.json", &problem);
    match status {
        401 => {
            assert_eq!(problem["code"], "unauthenticated", "{what}");
            assert_eq!(headers["www-authenticate"], "Bearer", "{what}");
        }
        403 => {
            assert_eq!(problem["code"], "forbidden", "{what}");
            assert!(problem["missing"].is_string(), "{what}: {text}");
        }
        _ => {}
    }
}

#[tokio::test]
async fn a_wider_audience_than_the_token_s_is_rejected_and_never_narrowed() {
    let guarded = AuthServer::start().await;
    write_example_runs(&guarded).await;
    let dashboard = reader(json!({ "audience": "dashboard", "sessions": ["*"] }));
    let user = reader(json!({ "sessions": ["*"] }));
    let of_server = [
        "/v1/ws",
        "/v1/cluster",
        "/v1/me",
        "/v1/keys",
        "/v1/sign-in",
        "/v1/webhooks",
        "/v1/push",
        "/v1/audit",
        "/v1/links",
        "/v1/holds",
    ];
    let has_audience = |path: &str| path.starts_with("/v1/") && !of_server.iter().any(|other| path.starts_with(other));
    for (method, _, path, ..) in MATRIX.iter().filter(|row| row.0 == "GET" && has_audience(row.1)) {
        let path = if path.starts_with('/') { path } else { "/v1/blobs/b" };
        let with = |audience: &str| format!("{path}{}audience={audience}", if path.contains('?') { '&' } else { '?' });
        for (token, request) in [(&user, "dashboard"), (&user, "internal"), (&dashboard, "internal")] {
            let problem = guarded.get(&with(request), token).await.problem(403, "forbidden");
            assert_eq!(problem["missing"], format!("audience:{request}"), "{method} {path}");
        }
        if !path.contains("stream") {
            let answer = guarded.get(&with("user"), &dashboard).await;
            assert!(matches!(answer.status, 200 | 404), "{path}: {answer:?}");
        }
    }
    guarded.get("/v1/runs?audience=everybody", &user).await.problem(400, "bad_audience");
    let events = guarded.get("/v1/runs/r/events", &admin()).await.ok();
    assert!(!events.to_string().contains(HIDDEN), "the default audience is user, also for wider tokens");
}
const U: &str = "unauthenticated";
const F: &str = "forbidden";

/// Every op, its message, the run whose next fact a subscription must deliver, and the expected answer for each of
/// [`COLUMNS`]: the answer's `op`, or its problem's code.
#[rustfmt::skip]
const MESSAGES: &[(&str, &str, &str, [&str; 11])] = &[
    //                                                        none   forged expired nothing reads publishes controls elsewhere admin owner neighbour
    ("subscribe",   r#"{"run":"r"}"#,                        "r", [U, U, U, F, "subscribed", F, F, F, "subscribed", "subscribed", F]),
    ("subscribe",   r#"{"run":"r","frames":"events"}"#,      "r", [U, U, U, F, "subscribed", F, F, F, "subscribed", "subscribed", F]),
    ("subscribe",   r#"{"run":"q"}"#,                        "q", [U, U, U, F, "subscribed", F, F, "subscribed", "subscribed", F, "subscribed"]),
    ("subscribe",   r#"{"run":"never"}"#,                    "",  [U, U, U, F, "subscribed", F, F, F, "subscribed", F, F]),
    ("subscribe",   r#"{"session":"s","children":true}"#,    "r", [U, U, U, F, "subscribed", F, F, F, "subscribed", "subscribed", F]),
    ("subscribe",   r#"{"session":"t","frames":"events"}"#,  "q", [U, U, U, F, "subscribed", F, F, "subscribed", "subscribed", F, "subscribed"]),
    ("subscribe",   r#"{"run":"r","audience":"internal"}"#,  "r", [U, U, U, F, F, F, F, F, "subscribed", F, F]),
    ("subscribe",   r#"{"run":"q","audience":"internal"}"#,  "q", [U, U, U, F, F, F, F, "subscribed", "subscribed", F, "subscribed"]),
    ("unsubscribe", "{}", "", [U, U, U, "unsubscribed", "unsubscribed", "unsubscribed", "unsubscribed", "unsubscribed", "unsubscribed", "unsubscribed", "unsubscribed"]),
    ("publish",     r#"{"runId":"r","facts":[]}"#,           "",  [U, U, U, F, F, "ack", F, F, "ack", "ack", F]),
    ("publish",     r#"{"runId":"q","facts":[]}"#,           "",  [U, U, U, F, F, "ack", F, "ack", "ack", F, "ack"]),
    ("publish",     r#"{"sessionId":"s","facts":[]}"#,       "",  [U, U, U, F, F, "ack", F, F, "ack", "ack", F]),
    // No token moves a run into its own session.
    ("publish",     r#"{"runId":"r","facts":[],"ids":{"sessionId":"t"}}"#, "", [U, U, U, F, F, "ack", F, F, "ack", "ack", F]),
    ("submit",      r#"{"runId":"r","control":"steer","value":"x"}"#, "", [U, U, U, F, F, F, "submitted", F, "submitted", "submitted", F]),
    ("submit",      r#"{"sessionId":"s","control":"send","value":"x"}"#, "", [U, U, U, F, F, F, "submitted", F, "submitted", "submitted", F]),
    // An agent that the column `elsewhere` may act for, and one that it may not.
    ("claim",       r#"{"agentId":"a"}"#,                    "",  [U, U, U, F, F, "claiming", F, "claiming", "claiming", "claiming", "claiming"]),
    ("claim",       r#"{"agentId":"b"}"#,                    "",  [U, U, U, F, F, "claiming", F, F, "claiming", F, F]),
    ("unclaim",     "{}", "", [U, U, U, "unclaimed", "unclaimed", "unclaimed", "unclaimed", "unclaimed", "unclaimed", "unclaimed", "unclaimed"]),
    ("ack",         r#"{"control":"c","lease":"none"}"#,     "",  [U, U, U, F, F, "lease_lost", F, "lease_lost", "lease_lost", "lease_lost", "lease_lost"]),
    ("ack",         OF_A,                                    "",  [U, U, U, F, F, "acked", F, "acked", "acked", "acked", "acked"]),
    ("ack",         OF_B,                                    "",  [U, U, U, F, F, "acked", F, F, "acked", F, F]),
    ("nack",        r#"{"control":"c","lease":"none"}"#,     "",  [U, U, U, F, F, "lease_lost", F, "lease_lost", "lease_lost", "lease_lost", "lease_lost"]),
    ("nack",        OF_A,                                    "",  [U, U, U, F, F, "nacked", F, "nacked", "nacked", "nacked", "nacked"]),
    ("nack",        OF_B,                                    "",  [U, U, U, F, F, "nacked", F, F, "nacked", F, F]),
    ("ping",        "{}", "", [U, U, U, "pong", "pong", "pong", "pong", "pong", "pong", "pong", "pong"]),
    ("auth",        OWN_TOKEN, "", ["missing_member", U, U, "authenticated", "authenticated", "authenticated", "authenticated", "authenticated", "authenticated", "authenticated", "authenticated"]),
];

/// A control of an agent, with a valid lease.
const OF_A: &str = r#"{"agent":"a"}"#;
const OF_B: &str = r#"{"agent":"b"}"#;
/// The caller's own token.
const OWN_TOKEN: &str = r#"{"of":"mine"}"#;

#[test]
fn the_matrix_has_a_row_for_every_op_and_none_for_any_other() {
    let known: BTreeSet<_> = SocketOperation::ALL.iter().map(|op| op.as_str()).collect();
    assert_eq!(known, MESSAGES.iter().map(|row| row.0).collect(), "every op needs a row");
}

/// Submits a control for this agent and claims it; returns its id and its lease.
pub async fn lease_control(guarded: &AuthServer, agent: &str) -> (String, String) {
    let request = json!({ "control": "send", "value": "hello", "agentId": agent });
    let asked = guarded.post("/v1/runs/r/controls", &admin(), &request).await;
    assert_eq!(asked.status, 202, "{asked:?}");
    let id = asked.json()["controlId"].as_str().unwrap().to_owned();
    let claimed = guarded.post(&format!("/v1/agents/{agent}/controls/claim?leaseSeconds=600"), &admin(), &json!({})).await.ok();
    let control = claimed["controls"].as_array().unwrap().iter().find(|control| control["controlId"] == id);
    let lease = control.expect("the control is claimable")["lease"].as_str().unwrap().to_owned();
    (id, lease)
}

/// Sends a row's message with this token; returns the answer's name and all received text.
async fn run_row(guarded: &AuthServer, token: Option<&str>, row: &(&str, &str, &str, [&str; 11])) -> (String, String) {
    let (op, message_text, shown_in, _) = row;
    let mut received = String::new();
    let mut ws = Ws::open(&guarded.client).await;
    if let (Some(token), true) = (token, *op != "auth") {
        let known = ws.request(json!({ "op": "auth", "token": token })).await;
        received.push_str(&known.to_string());
        if known["op"] == "error" {
            assert_eq!(ws.receive().await, Err(4401));
            return (known["code"].as_str().unwrap().to_owned(), received);
        }
    }
    let mut message: Value = serde_json::from_str(message_text).unwrap();
    if let Some(agent) = message["agent"].as_str() {
        let (control, lease) = lease_control(guarded, agent).await;
        message = json!({ "control": control, "lease": lease });
    }
    if *message_text == OWN_TOKEN {
        message = json!({ "token": token });
    }
    (message["op"], message["id"]) = (json!(op), json!(1));
    ws.send(message).await;
    let answer = ws.receive().await.unwrap();
    received.push_str(&answer.to_string());
    if answer["op"] == "error" {
        assert!(answer["detail"].is_string() && (answer["code"] != F || answer["missing"].is_string()), "{answer}");
        return (answer["code"].as_str().unwrap().to_owned(), received);
    }
    if answer["op"] == "subscribed" && !shown_in.is_empty() {
        // Everything that the subscription delivers of the past comes before this mark.
        let mark = format!("message_text just now {}", uuid::Uuid::now_v7());
        let fact = fact("text.final", json!({ "messageId": mark, "payload": { "text": mark } }));
        guarded.publish(shown_in, "", &admin(), &[fact]).await.ok();
        loop {
            let frame = ws.receive().await.unwrap().to_string();
            received.push_str(&frame);
            if frame.contains(&mark) {
                break;
            }
        }
    }
    if answer["op"] == "claiming" {
        // Otherwise the claim would take the controls of later rows.
        while ws.request(json!({ "op": "unclaim", "id": 1 })).await["op"] != "unclaimed" {}
    }
    (answer["op"].as_str().unwrap().to_owned(), received)
}

#[tokio::test]
async fn every_op_requires_its_permission_and_hides_hidden_texts() {
    let guarded = AuthServer::start().await;
    write_example_runs(&guarded).await;
    for (n, column) in COLUMNS.iter().enumerate() {
        let token = token_for(column);
        for row in MESSAGES {
            let (answer, received) = run_row(&guarded, token.as_deref(), row).await;
            let what = format!("{column}: {} {}", row.0, row.1);
            assert_eq!(answer, row.3[n], "{what}: {received}");
            if *column != "admin" {
                assert!(!received.contains(HIDDEN), "{what}: {received}");
            }
            if !matches!(*column, "admin" | "reads" | "owner") {
                assert!(!received.contains(OWN), "{what}: {received}");
            }
            // A permitted subscription does receive text, so that the checks above are not empty.
            if answer == "subscribed" && row.2 == "r" {
                assert!(received.contains(OWN), "{what}: {received}");
                assert_eq!(received.contains(HIDDEN), row.1.contains("internal"), "{what}: {received}");
            }
            if let Some(token) = &token {
                assert!(!received.contains(token.as_str()), "{what} repeats the token");
            }
        }
    }
}
