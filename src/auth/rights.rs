//! A token's claims: subject, validity and rights.
//!
//! Parsing is strict. A missing member grants nothing. An unknown member rejects the token, because it may have been
//! meant as a restriction.

use super::TokenError;
use crate::log::LogId;
use crate::model::branch::root_in_id;
use crate::model::{Audience, OwnerId, RunId, SessionId, SessionOwner};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Number, Value};

/// How far in the future `nbf` may be, in seconds, since the issuer's clock may run ahead.
///
/// `exp` gets no tolerance.
pub const CLOCK_SKEW: u64 = 30;
/// Later expiries are lowered to this: the last second of the year 9999, in seconds since 1970.
pub const EXPIRES_MAX: u64 = 253_402_300_799;

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
    /// Erase what the token covers.
    Erase,
    /// Make links to what the token covers.
    Share,
    /// Read metrics, and change the server. It includes the verbs above.
    Admin,
    /// Submit controls in the name of another person. No other verb includes it.
    Impersonate,
}

impl Verb {
    /// All verbs.
    pub const ALL: [Self; 7] =
        [Self::Read, Self::Publish, Self::Control, Self::Erase, Self::Share, Self::Admin, Self::Impersonate];

    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Publish => "publish",
            Self::Control => "control",
            Self::Erase => "erase",
            Self::Share => "share",
            Self::Admin => "admin",
            Self::Impersonate => "impersonate",
        }
    }
}

/// The ids that a token names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    All,
    /// Whole ids, then patterns: `acme/*` names every id that begins with `acme/`. Both are sorted.
    Listed(Vec<Box<str>>),
}

impl Scope {
    /// The scope that names nothing.
    const fn none() -> Self {
        Self::Listed(Vec::new())
    }

    pub(crate) fn parse(member: &'static str, ids: Vec<Box<str>>) -> Result<Self, TokenError> {
        Self::of_patterns(ids).map_err(|why| TokenError::Claim(format!("proscenium.{member}: {why}")))
    }

    /// The scope that whole ids and patterns name: `*` alone names all, and `acme/*` what begins with `acme/`.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub fn of_patterns(mut ids: Vec<Box<str>>) -> Result<Self, String> {
        if ids.iter().any(|id| &**id == "*") {
            return Ok(Self::All);
        }
        for id in &ids {
            if prefix_of(id).unwrap_or(id).contains('*') {
                return Err(format!("{id:?} has a `*` before its end; `*` alone names all, and `acme/*` a prefix"));
            }
            // All ids share one syntax.
            RunId::new(id).map_err(|error| error.to_string())?;
        }
        ids.sort_unstable_by(|a, b| prefix_of(a).is_some().cmp(&prefix_of(b).is_some()).then_with(|| a.cmp(b)));
        Ok(Self::Listed(ids))
    }

    /// The whole ids, and the patterns.
    fn parts(ids: &[Box<str>]) -> (&[Box<str>], &[Box<str>]) {
        ids.split_at(ids.partition_point(|id| prefix_of(id).is_none()))
    }

    /// The whole ids, and what the ids of each pattern begin with. Empty for [`Self::All`].
    pub fn listed(&self) -> (impl Iterator<Item = &str>, impl Iterator<Item = &str>) {
        let (ids, patterns) = match self {
            Self::All => Default::default(),
            Self::Listed(ids) => Self::parts(ids),
        };
        (ids.iter().map(|id| &**id), patterns.iter().filter_map(|id| prefix_of(id)))
    }

    /// Returns whether the scope includes every id.
    #[must_use]
    pub const fn names_all(&self) -> bool {
        matches!(self, Self::All)
    }

    /// The entries as the token spells them.
    #[must_use]
    pub fn to_list(&self) -> Vec<&str> {
        match self {
            Self::All => vec!["*"],
            Self::Listed(ids) => ids.iter().map(|id| &**id).collect(),
        }
    }

    /// Returns whether the scope names nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Listed(ids) if ids.is_empty())
    }

    /// Returns whether the scope includes this id.
    #[must_use]
    pub fn contains(&self, id: &str) -> bool {
        let Self::Listed(ids) = self else { return true };
        let (ids, patterns) = Self::parts(ids);
        ids.binary_search_by(|known| (**known).cmp(id)).is_ok()
            || patterns.iter().filter_map(|pattern| prefix_of(pattern)).any(|prefix| id.starts_with(prefix))
    }

    /// Returns whether the scope includes all of another scope.
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) => true,
            (Self::Listed(_), Self::All) => false,
            // What contains the beginning of a pattern contains the whole of it only by a pattern of its own.
            (Self::Listed(own), Self::Listed(ids)) => {
                let (_, patterns) = Self::parts(own);
                let has_pattern = |prefix: &str| {
                    patterns.iter().filter_map(|pattern| prefix_of(pattern)).any(|known| prefix.starts_with(known))
                };
                ids.iter().all(|id| prefix_of(id).map_or_else(|| self.contains(id), has_pattern))
            }
        }
    }
}

