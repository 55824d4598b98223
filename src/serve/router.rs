//! The router: the handler of each operation of the contract, and the layers around them.

use super::App;
use super::access::{authorization, origin, sign_in, tickets};
use super::acp;
use super::api::{
    attachments, attention, audit, backup, branches, controls, decisions, documentation, durable, erase, export, facts, feedback,
    holds, hydrate, keys, links, lists, me, ops, owner_export, push, retention, run_list, session_list, session_updates,
    sessions, settle, stats, webhooks, workbench,
};
use super::clients::{a2a, ag_ui, ai_sdk, copilot_threads, copilotkit, view};
use super::cluster;
use super::contract::access_rule::AccessRule;
use super::contract::openapi;
use super::contract::operations::OPERATIONS;
use super::socket;
use super::telemetry::{meters, trace};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};
use http::Request;
use std::sync::Arc;

/// Routes a method of an address to its handler.
type Route = fn(MethodFilter) -> MethodRouter<Arc<App>>;

/// The handler of each operation, by the operation's id.
const HANDLERS: &[(&str, Route)] = &[
    ("publishToRun", |method| on(method, facts::post)),
    ("publishToSession", |method| on(method, facts::post)),
    ("settleRun", |method| on(method, settle::post)),
    ("listAttention", |method| on(method, attention::attention)),
    ("streamLists", |method| on(method, lists::get)),
    ("controlRun", |method| on(method, controls::post)),
    ("listRunControls", |method| on(method, controls::list)),
    ("listRunDecisions", |method| on(method, decisions::of_run)),
    ("listSessionDecisions", |method| on(method, decisions::of_session)),
    ("controlSession", |method| on(method, controls::post)),
    ("listSessionControls", |method| on(method, controls::list)),
    ("giveFeedback", |method| on(method, feedback::post)),
    ("listFeedback", |method| on(method, feedback::list)),
    ("withdrawControl", |method| on(method, controls::withdraw)),
    ("claimControls", |method| on(method, controls::claim)),
    ("ackControl", |method| on(method, controls::ack)),
    ("nackControl", |method| on(method, controls::nack)),
    ("streamRun", |method| on(method, view::get)),
    ("listSessions", |method| on(method, session_list::sessions)),
    ("getSession", |method| on(method, sessions::session)),
    ("updateSession", |method| on(method, session_updates::patch)),
    ("markSession", |method| on(method, session_updates::put_marks)),
    ("attach", |method| on(method, attachments::post)),
    ("branch", |method| on(method, branches::post)),
    ("getWindow", |method| on(method, sessions::window)),
    ("getTimeline", |method| on(method, sessions::timeline)),
    ("getSessionEvents", |method| on(method, sessions::events)),
    ("getSessionActivities", |method| on(method, sessions::activities)),
    ("streamSession", |method| on(method, view::get)),
    ("readRun", |method| on(method, durable::get)),
    ("headRun", |method| on(method, durable::head)),
    ("readSession", |method| on(method, durable::get)),
    ("headSession", |method| on(method, durable::head)),
    ("streamRuns", |method| on(method, view::get)),
    ("connect", |method| on(method, socket::get)),
    ("connectAcp", |method| on(method, acp::get)),
    ("listWebhooks", |method| on(method, webhooks::list)),
    ("makeWebhook", |method| on(method, webhooks::post)),
    ("removeWebhook", |method| on(method, webhooks::delete)),
    ("testWebhook", |method| on(method, webhooks::test)),
    ("redeliver", |method| on(method, webhooks::redeliver)),
    ("listDeliveries", |method| on(method, webhooks::deliveries)),
    ("getPush", |method| on(method, push::get)),
    ("subscribeDevice", |method| on(method, push::put)),
    ("unsubscribeDevice", |method| on(method, push::delete)),
    ("listAudit", |method| on(method, audit::list)),
    ("makeBackup", |method| on(method, backup::post)),
    ("exportAudit", |method| on(method, audit::export)),
    ("getMe", |method| on(method, me::me)),
    ("listKeys", |method| on(method, keys::keys)),
    ("getSignIn", |method| on(method, sign_in::get)),
    ("makeTicket", |method| on(method, tickets::post)),
    ("makeLink", |method| on(method, links::post)),
    ("listLinks", |method| on(method, links::list)),
    ("revokeLink", |method| on(method, links::revoke)),
    ("openLink", |method| on(method, links::exchange)),
    ("listRuns", |method| on(method, run_list::runs)),
    ("getStats", |method| on(method, stats::stats)),
    ("getRun", |method| on(method, hydrate::run)),
    ("eraseRun", |method| on(method, erase::run)),
    ("eraseSession", |method| on(method, erase::session)),
    ("eraseOwner", |method| on(method, erase::owner)),
    ("exportOwner", |method| on(method, owner_export::get)),
    ("holdSession", |method| on(method, holds::put_on_session)),
    ("liftSessionHold", |method| on(method, holds::lift_of_session)),
    ("holdOwner", |method| on(method, holds::put_on_owner)),
    ("liftOwnerHold", |method| on(method, holds::lift_of_owner)),
    ("listHolds", |method| on(method, holds::list)),
    ("dryRunRetention", |method| on(method, retention::dry_run)),
    ("getEvents", |method| on(method, hydrate::events)),
    ("getActivities", |method| on(method, hydrate::activities)),
    ("exportSession", |method| on(method, export::session)),
    ("exportRun", |method| on(method, export::run)),
    ("getBlob", |method| on(method, hydrate::blob)),
    ("agUiRun", |method| on(method, ag_ui::post)),
    ("agUiGet", |method| on(method, ag_ui::get)),
    ("a2aCard", |method| on(method, a2a::card)),
    ("a2aCall", |method| on(method, a2a::call)),
    ("copilotInfo", |method| on(method, copilotkit::info)),
    ("copilotRun", |method| on(method, copilotkit::run)),
    ("copilotConnect", |method| on(method, copilotkit::connect)),
    ("copilotStop", |method| on(method, copilotkit::stop)),
    ("copilotCall", |method| on(method, copilotkit::call)),
    ("copilotThreads", |method| on(method, copilot_threads::list)),
    ("copilotClear", |method| on(method, copilot_threads::clear)),
    ("copilotSubscribe", |method| on(method, copilot_threads::subscribe)),
    ("copilotChange", |method| on(method, copilot_threads::change)),
    ("copilotDelete", |method| on(method, copilot_threads::delete)),
    ("copilotArchive", |method| on(method, copilot_threads::archive)),
    ("copilotMessages", |method| on(method, copilot_threads::messages)),
    ("copilotEvents", |method| on(method, copilot_threads::events)),
    ("copilotState", |method| on(method, copilot_threads::state)),
    ("aiSdkSubmit", |method| on(method, ai_sdk::post)),
    ("aiSdkChats", |method| on(method, ai_sdk::chats)),
    ("aiSdkResume", |method| on(method, ai_sdk::stream)),
    ("aiSdkChat", |method| on(method, ai_sdk::chat)),
    ("aiSdkStop", |method| on(method, ai_sdk::stop)),
    ("getHealth", |method| on(method, ops::health)),
    ("getReadiness", |method| on(method, ops::ready)),
    ("getMetrics", |method| on(method, meters::get)),
    ("getCluster", |method| on(method, cluster::get)),
    ("getDescription", |method| on(method, openapi::get)),
    ("getSchema", |method| on(method, ops::schema)),
    ("getPage", |method| on(method, workbench::index)),
    ("getAsset", |method| on(method, workbench::asset)),
    ("getPushWorker", |method| on(method, workbench::push_worker)),
    ("getElements", |method| on(method, workbench::elements)),
    ("getDocumentationStart", |method| on(method, documentation::page)),
    ("getDocumentation", |method| on(method, documentation::page)),
    ("getDocumentationPage", |method| on(method, documentation::page)),
    ("getLlmsText", |method| on(method, documentation::llms)),
];

