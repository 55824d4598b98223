//! A token's claims: subject, validity and rights.
//!
//! Parsing is strict. A missing member grants nothing. An unknown member rejects the token, because it may have been
//! meant as a restriction.

use super::TokenError;
use crate::model::{Audience, RunId, SessionId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Number, Value};

/// How far in the future `nbf` may be, in seconds, since the issuer's clock may run ahead.
///
/// `exp` gets no tolerance.
pub const CLOCK_SKEW: u64 = 30;
/// Later expiries are lowered to this: the last second of the year 9999, in seconds since 1970.
const EXPIRES_MAX: u64 = 253_402_300_799;

/// An operation that a token may permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// Read live streams and stored data.
    Read,
    /// Send facts, and claim the controls of an agent.
    Publish,
    /// Submit controls, and settle runs.
    Control,
    /// Erase runs, and read metrics. It includes the verbs above.
    Admin,
    /// Submit controls in the name of another person. No other verb includes it.
    Impersonate,
}

impl Verb {
    /// All verbs.
    pub const ALL: [Self; 5] = [Self::Read, Self::Publish, Self::Control, Self::Admin, Self::Impersonate];

    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Publish => "publish",
            Self::Control => "control",
            Self::Admin => "admin",
            Self::Impersonate => "impersonate",
        }
    }
}

/// The ids that a token names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    All,
    /// Sorted.
    Listed(Vec<Box<str>>),
}

impl Scope {
    fn parse(member: &'static str, mut ids: Vec<Box<str>>) -> Result<Self, TokenError> {
        if ids.iter().any(|id| &**id == "*") {
            return Ok(Self::All);
        }
        // Sessions, runs and agents share one id syntax.
        if let Some(error) = ids.iter().find_map(|id| RunId::new(id).err()) {
            return Err(TokenError::Claim(format!("proscenium.{member}: {error}")));
        }
        ids.sort_unstable();
        Ok(Self::Listed(ids))
    }

    /// Returns whether the scope includes this id.
    #[must_use]
    pub fn contains(&self, id: &str) -> bool {
        match self {
            Self::All => true,
            Self::Listed(ids) => ids.binary_search_by(|known| (**known).cmp(id)).is_ok(),
        }
    }

    /// Returns whether the scope includes all of another scope.
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) => true,
            (Self::Listed(_), Self::All) => false,
            (Self::Listed(_), Self::Listed(ids)) => ids.iter().all(|id| self.contains(id)),
        }
    }
}

/// What a token permits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    pub audience: Audience,
    pub sessions: Scope,
    runs: Scope,
    agents: Scope,
    can: Vec<Verb>,
    /// Set for a ticket of one run. The lists above then only decide whether that run is readable.
    only_run: Option<RunId>,
}

impl Rights {
    /// Returns whether the verb is permitted.
    #[must_use]
    pub fn can(&self, verb: Verb) -> bool {
        self.can.contains(&verb) || verb != Verb::Impersonate && self.can.contains(&Verb::Admin)
    }

    /// Returns whether the rights cover every session and every run.
    #[must_use]
    pub const fn is_unrestricted(&self) -> bool {
        matches!(self.sessions, Scope::All) && self.only_run.is_none()
    }

    /// Returns whether the rights cover a session and all its runs.
    #[must_use]
    pub fn has_session(&self, session: &SessionId) -> bool {
        self.only_run.is_none() && self.sessions.contains(session.as_str())
    }

    /// Returns whether the rights cover a run, by its id or by the session that it belongs to.
    ///
    /// Rights to all sessions cover every run.
    #[must_use]
    pub fn has_run(&self, run: &RunId, session: Option<&SessionId>) -> bool {
        let by_session = || match session {
            Some(session) => self.sessions.contains(session.as_str()),
            None => self.sessions == Scope::All,
        };
        self.only_run.as_ref().is_none_or(|only_run| only_run == run) && (self.runs.contains(run.as_str()) || by_session())
    }

