//! What a token says: who holds it, for how long, and what that person or program may.
//!
//! Read strictly. A member that is missing gives nothing; one that is not understood refuses the token, for it may have been
//! meant to take something away.

use super::Refusal;
use crate::model::{Audience, RunId, SessionId};
use serde::Deserialize;
use serde_json::Number;
use serde_json::value::RawValue;

/// How far ahead `nbf` may lie, in seconds: the clock of whoever makes tokens may be ahead of ours. What has expired has
/// expired, by our clock.
pub const CLOCK_SKEW: u64 = 30;
/// A later expiry is as good as none: the last second of the year 9999, in seconds since 1970.
const EXPIRES_MAX: u64 = 253_402_300_799;

/// What somebody may want to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// See, live and at rest.
    Read,
    /// Send facts, and take what readers ask of the runtime.
    Publish,
    /// Ask something of a runtime; settle a run.
    Control,
    /// Erase; look into the server. Whoever may this may the others, too.
    Admin,
}

impl Verb {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Read, Self::Publish, Self::Control, Self::Admin];

    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Publish => "publish",
            Self::Control => "control",
            Self::Admin => "admin",
        }
    }
}

/// Of which things a token speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    All,
    /// Sorted.
    These(Vec<Box<str>>),
}

impl Scope {
    fn of(member: &'static str, mut ids: Vec<Box<str>>) -> Result<Self, Refusal> {
        if ids.iter().any(|id| &**id == "*") {
            return Ok(Self::All);
        }
        // All ids obey one rule.
        if let Some(error) = ids.iter().find_map(|id| RunId::new(id).err()) {
            return Err(Refusal::Claim(format!("proscenium.{member}: {error}")));
        }
        ids.sort_unstable();
        Ok(Self::These(ids))
    }

    /// Whether it has this id.
    #[must_use]
    pub fn has(&self, id: &str) -> bool {
        match self {
            Self::All => true,
            Self::These(ids) => ids.binary_search_by(|known| (**known).cmp(id)).is_ok(),
        }
    }

    /// Whether it has everything that another one has.
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) => true,
            (Self::These(_), Self::All) => false,
            (Self::These(_), Self::These(ids)) => ids.iter().all(|id| self.has(id)),
        }
    }
}

/// What the holder of a token may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    pub audience: Audience,
    pub sessions: Scope,
    runs: Scope,
    agents: Scope,
    can: Vec<Verb>,
    /// The only run, where a ticket was made for one: the lists above then only say whether it may be seen.
    only: Option<RunId>,
}

impl Rights {
    /// Whether the verb is among them.
    #[must_use]
    pub fn can(&self, verb: Verb) -> bool {
        self.can.contains(&verb) || self.can.contains(&Verb::Admin)
    }

    /// Whether there is no session and no run that they leave out.
    #[must_use]
    pub const fn has_everything(&self) -> bool {
        matches!(self.sessions, Scope::All) && self.only.is_none()
    }

    /// Whether they have a session, with all of its runs.
    #[must_use]
    pub fn has_session(&self, session: &SessionId) -> bool {
        self.only.is_none() && self.sessions.has(session.as_str())
    }

    /// Whether they have a run, which belongs to this session, if to any: by its own name, or by its session. Whoever has every
    /// session has every run.
    #[must_use]
    pub fn has_run(&self, run: &RunId, session: Option<&SessionId>) -> bool {
        let by_session = || match session {
            Some(session) => self.sessions.has(session.as_str()),
            None => self.sessions == Scope::All,
        };
        self.only.as_ref().is_none_or(|only| only == run) && (self.runs.has(run.as_str()) || by_session())
    }

    /// Whether they have an agent.
    #[must_use]
    pub fn has_agent(&self, agent: &str) -> bool {
        self.agents.has(agent)
    }

    /// Whether whoever has these lacks nothing of those.
    #[must_use]
    pub fn cover(&self, other: &Self) -> bool {
        self.audience >= other.audience
            && self.sessions.covers(&other.sessions)
            && (self.runs.covers(&other.runs) || self.sessions == Scope::All)
            && self.agents.covers(&other.agents)
            && other.can.iter().all(|verb| self.can(*verb))
            && (self.only.is_none() || self.only == other.only)
    }

    /// The same, to read and nothing else.
    #[must_use]
    pub fn to_read(mut self) -> Self {
        self.can = vec![Verb::Read];
        self.agents = Scope::These(Vec::new());
        self
    }

