//! One address: what it takes, what it answers, and who may call it.

use super::access_rule::AccessRule::{self, InBand, Public};
use super::groups::{ACCESS_PROBLEMS, ANY_ADDRESS};
use super::kinds::{self, ProblemKind};
use super::members::{Parameter, ParameterLocation, ids};
use http::Method;

/// A method of an address.
pub struct Operation {
    pub method: Method,
    /// The access rule, checked before the handler runs.
    pub access_rule: AccessRule,
    /// The path as in axum and `OpenAPI`. A `*` before a name allows slashes in it.
    pub path: &'static str,
    /// The operation's id in generated clients.
    pub id: &'static str,
    /// Its tag in the description.
    pub tag: &'static str,
    /// What it does, in one sentence.
    pub summary: &'static str,
    /// Its parameters in groups, path parameters first.
    pub parameters: &'static [&'static [Parameter]],
    /// Whether it also accepts ids for facts that lack them.
    pub accepts_ids: bool,
    pub body: Option<RequestBody>,
    pub responses: &'static [ResponseSpec],
    /// Its problems in groups, besides those of its parameters and of every address.
    pub problems: &'static [&'static [ProblemKind]],
}

/// A request body, by media type.
pub struct RequestBody {
    pub meaning: &'static str,
    /// Whether a request without a body is refused.
    pub is_required: bool,
    pub content: &'static [(&'static str, Content)],
}

/// A response that is not a problem.
pub struct ResponseSpec {
    pub status: u16,
    pub meaning: &'static str,
    pub content: &'static [(&'static str, Content)],
}

/// The content of a body.
#[derive(Clone, Copy)]
pub enum Content {
    /// JSON of this shape in [`SHAPES`](super::shapes::SHAPES).
    Json(&'static str),
    /// Text whose lines, messages or frames are JSON of this shape.
    Each(&'static str),
    /// Any text.
    Text,
    /// Any bytes.
    Bytes,
}

impl Operation {
    /// An operation without parameters, body and problems of its own.
    pub(super) const fn new(
        method: Method,
        path: &'static str,
        access_rule: AccessRule,
        id: &'static str,
        tag: &'static str,
    ) -> Self {
        let (parameters, accepts_ids, body): (&[&[Parameter]], _, _) = (&[], false, None);
        Self { method, access_rule, path, id, tag, summary: "", parameters, accepts_ids, body, responses: &[], problems: &[] }
    }

    pub(super) const fn with_summary(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }

    pub(super) const fn with_parameters(mut self, parameters: &'static [&'static [Parameter]]) -> Self {
        self.parameters = parameters;
        self
    }

    pub(super) const fn with_ids(mut self) -> Self {
        self.accepts_ids = true;
        self
    }

    pub(super) const fn with_body(mut self, body: RequestBody) -> Self {
        self.body = Some(body);
        self
    }

    pub(super) const fn with_responses(mut self, responses: &'static [ResponseSpec]) -> Self {
        self.responses = responses;
        self
    }

    pub(super) const fn with_problems(mut self, problems: &'static [&'static [ProblemKind]]) -> Self {
        self.problems = problems;
        self
    }

    /// Its parameters.
    pub fn parameters(&self) -> impl Iterator<Item = &'static Parameter> + use<> {
        self.parameters.iter().copied().flatten()
    }

    /// Every problem that it can answer with, without duplicates.
    #[must_use]
    pub fn problems(&self) -> Vec<ProblemKind> {
        let of_members = self.parameters().filter_map(|member| member.problem);
        let of_ids = self.accepts_ids.then_some(kinds::BAD_ID);
        let mut problems: Vec<ProblemKind> = Vec::new();
        let of_right = if matches!(self.access_rule, Public | InBand) { &[][..] } else { ACCESS_PROBLEMS };
        let own = self.problems.iter().copied().flatten().chain(of_right).chain(ANY_ADDRESS).copied();
        for kind in of_members.chain(of_ids).chain(own) {
            if !problems.contains(&kind) {
                problems.push(kind);
            }
        }
        problems
    }

    /// Returns whether it reads this query member.
    #[must_use]
    pub fn reads_query(&self, member: &str) -> bool {
        let is_id = || ids().any(|(id, _)| id == member);
        self.parameters().any(|known| known.location == ParameterLocation::Query && known.name == member)
            || self.accepts_ids && is_id()
    }

    pub(super) fn matches_path(&self, path: &str) -> bool {
        let (mut template, mut segments) = (self.path.split('/'), path.split('/'));
        loop {
            match (template.next(), segments.next()) {
                (None, None) => return true,
                (Some(rest), Some(_)) if rest.starts_with("{*") => return true,
                (Some(name), Some(segment)) if name.starts_with('{') => {
                    if segment.is_empty() {
                        return false;
                    }
                }
                (Some(name), Some(segment)) if name == segment => {}
                _ => return false,
            }
        }
    }
}