    /// Returns whether the rights cover an agent.
    #[must_use]
    pub fn has_agent(&self, agent: &str) -> bool {
        self.agents.contains(agent)
    }

    /// Returns whether these rights include all of the other rights.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.audience >= other.audience
            && self.sessions.covers(&other.sessions)
            && (self.runs.covers(&other.runs) || self.sessions == Scope::All)
            && self.agents.covers(&other.agents)
            && other.can.iter().all(|verb| self.can(*verb))
            && (self.only_run.is_none() || self.only_run == other.only_run)
    }

    /// Reduces the rights to reading.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.can = vec![Verb::Read];
        self.agents = Scope::Listed(Vec::new());
        self
    }

    /// Restricts the rights to one run. It grants nothing that the rights did not cover before.
    #[must_use]
    pub fn restricted_to_run(mut self, run: RunId) -> Self {
        self.only_run = Some(run);
        self
    }

    /// Restricts the rights to one session, which they must cover.
    #[must_use]
    pub fn restricted_to_session(mut self, session: &SessionId) -> Self {
        debug_assert!(self.has_session(session), "the rights must cover the session");
        self.sessions = Scope::Listed(vec![session.as_str().into()]);
        self.runs = Scope::Listed(Vec::new());
        self
    }
}

/// The verified claims of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    pub subject: Box<str>,
    /// The person's name, if the token has it as text.
    pub name: Option<Box<str>>,
    /// The token's `jti`.
    pub id: Option<Box<str>>,
    /// In seconds since 1970. The token is invalid from this second on.
    pub expires: u64,
    /// In seconds since 1970. The token is invalid before this second.
    pub not_before: u64,
    issuer: Option<Box<str>>,
    /// The services in `aud`. `None`: the token has no `aud`.
    services: Option<Vec<Box<str>>>,
    pub rights: Rights,
}

/// The claims as the token spells them.
#[derive(Deserialize)]
pub(super) struct RawClaims {
    sub: Box<str>,
    /// Another service may write anything here.
    #[serde(default)]
    name: Option<Value>,
    exp: Number,
    #[serde(default)]
    nbf: Option<Number>,
    #[serde(default)]
    jti: Option<Box<str>>,
    #[serde(default)]
    iss: Option<Box<str>>,
    #[serde(default)]
    aud: Option<OneOrMany>,
    #[serde(default)]
    proscenium: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRights {
    #[serde(default = "default_audience")]
    audience: Audience,
    #[serde(default)]
    sessions: Vec<Box<str>>,
    #[serde(default)]
    runs: Vec<Box<str>>,
    #[serde(default)]
    agents: Vec<Box<str>>,
    #[serde(default)]
    can: Vec<Verb>,
}

/// The audience of a token that names none.
const fn default_audience() -> Audience {
    Audience::User
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(Box<str>),
    Many(Vec<Box<str>>),
}

fn seconds(member: &str, number: &Number) -> Result<u64, TokenError> {
    let whole = number.as_u64().or_else(|| number.as_f64().filter(|n| *n >= 0.0).map(|n| n as u64));
    whole.ok_or_else(|| TokenError::Claim(format!("{member} is {number}; it must be a number of seconds since 1970")))
}

impl Claims {
    pub(super) fn from_raw(raw: RawClaims) -> Result<Self, TokenError> {
        if raw.sub.is_empty() {
            return Err(TokenError::Claim("sub is empty; it must name the token's holder".into()));
        }
        // A token without the claim permits nothing.
        let here = raw.proscenium.as_ref().map_or("{}", |here| here.get());
        // serde would also accept an array of the members in order.
        let here: RawRights = match here.starts_with('{') {
            true => serde_json::from_str(here).map_err(|error| TokenError::Claim(format!("proscenium: {error}")))?,
            false => return Err(TokenError::Claim("proscenium is not an object".into())),
        };
        Ok(Self {
            expires: seconds("exp", &raw.exp)?.min(EXPIRES_MAX),
            not_before: raw.nbf.map_or(Ok(0), |nbf| seconds("nbf", &nbf))?,
            subject: raw.sub,
            name: raw.name.as_ref().and_then(Value::as_str).map(Into::into),
            id: raw.jti,
            issuer: raw.iss,
            services: raw.aud.map(|aud| match aud {
                OneOrMany::One(name) => vec![name],
                OneOrMany::Many(names) => names,
            }),
            rights: Rights {
                audience: here.audience,
                sessions: Scope::parse("sessions", here.sessions)?,
                runs: Scope::parse("runs", here.runs)?,
                agents: Scope::parse("agents", here.agents)?,
                can: here.can,
                only_run: None,
            },
        })
    }

