//! The router: the handler of each operation of the contract, and the layers around them.

use super::App;
use super::access::{authorization, origin, sign_in, tickets};
use super::api::{
    attention, audit, controls, decisions, erase, export, facts, hydrate, keys, links, lists, me, ops, push, session_list,
    session_updates, sessions, settle, webhooks, workbench,
};
use super::clients::{ag_ui, ai_sdk, copilotkit, view};
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
    ("withdrawControl", |method| on(method, controls::withdraw)),
    ("claimControls", |method| on(method, controls::claim)),
    ("ackControl", |method| on(method, controls::ack)),
    ("nackControl", |method| on(method, controls::nack)),
    ("streamRun", |method| on(method, view::get)),
    ("listSessions", |method| on(method, session_list::sessions)),
    ("getSession", |method| on(method, sessions::session)),
    ("updateSession", |method| on(method, session_updates::patch)),
    ("markSession", |method| on(method, session_updates::put_marks)),
    ("getWindow", |method| on(method, sessions::window)),
    ("getTimeline", |method| on(method, sessions::timeline)),
    ("getSessionEvents", |method| on(method, sessions::events)),
    ("getSessionActivities", |method| on(method, sessions::activities)),
    ("streamSession", |method| on(method, view::get)),
    ("streamRuns", |method| on(method, view::get)),
    ("connect", |method| on(method, socket::get)),
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
    ("exportAudit", |method| on(method, audit::export)),
    ("getMe", |method| on(method, me::me)),
    ("listKeys", |method| on(method, keys::keys)),
    ("getSignIn", |method| on(method, sign_in::get)),
    ("makeTicket", |method| on(method, tickets::post)),
    ("makeLink", |method| on(method, links::post)),
    ("listLinks", |method| on(method, links::list)),
    ("revokeLink", |method| on(method, links::revoke)),
    ("openLink", |method| on(method, links::exchange)),
    ("listRuns", |method| on(method, hydrate::runs)),
    ("getRun", |method| on(method, hydrate::run)),
    ("eraseRun", |method| on(method, erase::run)),
    ("eraseSession", |method| on(method, erase::session)),
    ("eraseOwner", |method| on(method, erase::owner)),
    ("getEvents", |method| on(method, hydrate::events)),
    ("getActivities", |method| on(method, hydrate::activities)),
    ("exportSession", |method| on(method, export::session)),
    ("exportRun", |method| on(method, export::run)),
    ("getBlob", |method| on(method, hydrate::blob)),
    ("agUiRun", |method| on(method, ag_ui::post)),
    ("agUiGet", |method| on(method, ag_ui::get)),
    ("copilotInfo", |method| on(method, copilotkit::info)),
    ("copilotRun", |method| on(method, copilotkit::run)),
    ("copilotConnect", |method| on(method, copilotkit::connect)),
    ("copilotStop", |method| on(method, copilotkit::stop)),
    ("copilotCall", |method| on(method, copilotkit::call)),
    ("aiSdkSubmit", |method| on(method, ai_sdk::post)),
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
