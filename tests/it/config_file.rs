//! `serve --config FILE`, through the binary.

use crate::harness::{Client, Process};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Stdio;

fn write(dir: &Path, text: &str) -> PathBuf {
    let file = dir.join("proscenium.toml");
    std::fs::write(&file, text).unwrap();
    file
}

/// Starts a server with this file that refuses to start; returns its error.
fn refusal(text: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), text);
    let mut command = Process::command(dir.path(), "error");
    let output =
        command.args(["--config", file.to_str().unwrap()]).stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
    assert!(!output.status.success(), "{text}: the server starts");
    String::from_utf8(output.stderr).unwrap().replace(dir.path().to_str().unwrap(), "DIR")
}

#[tokio::test]
async fn a_key_sets_its_flag_a_variable_wins_over_it_and_a_flag_over_both() {
    let dir = tempfile::tempdir().unwrap();
    let secret = "a secret of more than thirty-two bytes";
    std::fs::write(dir.path().join("key"), secret).unwrap();
    let key = dir.path().join("key");
    let file = write(
        dir.path(),
        &format!(
            "body-max = \"1KiB\"\nfact-max = \"2KiB\"\ndepth-max = 5\nagent = [\"one\", \"two\"]\ninsecure = false\n\
             auth-key = {{ file = \"{0}.path\" }}\nauth-audience = {{ env = \"SERVICE_NAME\" }}\n\n\
             [[agents]]\nname = \"helper\"\nprotocol = \"ag-ui\"\nurl = \"http://127.0.0.1:9/agent\"\n",
            key.display()
        ),
    );
    // The path of the key lies in a file of its own.
    std::fs::write(dir.path().join("key.path"), key.to_str().unwrap()).unwrap();
    let flags = ["--config", file.to_str().unwrap(), "--depth-max", "7"];
    let process = Process::start_with_env(dir.path(), &flags, &[("PROSCENIUM_FACT_MAX", "3KiB"), ("SERVICE_NAME", "here")]);
    let claims = |service: &str| {
        let here = json!({ "sessions": ["*"], "agents": ["*"], "can": ["admin"] });
        let claims = json!({ "sub": "u", "aud": service, "exp": jiff::Timestamp::now().as_second() + 600, "proscenium": here });
        proscenium::auth::keys::TokenSigner::from_file(secret.as_bytes()).unwrap().sign(&claims, None).unwrap()
    };
    Client::with_token(process.at, &claims("proscenium")).get("/v1/me").await.problem(401, "unauthenticated");
    let client = Client::with_token(process.at, &claims("here"));
    let publish = async |text: String| client.post("/v1/runs/r/facts", &[("content-type", "application/json")], text).await;
    let long =
        |bytes: usize| json!({ "type": "text.delta", "messageId": "m", "payload": { "text": "x".repeat(bytes) } }).to_string();
    assert_eq!(publish(long(1200)).await.problem(413, "body_too_large")["limit"], 1024, "the file");
    let nested = |levels: usize| format!(r#"{{"type":"x","payload":{}{}}}"#, "[".repeat(levels - 1), "]".repeat(levels - 1));
    publish(nested(7)).await.ok();
    assert_eq!(publish(nested(8)).await.problem(422, "too_deep")["limit"], 7, "the flag");
    let lines = client.post_lines("/v1/runs/r/facts", long(2500) + "\n").await;
    lines.ok();
    let agents = client.get("/copilotkit/info").await.ok();
    let names: Vec<_> = agents["agents"].as_object().unwrap().keys().map(String::as_str).collect();
    assert!(["one", "two", "helper"].iter().all(|name| names.contains(name)), "{names:?}");
    process.kill();
}

#[test]
fn a_file_that_cannot_be_used_is_refused_with_its_name_the_key_and_why() {
    for (text, why) in [
        ("listen_on = \"x\"", "DIR/proscenium.toml: listen_on: there is no such flag of `proscenium serve`"),
        ("config = \"x\"", "DIR/proscenium.toml: config: there is no such flag"),
        ("depth-max = 3", "DIR/proscenium.toml: depth-max: invalid value '3' for '--depth-max <LEVELS>'"),
        ("depth-max = \"deep\"", "DIR/proscenium.toml: depth-max: invalid value 'deep'"),
        ("store = \"cloud\"", "DIR/proscenium.toml: store: invalid value 'cloud'"),
        ("insecure = \"yes\"", "DIR/proscenium.toml: insecure: it must be true or false"),
        ("listen = [\"127.0.0.1:0\", \"127.0.0.1:1\"]", "DIR/proscenium.toml: listen: it takes one value, not a list"),
        ("listen = { env = \"NOT_SET_AT_ALL\" }", "DIR/proscenium.toml: listen: the variable NOT_SET_AT_ALL is not set"),
        ("listen = { file = \"/nowhere/at-all\" }", "DIR/proscenium.toml: listen: /nowhere/at-all: "),
        ("listen = { url = \"x\" }", "DIR/proscenium.toml: listen: it must be a value, {env = "),
        ("listen = 2026-01-01", "DIR/proscenium.toml: listen: it must be text, a number, true or false"),
        ("listen = ", "DIR/proscenium.toml: TOML parse error at line 1"),
        ("[[webhook]]\nurl = \"x\"", "DIR/proscenium.toml: webhook: there is no such flag"),
        ("[[agents]]\nprotocol = \"ag-ui\"", "DIR/proscenium.toml: [[agents]]: missing field `name`"),
        ("[[agents]]\nname = \"a\"\nprotocol = \"ag-ui\"\nurls = \"x\"", "DIR/proscenium.toml: agent a: unknown field `urls`"),
        ("[[agents]]\nname = \"a\"\nprotocol = \"smoke\"", "DIR/proscenium.toml: agent a: the protocol is \"smoke\""),
        // What a flag requires, it requires in the file, too.
        ("tls-cert = \"cert.pem\"", "--tls-key"),
    ] {
        let error = refusal(text);
        assert!(error.contains(why), "{text}: {error}");
    }
    let dir = tempfile::tempdir().unwrap();
    let output = Process::command(dir.path(), "error").args(["--config", "/nowhere/at-all.toml"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nowhere/at-all.toml: No such file"), "{output:?}");
}
