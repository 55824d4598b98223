//! The `OpenAPI` 3.1 description, generated from the table that serves the addresses.
//!
//! `/openapi.json` serves it, and `schema/openapi.json` is a copy, so that a review shows changes of the contract.

use super::access_rule::AccessRule;
use super::kinds::{KINDS, ProblemKind};
use super::members::{self, Parameter};
use super::operations::{
    CONNECTION_PROBLEMS, Content, NO_ADDRESS_PROBLEMS, OPERATIONS, Operation, RequestBody, ResponseSpec, SOCKET_PROBLEMS,
};
use super::shapes::SHAPES;
use crate::model::schema;
use axum::response::{IntoResponse, Response};
use http::header;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// The document's text, generated once.
static TEXT: LazyLock<String> = LazyLock::new(|| format!("{:#}\n", document()));

/// `GET /openapi.json`
pub async fn get() -> Response {
    ([(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-cache")], TEXT.as_str()).into_response()
}

const DESCRIPTION: &str = "Agent runtimes publish facts in their own vocabulary. Every client reads the same ordered, durable log, filtered for its audience.

Errors are problem documents (RFC 9457). Programs branch on `code`; each response below lists its possible codes. Any response may have further members.

Before it reads a request, the server may refuse a connection with these: ";

/// The document.
#[must_use]
pub fn document() -> Value {
    let mut paths = Map::new();
    for operation in OPERATIONS {
        let path = operation.path.replace("{*", "{");
        let item = paths.entry(path).or_insert_with(|| json!({}));
        item[operation.method.as_str().to_ascii_lowercase()] = operation_json(operation);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Proscenium",
            "summary": "The agent-UI projection server",
            "description": format!("{DESCRIPTION}{}. Any other address or method: {}.", kind_names(CONNECTION_PROBLEMS), kind_names(NO_ADDRESS_PROBLEMS)),
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
                "bearer": { "type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "A token, if the server has keys." },
                "ticket": { "type": "apiKey", "in": "query", "name": "ticket", "description": "A ticket of `POST /v1/tickets`." },
            },
        },
        "x-problems": KINDS.iter().map(problem_json).collect::<Vec<_>>(),
    })
}

/// The tags of the description.
const TAGS: &[(&str, &str)] = &[
    ("facts", "Publish facts."),
    ("streams", "Read live frames."),
    ("runs", "Stored runs."),
    ("sessions", "Stored sessions."),
    ("controls", "Requests to the owners of runs and sessions."),
    ("clients", "Existing clients, in their own protocols."),
    ("access", "Credentials."),
    ("operations", "Endpoints for operators."),
    ("contract", "Schemas of the wire format."),
    ("page", "The page at `/`."),
];

fn problem_json(kind: &ProblemKind) -> Value {
    json!({ "code": kind.code, "status": kind.status, "meaning": kind.meaning, "remedy": kind.remedy })
}

fn kind_names(kinds: &[ProblemKind]) -> String {
    let name = |kind: &ProblemKind| format!("{} `{}`", kind.status, kind.code);
    kinds.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn operation_json(operation: &'static Operation) -> Value {
    let mut description = operation.summary.to_owned();
    if operation.id == "connect" {
        let mut kinds: Vec<ProblemKind> = Vec::new();
        for kind in SOCKET_PROBLEMS.iter().copied().flatten() {
            if kinds.iter().all(|known| known.code != kind.code) {
                kinds.push(*kind);
            }
        }
        description.push_str(&format!(" A faulty message is answered with one of: {}.", kind_names(&kinds)));
    }
    let mut parameters: Vec<Value> = operation.parameters().map(parameter).collect();
    if operation.accepts_ids {
        let id = |(name, purpose): (&str, &str)| {
            let meaning = format!("Applies to facts that lack it, and overrides the source's own value. {purpose}");
            json!({ "name": name, "in": "query", "description": meaning, "schema": id_schema() })
        };
        parameters.extend(members::ids().map(id));
    }
    let mut answers = Map::new();
    for ResponseSpec { status, meaning, content } in operation.responses {
        let content: Map<_, _> = content.iter().map(|(kind, content)| ((*kind).to_owned(), media(*content))).collect();
        let mut answer = json!({ "description": meaning });
        if !content.is_empty() {
            answer["content"] = content.into();
        }
        answers.insert(status.to_string(), answer);
    }
    let problems = operation.problems();
    for kind in &problems {
        let of_status: Vec<&ProblemKind> = problems.iter().filter(|other| other.status == kind.status).collect();
        answers.entry(kind.status.to_string()).or_insert_with(|| problem_response(&of_status));
    }
    answers.sort_keys();
    let mut operation_json = json!({
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": description,
        "parameters": parameters,
        "responses": answers,
    });
    // A server without keys requires no credentials.
    let security = match operation.access_rule {
        AccessRule::Public => json!([]),
        AccessRule::AnyToken | AccessRule::Requires(_) => json!([{ "bearer": [] }, {}]),
        AccessRule::ReadStream | AccessRule::InBand => json!([{ "bearer": [] }, { "ticket": [] }, {}]),
    };
    operation_json["security"] = security;
    if let Some(RequestBody { meaning, is_required, content }) = &operation.body {
        let content: Map<_, _> = content.iter().map(|(kind, content)| ((*kind).to_owned(), media(*content))).collect();
        operation_json["requestBody"] = json!({ "description": meaning, "required": is_required, "content": content });
    }
    operation_json
}

fn parameter(member: &'static Parameter) -> Value {
    json!({
        "name": member.name,
        "in": member.location.as_str(),
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

/// The response of a problem status.
fn problem_response(kinds: &[&ProblemKind]) -> Value {
    let line = |kind: &&ProblemKind| format!("* `{}`: {}. Remedy: {}.", kind.code, kind.meaning, kind.remedy);
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

/// The schemas of bodies, including the documents of `schema/`.
fn schemas() -> Map<String, Value> {
    let names = [("agentui-event", "AgentUiEvent"), ("frames", "Frame"), ("problem", "Problem")];
    let mut schemas = Map::new();
    for ((file, mut document), (stem, name)) in schema::documents().into_iter().zip(names) {
        assert!(file.starts_with(stem), "the documents of schema/ have another order");
        if let Value::Object(members) = &mut document {
            members.retain(|member, _| !matches!(member.as_str(), "$schema" | "$id"));
        }
        schemas.insert(name.into(), rebased(document, name));
    }
    schemas.extend(SHAPES.iter().map(|(name, shape)| ((*name).to_owned(), shape())));
    schemas
}

/// Rebases the references of a `schema/` document that became a component of this name.
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
