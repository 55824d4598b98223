//! The description of every address (`OpenAPI` 3.1), made of the table that serves them.
//!
//! `/openapi.json` gives it, and `schema/openapi.json` is the same, so that a change of the contract shows in a review.

use super::access::Right;
use super::kinds::{KINDS, Kind};
use super::routes::{self, Answer, Body, CONNECTION, Content, Member, NOWHERE, OPERATIONS, Operation, SHAPES, SOCKET};
use crate::auth::rights::Verb;
use crate::model::schema;
use axum::response::{IntoResponse, Response};
use http::header;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// The document's text, made once.
static TEXT: LazyLock<String> = LazyLock::new(|| format!("{:#}\n", document()));

/// `GET /openapi.json`
pub async fn get() -> Response {
    ([(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-cache")], TEXT.as_str()).into_response()
}

const DESCRIPTION: &str = "Agent runtimes say what happens in facts of their own vocabulary; every screen reads the same ordered, durable log, as its audience may see it.

Errors are problem documents (RFC 9457): programs branch on `code`, and each answer below lists the codes that it can have. Members that are not described may come in any answer.

Before a request was read, a connection may be refused with these: ";

/// The document.
#[must_use]
pub fn document() -> Value {
    let mut paths = Map::new();
    for operation in OPERATIONS {
        let path = operation.path.replace("{*", "{");
        let item = paths.entry(path).or_insert_with(|| json!({}));
        item[operation.method.as_str().to_ascii_lowercase()] = described(operation);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Proscenium",
            "summary": "The agent-UI projection server",
            "description": format!("{DESCRIPTION}{}. Any other address or method: {}.", named(CONNECTION), named(NOWHERE)),
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "jsonSchemaDialect": schema::DIALECT,
        "servers": [{ "url": "/" }],
        "tags": TAGS.iter().map(|(name, purpose)| json!({ "name": name, "description": purpose })).collect::<Vec<_>>(),
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "A token, where the server has keys." },
                "ticket": { "type": "apiKey", "in": "query", "name": "ticket", "description": "A ticket of `POST /v1/tickets`." },
            },
        },
        "x-problems": KINDS.iter().map(told).collect::<Vec<_>>(),
    })
}

/// The parts of the description.
const TAGS: &[(&str, &str)] = &[
    ("facts", "Facts in."),
    ("streams", "Frames out, live."),
    ("runs", "Runs at rest."),
    ("sessions", "Sessions at rest."),
    ("controls", "Writes on their way to their owners."),
    ("clients", "Clients that exist already, in their own words."),
    ("access", "Who may what."),
    ("operations", "For operators."),
    ("contract", "What is on the wire."),
    ("page", "The page at `/`."),
];

fn told(kind: &Kind) -> Value {
    json!({ "code": kind.code, "status": kind.status, "meaning": kind.meaning, "remedy": kind.remedy })
}

