//! The dispatch of controls: claims the controls of all agents, and gives each to what handles it.
//!
//! It decides nothing. It rejects a control without a receiver, with a reason, so that the viewer sees it.

use super::Context;
use super::changes::teammate_of;
use super::control_router::Control;
use std::sync::Arc;
use std::time::Duration;

/// The delay before the next claim after a failed one.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Adds the agent of the task that the control names.
fn with_agent_of_task(mut control: Control) -> Control {
    if let Some((agent, _)) = teammate_of(&control) {
        control.0["agentId"] = agent.into();
    }
    control
}

impl Context {
    /// Claims and handles the controls of an agent until the demo ends.
    pub async fn serve_agent(self: Arc<Self>, agent: &'static str) {
        loop {
            match self.api.claim(agent).await {
                Ok(controls) => {
                    for control in controls {
                        tokio::spawn(self.clone().handle(Control(control)));
                    }
                }
                Err(_) => tokio::time::sleep(RETRY_INTERVAL).await,
            }
        }
    }

    /// Handles one control, or rejects it with a reason.
    async fn handle(self: Arc<Self>, control: Control) {
        let no_action = "no run of the demo waits for this answer; a recording continues as recorded";
        let rejected = match control.text("control").unwrap_or_default() {
            "approve" | "reject" | "answer" => self.router.route_to_action(control).map_err(|control| (control, no_action)),
            "edit" if control.text("actionId").is_some() => {
                self.router.route_to_action(control).map_err(|control| (control, no_action))
            }
            "interrupt" | "steer" => {
                self.router.route_to_run(control).map_err(|control| (control, "the demo plays no such turn at the moment"))
            }
            "stop" | "close" => match self.router.route_to_run(with_agent_of_task(control)) {
                Ok(()) => return,
                Err(control) => return self.handle_change(control).await,
            },
            "send" | "continue_agent" => return self.reply(control).await,
            "queue" => return self.reply_later(control).await,
            "assign" => return self.assign(control).await,
            "export" => return self.export(control).await,
            _ => return self.handle_change(control).await,
        };
        if let Err((control, reason)) = rejected {
            self.api.nack(&control.0, reason).await;
        }
    }
}