/// What the ids of a pattern begin with. `None`: the entry is a whole id.
fn prefix_of(entry: &str) -> Option<&str> {
    entry.strip_suffix('*').filter(|prefix| !prefix.is_empty())
}

/// What a token permits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    pub audience: Audience,
    pub sessions: Scope,
    pub runs: Scope,
    pub agents: Scope,
    can: Vec<Verb>,
    /// Whose sessions are that the holder begins.
    #[serde(default)]
    pub owner: Option<OwnerId>,
    /// The owners whose sessions the rights cover.
    #[serde(default = "Scope::none")]
    pub owners: Scope,
    /// Set for a ticket of one run. The lists above then only decide whether that run is readable.
    only_run: Option<RunId>,
    /// Set for a ticket of one session.
    #[serde(default)]
    only_session: Option<SessionId>,
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
        matches!(self.sessions, Scope::All) && self.only_run.is_none() && self.only_session.is_none()
    }

    /// Returns whether the rights cover a session and all its runs, by its id or by its owner. Rights to owners
    /// also cover a session that does not exist.
    #[must_use]
    pub fn has_session(&self, session: &SessionId, owner: SessionOwner<'_>) -> bool {
        self.only_run.is_none() && self.reaches_session(session, owner)
    }

    fn reaches_session(&self, session: &SessionId, owner: SessionOwner<'_>) -> bool {
        let has_owner = || match owner {
            // It will be an owner's. Whose is checked when it begins.
            SessionOwner::Absent => !self.owners.is_empty(),
            SessionOwner::Unowned => false,
            SessionOwner::Of(owner) => self.owners.contains(owner.as_str()),
        };
        let is_only = |only: &SessionId| only == session || root_in_id(session.as_str()) == Some(only.as_str());
        self.only_session.as_ref().is_none_or(is_only) && (self.names_session(session) || has_owner())
    }

    /// Returns whether the rights cover a session of any owner, by its id. A session covers the branches that the server
    /// named after it.
    #[must_use]
    pub fn names_session(&self, session: &SessionId) -> bool {
        let id = session.as_str();
        self.sessions.contains(id) || root_in_id(id).is_some_and(|root| self.sessions.contains(root))
    }

    /// Returns whether the rights cover a run: by its id, or by the session that it belongs to. `owner` is the owner of that
    /// session, or the run's own, if it has no session.
    ///
    /// Rights to all sessions cover every run.
    #[must_use]
    pub fn has_run(&self, run: &RunId, session: Option<&SessionId>, owner: Option<&OwnerId>) -> bool {
        let by_session = || match session {
            Some(session) => self.reaches_session(session, SessionOwner::of(owner)),
            None if self.only_session.is_some() => false,
            None => self.sessions == Scope::All || owner.is_some_and(|owner| self.owners.contains(owner.as_str())),
        };
        self.only_run.as_ref().is_none_or(|only_run| only_run == run) && (self.runs.contains(run.as_str()) || by_session())
    }

    /// Returns whether the rights cover a log. `session` is the session of a run, `owner` whose the log is.
    #[must_use]
    pub fn has_log(&self, log: &LogId, session: Option<&SessionId>, owner: Option<&OwnerId>) -> bool {
        match log {
            LogId::Run(run) => self.has_run(run, session, owner),
            LogId::Session(session) => self.has_session(session, SessionOwner::of(owner)),
        }
    }

    /// Returns whether the rights permit reading a log.
    #[must_use]
    pub fn can_read(&self, log: &LogId, session: Option<&SessionId>, owner: Option<&OwnerId>) -> bool {
        self.can(Verb::Read) && self.has_log(log, session, owner)
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
            && self.owners.covers(&other.owners)
            && other.can.iter().all(|verb| self.can(*verb))
            && (self.only_run.is_none() || self.only_run == other.only_run)
            && (self.only_session.is_none() || self.only_session == other.only_session)
    }

    /// Reduces the rights to reading.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.can = vec![Verb::Read];
        self.agents = Scope::none();
        self
    }

    /// Narrows the audience to this one, if it is wider, and begins nothing for an owner.
    #[must_use]
    pub fn for_audience(mut self, audience: Audience) -> Self {
        self.audience = self.audience.min(audience);
        self.owner = None;
        self
    }

    /// Restricts the rights to one run. It grants nothing that the rights did not cover before.
    #[must_use]
    pub fn restricted_to_run(mut self, run: RunId) -> Self {
        self.only_run = Some(run);
        self
    }

    /// Restricts the rights to one session. It grants nothing that the rights did not cover before.
    #[must_use]
    pub fn restricted_to_session(mut self, session: &SessionId) -> Self {
        self.runs = Scope::none();
        // Named alone where the token names it, so that a server of an earlier version, which ignores what it does not
        // know, allows no more.
        match self.sessions.contains(session.as_str()) {
            true => (self.sessions, self.owners) = (Scope::Listed(vec![session.as_str().into()]), Scope::none()),
            false => self.sessions = Scope::none(),
        }
        self.only_session = Some(session.clone());
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
    #[serde(default)]
    owner: Option<OwnerId>,
    #[serde(default)]
    owners: Vec<Box<str>>,
}