    /// The same for one run, if they have it.
    #[must_use]
    pub fn for_run(mut self, run: RunId) -> Self {
        self.only = Some(run);
        self
    }

    /// The same for one session that they have.
    #[must_use]
    pub fn for_session(mut self, session: &SessionId) -> Self {
        debug_assert!(self.has_session(session), "nothing is added");
        self.sessions = Scope::These(vec![session.as_str().into()]);
        self.runs = Scope::These(Vec::new());
        self
    }
}

/// A token's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    pub subject: Box<str>,
    /// The token's own id.
    pub id: Option<Box<str>>,
    /// In seconds since 1970: from then on it is no token any more.
    pub expires: u64,
    /// Until then it is none yet.
    pub not_before: u64,
    issuer: Option<Box<str>>,
    /// For which services it was made; `None` where it does not say.
    services: Option<Vec<Box<str>>>,
    pub rights: Rights,
}

/// The same as it stands in the token.
#[derive(Deserialize)]
pub(super) struct Said {
    sub: Box<str>,
    exp: Number,
    #[serde(default)]
    nbf: Option<Number>,
    #[serde(default)]
    jti: Option<Box<str>>,
    #[serde(default)]
    iss: Option<Box<str>>,
    #[serde(default)]
    aud: Option<OneOrMore>,
    #[serde(default)]
    proscenium: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SaidHere {
    #[serde(default = "widest")]
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

/// What everybody may see.
const fn widest() -> Audience {
    Audience::User
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(Box<str>),
    More(Vec<Box<str>>),
}

fn seconds(member: &str, number: &Number) -> Result<u64, Refusal> {
    let whole = number.as_u64().or_else(|| number.as_f64().filter(|n| *n >= 0.0).map(|n| n as u64));
    whole.ok_or_else(|| Refusal::Claim(format!("{member} is {number}; it must be seconds since 1970")))
}

impl Claims {
    pub(super) fn of(said: Said) -> Result<Self, Refusal> {
        if said.sub.is_empty() {
            return Err(Refusal::Claim("sub is empty; it must say who this is".into()));
        }
        // Without the claim there is nothing that the token would allow.
        let here = said.proscenium.as_ref().map_or("{}", |here| here.get());
        // An array would pass for the members in their order.
        let here: SaidHere = match here.starts_with('{') {
            true => serde_json::from_str(here).map_err(|error| Refusal::Claim(format!("proscenium: {error}")))?,
            false => return Err(Refusal::Claim("proscenium is no object".into())),
        };
        Ok(Self {
            expires: seconds("exp", &said.exp)?.min(EXPIRES_MAX),
            not_before: said.nbf.map_or(Ok(0), |nbf| seconds("nbf", &nbf))?,
            subject: said.sub,
            id: said.jti,
            issuer: said.iss,
            services: said.aud.map(|aud| match aud {
                OneOrMore::One(name) => vec![name],
                OneOrMore::More(names) => names,
            }),
            rights: Rights {
                audience: here.audience,
                sessions: Scope::of("sessions", here.sessions)?,
                runs: Scope::of("runs", here.runs)?,
                agents: Scope::of("agents", here.agents)?,
                can: here.can,
                only: None,
            },
        })
    }

    /// Whether the token was made for a service of this name, by this issuer, where one is demanded. RFC 7519: whoever is not
    /// among those that `aud` names must refuse the token; one that names nobody is for everybody.
    pub(super) fn are_for(&self, service: &str, issuer: Option<&str>) -> Result<(), Refusal> {
        if self.services.as_ref().is_some_and(|services| !services.iter().any(|name| **name == *service)) {
            return Err(Refusal::OtherService);
        }
        match issuer {
            Some(issuer) if self.issuer.as_deref() != Some(issuer) => Err(Refusal::OtherIssuer),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(claims: Value) -> Result<Claims, String> {
        let said: Said = serde_json::from_value(claims).map_err(|error| error.to_string())?;
        Claims::of(said).map_err(|refusal| refusal.to_string())
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
    fn a_member_that_is_missing_gives_nothing_and_the_audience_is_user() {
        for here in [json!({}), Value::Null] {
            let rights = rights(here);
            assert_eq!(rights.audience, Audience::User);
            assert!(Verb::ALL.iter().all(|verb| !rights.can(*verb)));
            assert!(!rights.has_session(&session("s")) && !rights.has_run(&run("r"), None) && !rights.has_agent("a"));
        }
        assert_eq!(read(json!({ "sub": "s", "exp": 1 })).unwrap().rights, rights(json!({})));
    }

    #[test]
    fn what_is_not_understood_refuses_the_token() {
        let check = |claims: Value, why: &str| {
            let told = read(claims.clone()).unwrap_err();
            assert!(told.contains(why), "{claims}: {told}");
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
        check(here(json!([])), "proscenium is no object");
        check(here(json!(["internal", ["*"]])), "proscenium is no object");
    }

    #[test]
    fn an_expiry_may_have_a_fraction_and_be_far_away() {
        let expires = |exp: Value| read(json!({ "sub": "s", "exp": exp })).unwrap().expires;
        assert_eq!(expires(json!(1_700_000_000)), 1_700_000_000);
        assert_eq!(expires(json!(1_700_000_000.9)), 1_700_000_000);
        assert_eq!(expires(json!(u64::MAX)), EXPIRES_MAX);
        assert_eq!(expires(json!(1e300)), EXPIRES_MAX);
    }

    #[test]
    fn a_run_is_had_by_its_name_or_by_its_session() {
        let both = rights(json!({ "runs": ["r2", "r1"], "sessions": ["s1"] }));
        assert!(both.has_run(&run("r1"), None) && both.has_run(&run("r2"), Some(&session("s9"))));
        assert!(both.has_run(&run("r9"), Some(&session("s1"))));
        assert!(!both.has_run(&run("r9"), None) && !both.has_run(&run("r9"), Some(&session("s9"))));
        assert!(both.has_session(&session("s1")) && !both.has_session(&session("s9")));
        let runs = rights(json!({ "runs": ["*"] }));
        assert!(runs.has_run(&run("r"), None) && !runs.has_session(&session("s")) && !runs.has_everything());
        let sessions = rights(json!({ "sessions": ["s", "*"] }));
        assert!(sessions.has_run(&run("r"), None) && sessions.has_session(&session("s")) && sessions.has_everything());
    }

    #[test]
    fn what_is_made_narrower_never_has_more() {
        let all = rights(json!({ "sessions": ["*"], "agents": ["a"], "can": ["admin"], "audience": "internal" }));
        assert!(Verb::ALL.iter().all(|verb| all.can(*verb)), "an administrator may everything");
        let read = all.clone().to_read();
        assert!(read.can(Verb::Read) && !read.can(Verb::Publish) && !read.can(Verb::Admin) && !read.has_agent("a"));
        let one = read.clone().for_run(run("r"));
        assert!(one.has_run(&run("r"), None) && !one.has_run(&run("q"), None) && !one.has_session(&session("s")));
        assert!(!one.has_everything());
        let of_session = read.clone().for_session(&session("s"));
        assert!(of_session.has_run(&run("q"), Some(&session("s"))) && !of_session.has_run(&run("q"), None));
        let foreign = rights(json!({ "sessions": ["s"] })).for_run(run("r"));
        assert!(foreign.has_run(&run("r"), Some(&session("s"))) && !foreign.has_run(&run("r"), Some(&session("t"))));
        for narrow in [&read, &one, &of_session] {
            assert!(all.cover(narrow) && !narrow.cover(&all));
        }
        assert!(all.cover(&all) && one.cover(&one) && !one.cover(&read));
    }

    #[test]
    fn a_token_for_another_service_or_of_another_issuer_is_refused() {
        let claims = |more: Value| {
            let mut claims = json!({ "sub": "s", "exp": 1 });
            claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            read(claims).unwrap()
        };
        assert_eq!(claims(json!({})).are_for("proscenium", None), Ok(()));
        assert_eq!(claims(json!({ "aud": "proscenium" })).are_for("proscenium", None), Ok(()));
        assert_eq!(claims(json!({ "aud": ["x", "proscenium"] })).are_for("proscenium", None), Ok(()));
        assert_eq!(claims(json!({ "aud": ["x"] })).are_for("proscenium", None), Err(Refusal::OtherService));
        assert_eq!(claims(json!({ "aud": [] })).are_for("proscenium", None), Err(Refusal::OtherService));
        assert_eq!(claims(json!({ "iss": "us" })).are_for("proscenium", Some("us")), Ok(()));
        assert_eq!(claims(json!({})).are_for("proscenium", Some("us")), Err(Refusal::OtherIssuer));
    }
}
