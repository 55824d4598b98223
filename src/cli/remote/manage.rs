//! `proscenium links` and `webhooks`: what others outside may see, and what they are sent.

use super::table::Table;
use super::{Api, Output, age, text};
use crate::cli::{CliError, Endpoint, encoded};
use proscenium::waits::parse_duration;
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;

/// Links, webhooks and deliveries that a list prints: more than a server lets exist or remembers.
const LISTED_MAX: usize = 65_536;

/// The arguments of `links`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  proscenium links
  proscenium links add --run my-run --for 7d
  proscenium links remove lnk_1")]
pub struct Links {
    #[command(subcommand)]
    command: Option<LinksCommand>,
    #[command(flatten)]
    common: Common,
}

/// What each of these commands takes, before or after a subcommand's name.
#[derive(Debug, Clone, clap::Args)]
struct Common {
    #[command(flatten)]
    server: Endpoint,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum LinksCommand {
    /// Make a link to one run or one session, and print its address.
    Add {
        /// The run.
        #[arg(long, required_unless_present = "session", conflicts_with = "session")]
        run: Option<String>,
        /// The session, with its runs, instead of a run.
        #[arg(long)]
        session: Option<String>,
        /// How long the link lasts, at most 90 days: 90s, 15m, 24h, 30d.
        #[arg(long = "for", value_name = "TIME", default_value = "7d", value_parser = parse_duration)]
        lasts: Duration,
        /// The sequence of the run after which the link shows nothing.
        #[arg(long, requires = "run")]
        at: Option<u64>,
        /// The link may decide one action, once, unless its risk is high or unstated.
        #[arg(long)]
        control: bool,
    },
    /// End a link. What it has open ends within a second.
    Remove {
        /// The link's id.
        id: String,
    },
}

/// Lists, makes or ends share links.
///
/// # Errors
/// [`CliError`] if the server does not answer, or refuses.
pub async fn links(args: Links) -> Result<(), CliError> {
    let Common { server, output } = args.common;
    let api = Api::new(&server)?;
    match args.command {
        None => {
            let listed = api.list("/v1/links", &[], "links", LISTED_MAX).await?;
            let row = |link: &Value| {
                let of_run = text(link, "runId");
                let to = if of_run.is_empty() { format!("session {}", text(link, "sessionId")) } else { format!("run {of_run}") };
                let can = link["can"].as_array().map_or(&[][..], Vec::as_slice);
                let can: Vec<_> = can.iter().filter_map(Value::as_str).collect();
                [text(link, "id"), to, can.join(", "), link["uses"].to_string(), text(link, "until")]
            };
            print_list(output, &listed, "links", ["LINK", "TO", "CAN", "USES", "UNTIL"], row, "No open links")
        }
        Some(LinksCommand::Add { run, session, lasts, at, control }) => {
            let until = jiff::SignedDuration::try_from(lasts).ok();
            let until = until.and_then(|lasts| (proscenium::environment::Environment::SYSTEM.now)().checked_add(lasts).ok());
            let until = until.ok_or_else(|| CliError::Usage("--for is beyond the end of time".into()))?;
            let mut body = json!({ "until": until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string() });
            for (member, value) in [
                ("runId", run.map(Value::from)),
                ("sessionId", session.map(Value::from)),
                ("at", at.map(Value::from)),
                ("can", control.then(|| json!(["control"]))),
            ] {
                if let Some(value) = value {
                    body[member] = value;
                }
            }
            let made = api.post("/v1/links", &body).await?;
            output.print(&made, |out| writeln!(out, "{}", text(&made, "url")))
        }
        Some(LinksCommand::Remove { id }) => {
            api.request(Method::DELETE, &format!("/v1/links/{}", encoded(&id)), None).await?;
            output.print(&json!({ "id": id, "removed": true }), |out| writeln!(out, "Link {id} has ended."))
        }
    }
}

/// The arguments of `webhooks`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  proscenium webhooks
  proscenium webhooks add https://example.com/hook --event run.waiting
  proscenium webhooks test wh_1
  proscenium webhooks deliveries wh_1
  proscenium webhooks redeliver wh_1 msg_2

All of these need a token with the verb `admin`.")]
pub struct Webhooks {
    #[command(subcommand)]
    command: Option<WebhooksCommand>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum WebhooksCommand {
    /// Make a webhook, and print its secret.
    Add {
        /// Where the messages go.
        #[arg(value_name = "URL")]
        receiver: String,
        /// A type of event, such as run.waiting; repeat it for several. By default all.
        #[arg(long = "event", value_name = "TYPE")]
        events: Vec<String>,
    },
    /// Remove a webhook, and what waits for it.
    Remove {
        /// The webhook's id.
        id: String,
    },
    /// Send a message of no event now.
    Test {
        /// The webhook's id.
        id: String,
    },
    /// List the deliveries that wait, and the last that do not.
    Deliveries {
        /// The webhook's id.
        id: String,
    },
    /// Try a closed delivery again.
    Redeliver {
        /// The webhook's id.
        id: String,
        /// The delivery's id.
        delivery: String,
    },
}

/// Lists, makes, tests or removes webhooks.
///
/// # Errors
/// [`CliError`] if the server does not answer, or refuses; also if a test is not delivered.
pub async fn webhooks(args: Webhooks) -> Result<(), CliError> {
    let Common { server, output } = args.common;
    let api = Api::new(&server)?;
    let path = |id: &str, resource: &str| format!("/v1/webhooks/{}{resource}", encoded(id));
    match args.command {
        None => {
            let listed = api.list("/v1/webhooks", &[], "webhooks", LISTED_MAX).await?;
            let row = |webhook: &Value| {
                let events = webhook["events"].as_array().map_or(&[][..], Vec::as_slice);
                let events: Vec<_> = events.iter().filter_map(Value::as_str).collect();
                let state = if webhook["disabledAt"].is_string() { "disabled" } else { "enabled" };
                [text(webhook, "id"), state.into(), text(webhook, "url"), text(webhook, "audience"), events.join(", ")]
            };
            print_list(output, &listed, "webhooks", ["WEBHOOK", "STATE", "URL", "AUDIENCE", "EVENTS"], row, "No webhooks")
        }
        Some(WebhooksCommand::Add { receiver, events }) => {
            let mut body = json!({ "url": receiver });
            if !events.is_empty() {
                body["events"] = events.into();
            }
            let made = api.post("/v1/webhooks", &body).await?;
            output.print(&made, |out| {
                let secrets = made["secrets"].as_array().map_or(&[][..], Vec::as_slice);
                writeln!(out, "Webhook {} is made. The server does not show its secret again:", text(&made, "id"))?;
                secrets.iter().filter_map(Value::as_str).try_for_each(|secret| writeln!(out, "{secret}"))
            })
        }
        Some(WebhooksCommand::Remove { id }) => {
            api.request(Method::DELETE, &path(&id, ""), None).await?;
            output.print(&json!({ "id": id, "removed": true }), |out| writeln!(out, "Webhook {id} is removed."))
        }
        Some(WebhooksCommand::Test { id }) => {
            let tested = api.post(&path(&id, "/test"), &Value::Null).await?;
            let is_delivered = tested["delivered"].as_bool() == Some(true);
            if is_delivered || output.json {
                output.print(&tested, |out| writeln!(out, "The receiver took the message."))?;
            }
            let why = || format!("the receiver of webhook {id} did not take the message: {}", last_attempt(&tested));
            if is_delivered { Ok(()) } else { Err(CliError::Usage(why())) }
        }
        Some(WebhooksCommand::Deliveries { id }) => {
            let listed = api.list(&path(&id, "/deliveries"), &[], "deliveries", LISTED_MAX).await?;
            let row = |delivery: &Value| {
                let attempts = delivery["attempts"].to_string();
                let (status, event) = (text(delivery, "status"), text(delivery, "type"));
                [text(delivery, "id"), status, event, age(delivery, "createdAt"), attempts, last_attempt(delivery)]
            };
            let heading = ["DELIVERY", "STATUS", "EVENT", "AGE", "ATTEMPTS", "LAST"];
            print_list(output, &listed, "deliveries", heading, row, "No deliveries yet")
        }
        Some(WebhooksCommand::Redeliver { id, delivery }) => {
            let opened = api.post(&path(&id, "/redeliver"), &json!({ "deliveryId": delivery })).await?;
            output.print(&opened, |out| writeln!(out, "Delivery {delivery} is tried again."))
        }
    }
}

/// The outcome of the last attempt of a delivery, in a word.
fn last_attempt(of: &Value) -> String {
    let last = &of["last"];
    let status = last["status"].as_u64().map_or_else(String::new, |status| format!("status {status}"));
    [text(last, "error"), status].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// Prints a list, or what an empty one says.
fn print_list<const N: usize>(
    output: Output,
    listed: &Value,
    member: &str,
    heading: [&'static str; N],
    row: impl Fn(&Value) -> [String; N],
    empty: &str,
) -> Result<(), CliError> {
    let items = listed[member].as_array().map_or(&[][..], Vec::as_slice);
    output.print(listed, |out| match items {
        [] => writeln!(out, "{empty}"),
        _ => Table::new(heading, items.iter().map(row)).print(out),
    })
}