/// The router of every address, with the fallbacks.
pub fn router(app: Arc<App>) -> Router {
    let forwards = app.controls.user_headers.names().next().is_some();
    let routes = OPERATIONS.iter().fold(Router::new(), |router, operation| {
        let filter = MethodFilter::try_from(operation.method.clone()).expect("axum supports the method");
        let route = handler_of(operation.id).expect("every operation has a handler")(filter);
        let route = match forwards {
            true => route.route_layer(from_fn_with_state(app.clone(), keep_user_headers)),
            false => route,
        };
        let route = match operation.access_rule {
            AccessRule::Public | AccessRule::InBand => route,
            rule => route.route_layer(from_fn_with_state((app.clone(), rule), authorization::authorize_layer)),
        };
        let route = match app.cluster {
            Some(_) => route.route_layer(from_fn_with_state((app.clone(), cluster::is_for_leader(operation)), cluster::layer)),
            None => route,
        };
        router.route(operation.path, route)
    });
    routes
        .fallback(ops::no_such_address)
        .method_not_allowed_fallback(ops::method_not_allowed)
        .layer(from_fn_with_state(app.clone(), origin::check))
        .layer(tower_http::catch_panic::CatchPanicLayer::custom(ops::panicked))
        .layer(from_fn_with_state(app.clone(), trace::layer))
        .with_state(app)
}

/// The middleware for requests whose controls reach an agent with headers of the user.
async fn keep_user_headers(State(app): State<Arc<App>>, request: Request<Body>, next: Next) -> Response {
    let headers = request.headers().clone();
    app.controls.user_headers.scope(&headers, next.run(request)).await
}

fn handler_of(id: &str) -> Option<Route> {
    HANDLERS.iter().find(|(of, _)| *of == id).map(|(_, route)| *route)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_has_one_handler_and_each_handler_one_operation() {
        let sorted = |mut ids: Vec<&'static str>| {
            ids.sort_unstable();
            ids
        };
        let operations = sorted(OPERATIONS.iter().map(|operation| operation.id).collect());
        assert_eq!(sorted(HANDLERS.iter().map(|(id, _)| *id).collect()), operations);
    }
}