    /// Fails if `aud` excludes this service, or if `iss` is not the required issuer.
    ///
    /// RFC 7519, section 4.1.3: a service that a present `aud` does not name must reject the token.
    pub(super) fn ensure_addressed_to(&self, service: &str, issuer: Option<&str>) -> Result<(), TokenError> {
        if self.services.as_ref().is_some_and(|services| !services.iter().any(|name| **name == *service)) {
            return Err(TokenError::WrongAudience);
        }
        match issuer {
            Some(issuer) if self.issuer.as_deref() != Some(issuer) => Err(TokenError::WrongIssuer),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(claims: Value) -> Result<Claims, String> {
        let raw: RawClaims = serde_json::from_value(claims).map_err(|error| error.to_string())?;
        Claims::from_raw(raw).map_err(|refusal| refusal.to_string())
    }

    fn rights(here: Value) -> Rights {
        read(json!({ "sub": "s", "exp": 1, "proscenium": here })).unwrap().rights
    }

    fn run(id: &str) -> RunId {
        RunId::new(id).unwrap()
    }

    fn session(id: &str) -> SessionId {
        SessionId::new(id).unwrap()
    }

    #[test]
    fn a_missing_member_grants_nothing_and_the_default_audience_is_user() {
        for here in [json!({}), Value::Null] {
            let rights = rights(here);
            assert_eq!(rights.audience, Audience::User);
            assert!(Verb::ALL.iter().all(|verb| !rights.can(*verb)));
            assert!(!rights.has_session(&session("s")) && !rights.has_run(&run("r"), None) && !rights.has_agent("a"));
        }
        assert_eq!(read(json!({ "sub": "s", "exp": 1 })).unwrap().rights, rights(json!({})));
    }

    #[test]
    fn an_unknown_member_or_value_rejects_the_token() {
        let check = |claims: Value, why: &str| {
            let error = read(claims.clone()).unwrap_err();
            assert!(error.contains(why), "{claims}: {error}");
        };
        check(json!({ "exp": 1 }), "missing field `sub`");
        check(json!({ "sub": "", "exp": 1 }), "sub is empty");
        check(json!({ "sub": "s" }), "missing field `exp`");
        check(json!({ "sub": "s", "exp": "1" }), "invalid type: string");
        check(json!({ "sub": "s", "exp": -1 }), "exp is -1");
        check(json!({ "sub": "s", "exp": null }), "invalid type: null");
        check(json!({ "sub": "s", "exp": 1, "nbf": -7 }), "nbf is -7");
        let here = |here: Value| json!({ "sub": "s", "exp": 1, "proscenium": here });
        check(here(json!({ "audience": "everyone" })), "unknown variant `everyone`");
        check(here(json!({ "can": ["write"] })), "unknown variant `write`");
        check(here(json!({ "can": "read" })), "invalid type: string");
        check(here(json!({ "session": ["s"] })), "unknown field `session`");
        check(here(json!({ "runs": "*" })), "invalid type: string");
        check(here(json!({ "runs": null })), "invalid type: null");
        check(here(json!({ "runs": [""] })), "proscenium.runs: an id is empty");
        check(here(json!({ "agents": ["a\n"] })), "proscenium.agents: an id has a control character");
        check(here(json!([])), "proscenium is not an object");
        check(here(json!(["internal", ["*"]])), "proscenium is not an object");
    }

    #[test]
    fn an_expiry_may_be_fractional_and_is_capped() {
        let expires = |exp: Value| read(json!({ "sub": "s", "exp": exp })).unwrap().expires;
        assert_eq!(expires(json!(1_700_000_000)), 1_700_000_000);
        assert_eq!(expires(json!(1_700_000_000.9)), 1_700_000_000);
        assert_eq!(expires(json!(u64::MAX)), EXPIRES_MAX);
        assert_eq!(expires(json!(1e300)), EXPIRES_MAX);
    }

    #[test]
    fn a_run_is_covered_by_its_id_or_by_its_session() {
        let both = rights(json!({ "runs": ["r2", "r1"], "sessions": ["s1"] }));
        assert!(both.has_run(&run("r1"), None) && both.has_run(&run("r2"), Some(&session("s9"))));
        assert!(both.has_run(&run("r9"), Some(&session("s1"))));
        assert!(!both.has_run(&run("r9"), None) && !both.has_run(&run("r9"), Some(&session("s9"))));
        assert!(both.has_session(&session("s1")) && !both.has_session(&session("s9")));
        let runs = rights(json!({ "runs": ["*"] }));
        assert!(runs.has_run(&run("r"), None) && !runs.has_session(&session("s")) && !runs.is_unrestricted());
        let sessions = rights(json!({ "sessions": ["s", "*"] }));
        assert!(sessions.has_run(&run("r"), None) && sessions.has_session(&session("s")) && sessions.is_unrestricted());
    }

    #[test]
    fn restricted_rights_never_exceed_the_original() {
        let all = rights(json!({ "sessions": ["*"], "agents": ["a"], "can": ["admin"], "audience": "internal" }));
        let included = Verb::ALL.iter().filter(|verb| all.can(**verb)).count();
        assert!(included == Verb::ALL.len() - 1 && !all.can(Verb::Impersonate), "admin includes every other verb");
        let read = all.clone().read_only();
        assert!(read.can(Verb::Read) && !read.can(Verb::Publish) && !read.can(Verb::Admin) && !read.has_agent("a"));
        let one = read.clone().restricted_to_run(run("r"));
        assert!(one.has_run(&run("r"), None) && !one.has_run(&run("q"), None) && !one.has_session(&session("s")));
        assert!(!one.is_unrestricted());
        let of_session = read.clone().restricted_to_session(&session("s"));
        assert!(of_session.has_run(&run("q"), Some(&session("s"))) && !of_session.has_run(&run("q"), None));
        let foreign = rights(json!({ "sessions": ["s"] })).restricted_to_run(run("r"));
        assert!(foreign.has_run(&run("r"), Some(&session("s"))) && !foreign.has_run(&run("r"), Some(&session("t"))));
        for narrow in [&read, &one, &of_session] {
            assert!(all.covers(narrow) && !narrow.covers(&all));
        }
        assert!(all.covers(&all) && one.covers(&one) && !one.covers(&read));
    }

    #[test]
    fn a_token_for_another_service_or_from_another_issuer_is_rejected() {
        let claims = |more: Value| {
            let mut claims = json!({ "sub": "s", "exp": 1 });
            claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            read(claims).unwrap()
        };
        assert_eq!(claims(json!({})).ensure_addressed_to("proscenium", None), Ok(()));
        assert_eq!(claims(json!({ "aud": "proscenium" })).ensure_addressed_to("proscenium", None), Ok(()));
        assert_eq!(claims(json!({ "aud": ["x", "proscenium"] })).ensure_addressed_to("proscenium", None), Ok(()));
        assert_eq!(claims(json!({ "aud": ["x"] })).ensure_addressed_to("proscenium", None), Err(TokenError::WrongAudience));
        assert_eq!(claims(json!({ "aud": [] })).ensure_addressed_to("proscenium", None), Err(TokenError::WrongAudience));
        assert_eq!(claims(json!({ "iss": "us" })).ensure_addressed_to("proscenium", Some("us")), Ok(()));
        assert_eq!(claims(json!({})).ensure_addressed_to("proscenium", Some("us")), Err(TokenError::WrongIssuer));
    }
}
