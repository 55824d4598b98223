//! A connection on a node that follows: the leader's, passed on in both directions.

use super::connection::Socket;
use crate::serve::App;
use crate::serve::access::authorization::Principal;
use crate::serve::cluster::Cluster;
use crate::serve::socket::ticket_of;
use futures_util::{SinkExt, StreamExt};
use http::Uri;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};

/// Passes on messages until one end closes, or the leader no longer leads.
pub(super) async fn relay(app: &App, cluster: &Cluster, principal: &Principal, uri: &Uri, mut client: Socket) {
    let opened = async {
        let ticket = ticket_of(app, principal)?;
        let given: Vec<(String, String)> = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes())
            .into_owned()
            .filter(|(name, _)| name != "ticket")
            .collect();
        let mut query: Vec<(&str, &str)> = given.iter().map(|(name, value)| (&**name, &**value)).collect();
        query.extend(ticket.as_deref().map(|ticket| ("ticket", ticket)));
        cluster.open_socket("/acp", &query).await
    };
    let (leader, upgraded) = match opened.await {
        Ok(opened) => opened,
        Err(problem) => {
            tracing::debug!(reason = problem.detail, "an ACP connection cannot reach the leader");
            let close = CloseFrame { code: CloseCode::Again, reason: "the cluster has no leader; connect again".into() };
            let _ = client.send(Message::Close(Some(close))).await;
            return;
        }
    };
    let server = WebSocketStream::from_raw_socket(upgraded, Role::Client, None).await;
    let ((to_client, from_client), (to_server, from_server)) = (client.split(), server.split());
    tokio::select! {
        _ = from_client.forward(to_server) => {}
        _ = from_server.forward(to_client) => {}
        () = cluster.membership.loses_leader(&leader) => {}
    }
}