impl RawClaims {
    /// Replaces the rights.
    pub(super) fn set_rights(&mut self, rights: Box<RawValue>) {
        self.proscenium = Some(rights);
    }
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
        if here.owner.as_ref().is_some_and(|owner| owner.as_str().contains('*')) {
            return Err(TokenError::Claim("proscenium.owner: an owner's name has no `*`".into()));
        }
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
                owner: here.owner,
                owners: Scope::parse("owners", here.owners)?,
                only_run: None,
                only_session: None,
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
            assert!(
                !rights.has_session(&session("s"), SessionOwner::Unowned)
                    && !rights.has_run(&run("r"), None, None)
                    && !rights.has_agent("a")
            );
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
        assert!(both.has_run(&run("r1"), None, None) && both.has_run(&run("r2"), Some(&session("s9")), None));
        assert!(both.has_run(&run("r9"), Some(&session("s1")), None));
        assert!(!both.has_run(&run("r9"), None, None) && !both.has_run(&run("r9"), Some(&session("s9")), None));
        assert!(
            both.has_session(&session("s1"), SessionOwner::Unowned) && !both.has_session(&session("s9"), SessionOwner::Unowned)
        );
        let runs = rights(json!({ "runs": ["*"] }));
        assert!(
            runs.has_run(&run("r"), None, None)
                && !runs.has_session(&session("s"), SessionOwner::Unowned)
                && !runs.is_unrestricted()
        );
        let sessions = rights(json!({ "sessions": ["s", "*"] }));
        assert!(
            sessions.has_run(&run("r"), None, None)
                && sessions.has_session(&session("s"), SessionOwner::Unowned)
                && sessions.is_unrestricted()
        );
    }

    #[test]
    fn a_pattern_names_the_ids_that_begin_with_it() {
        let some = rights(json!({ "sessions": ["b", "acme/*", "a"], "runs": ["r*"] }));
        for (id, is_named) in
            [("acme/", true), ("acme/x", true), ("acme", false), ("a", true), ("b", true), ("bb", false), ("", false)]
        {
            assert_eq!(some.sessions.contains(id), is_named, "{id}");
        }
        assert_eq!(some.sessions.to_list(), ["a", "b", "acme/*"]);
        for (wide, narrow, covers) in [
            (json!(["a*"]), json!(["ab", "abc*"]), true),
            (json!(["ab*"]), json!(["a*"]), false),
            (json!(["ab"]), json!(["ab*"]), false),
            (json!(["*"]), json!(["ab*"]), true),
            (json!(["a*"]), json!(["*"]), false),
        ] {
            let [wide, narrow] = [wide, narrow].map(|sessions| rights(json!({ "sessions": sessions })));
            assert_eq!(wide.covers(&narrow), covers, "{wide:?} {narrow:?}");
        }
    }

    #[test]
    fn an_owner_s_sessions_are_covered_and_so_is_one_that_its_holder_may_begin() {
        let (ours, theirs) = (OwnerId::new("team/ours").unwrap(), OwnerId::new("theirs").unwrap());
        let (s, r) = (session("s"), run("r"));
        let reader = rights(json!({ "owners": ["team/*"] }));
        assert!(reader.has_session(&s, SessionOwner::Of(&ours)) && reader.has_run(&r, Some(&s), Some(&ours)));
        assert!(
            reader.has_run(&r, None, Some(&ours)) && !reader.has_run(&r, None, Some(&theirs)) && !reader.has_run(&r, None, None)
        );
        for owner in [SessionOwner::Of(&theirs), SessionOwner::Unowned] {
            assert!(!reader.has_session(&s, owner), "{owner:?}");
        }
        assert!(reader.has_session(&s, SessionOwner::Absent));
        let begins = rights(json!({ "owner": "team/ours", "owners": ["team/*"], "sessions": ["named"] }));
        assert!(begins.has_session(&s, SessionOwner::Absent) && begins.covers(&reader) && !reader.covers(&begins));
        assert!(!rights(json!({ "owner": "team/ours" })).has_session(&s, SessionOwner::Absent));
        let of_named = begins.clone().restricted_to_session(&session("named"));
        assert!(
            of_named.has_session(&session("named"), SessionOwner::Unowned) && !of_named.has_session(&s, SessionOwner::Of(&ours))
        );
        let of_owned = begins.clone().restricted_to_session(&s);
        assert!(of_owned.has_session(&s, SessionOwner::Of(&ours)) && !of_owned.has_session(&s, SessionOwner::Of(&theirs)));
        assert!(!of_owned.has_session(&session("t"), SessionOwner::Of(&ours)) && !of_owned.has_run(&r, None, Some(&ours)));
        assert!(begins.covers(&of_named) && begins.covers(&of_owned) && !of_owned.covers(&begins));
        assert!(!begins.clone().restricted_to_run(r).has_session(&s, SessionOwner::Absent));
    }

    #[test]
    fn restricted_rights_never_exceed_the_original() {
        let all = rights(json!({ "sessions": ["*"], "agents": ["a"], "can": ["admin"], "audience": "internal" }));
        let included = Verb::ALL.iter().filter(|verb| all.can(**verb)).count();
        assert!(included == Verb::ALL.len() - 1 && !all.can(Verb::Impersonate), "admin includes every other verb");
        let read = all.clone().read_only();
        assert!(read.can(Verb::Read) && !read.can(Verb::Publish) && !read.can(Verb::Admin) && !read.has_agent("a"));
        let one = read.clone().restricted_to_run(run("r"));
        assert!(
            one.has_run(&run("r"), None, None)
                && !one.has_run(&run("q"), None, None)
                && !one.has_session(&session("s"), SessionOwner::Unowned)
        );
        assert!(!one.is_unrestricted());
        let of_session = read.clone().restricted_to_session(&session("s"));
        assert!(of_session.has_run(&run("q"), Some(&session("s")), None) && !of_session.has_run(&run("q"), None, None));
        let foreign = rights(json!({ "sessions": ["s"] })).restricted_to_run(run("r"));
        assert!(foreign.has_run(&run("r"), Some(&session("s")), None) && !foreign.has_run(&run("r"), Some(&session("t")), None));
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