fn named(kinds: &[Kind]) -> String {
    let name = |kind: &Kind| format!("{} `{}`", kind.status, kind.code);
    kinds.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn described(operation: &'static Operation) -> Value {
    let mut description = operation.does.to_owned();
    if operation.id == "connect" {
        let kinds: Vec<Kind> = SOCKET.iter().copied().flatten().copied().collect();
        description.push_str(&format!(" What is wrong with a message is told by one: {}.", named(&kinds)));
    }
    let mut parameters: Vec<Value> = operation.members().map(parameter).collect();
    if operation.takes_ids {
        let id = |(name, purpose): (&str, &str)| {
            let meaning = format!("For facts that lack it, and over what the source says itself. {purpose}");
            json!({ "name": name, "in": "query", "description": meaning, "schema": id_schema() })
        };
        parameters.extend(routes::ids().map(id));
    }
    let mut answers = Map::new();
    for Answer { status, meaning, content } in operation.answers {
        let content: Map<_, _> = content.iter().map(|(kind, content)| ((*kind).to_owned(), media(*content))).collect();
        let mut answer = json!({ "description": meaning });
        if !content.is_empty() {
            answer["content"] = content.into();
        }
        answers.insert(status.to_string(), answer);
    }
    let problems = operation.problems();
    for kind in &problems {
        let of_status: Vec<&Kind> = problems.iter().filter(|other| other.status == kind.status).collect();
        answers.entry(kind.status.to_string()).or_insert_with(|| refusal(&of_status));
    }
    answers.sort_keys();
    let mut described = json!({
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": operation.does,
        "description": description,
        "parameters": parameters,
        "responses": answers,
    });
    // A server without keys asks nobody.
    let security = match operation.right {
        Right::Open => json!([]),
        Right::Token => json!([{ "bearer": [] }, {}]),
        Right::To(verb) => json!([{ "bearer": [verb.as_str()] }, {}]),
        Right::Watch => json!([{ "bearer": [Verb::Read.as_str()] }, { "ticket": [] }, {}]),
        Right::Inside => json!([{ "bearer": [] }, { "ticket": [] }, {}]),
    };
    described["security"] = security;
    if let Some(Body { meaning, is_required, content }) = &operation.body {
        let content: Map<_, _> = content.iter().map(|(kind, content)| ((*kind).to_owned(), media(*content))).collect();
        described["requestBody"] = json!({ "description": meaning, "required": is_required, "content": content });
    }
    described
}

fn parameter(member: &'static Member) -> Value {
    json!({
        "name": member.name,
        "in": member.place.as_str(),
        "required": member.is_required,
        "description": member.meaning,
        "schema": rebased((member.schema)(), ""),
    })
}

fn id_schema() -> Value {
    json!({ "$ref": "#/components/schemas/AgentUiEvent/$defs/id" })
}

fn media(content: Content) -> Value {
    let shape = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
    match content {
        Content::Json(name) => json!({ "schema": shape(name) }),
        // OpenAPI 3.2 will call it `itemSchema`.
        Content::Each(name) => json!({ "schema": { "type": "string" }, "x-itemSchema": shape(name) }),
        Content::Text => json!({ "schema": { "type": "string" } }),
        Content::Bytes => json!({}),
    }
}

/// The answer of a status that is a problem.
fn refusal(kinds: &[&Kind]) -> Value {
    let line = |kind: &&Kind| format!("* `{}`: {}. Remedy: {}.", kind.code, kind.meaning, kind.remedy);
    let codes: Vec<_> = kinds.iter().map(|kind| kind.code).collect();
    let schema = json!({
        "allOf": [{ "$ref": "#/components/schemas/Problem" }],
        "properties": { "code": { "enum": codes } },
    });
    json!({
        "description": kinds.iter().map(line).collect::<Vec<_>>().join("\n"),
        "content": { "application/problem+json": { "schema": schema } },
    })
}

/// The shapes of bodies, with the documents of `schema/` among them.
fn schemas() -> Map<String, Value> {
    let names = [("agentui-event", "AgentUiEvent"), ("frames", "Frame"), ("problem", "Problem")];
    let mut schemas = Map::new();
    for ((file, mut document), (stem, name)) in schema::documents().into_iter().zip(names) {
        assert!(file.starts_with(stem), "the documents of schema/ stand in another order");
        if let Value::Object(members) = &mut document {
            members.retain(|member, _| !matches!(member.as_str(), "$schema" | "$id"));
        }
        schemas.insert(name.into(), rebased(document, name));
    }
    schemas.extend(SHAPES.iter().map(|(name, shape)| ((*name).to_owned(), shape())));
    schemas
}

/// A document of `schema/` that has become the component of this name: what it refers to is elsewhere now.
fn rebased(document: Value, name: &str) -> Value {
    match document {
        Value::Object(members) => members
            .into_iter()
            .map(|(member, value)| match value {
                Value::String(target) if member == "$ref" => {
                    let target = target
                        .replace("urn:proscenium:schema:agentui-event", "#/components/schemas/AgentUiEvent")
                        .replace("urn:proscenium:schema:problem", "#/components/schemas/Problem")
                        .replace("AgentUiEvent#/", "AgentUiEvent/");
                    let target = match target.strip_prefix("#/$defs/") {
                        Some(definition) => format!("#/components/schemas/{name}/$defs/{definition}"),
                        None => target,
                    };
                    (member, target.into())
                }
                value => (member, rebased(value, name)),
            })
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(list) => list.into_iter().map(|value| rebased(value, name)).collect(),
        other => other,
    }
}
