//! Settings of traces that cannot work stop the start with what is wrong.

use crate::cli::{proscenium, run};

#[test]
fn a_setting_that_cannot_work_is_named_with_the_remedy() {
    let endpoint = ["--genai-endpoint", "http://127.0.0.1:4318"];
    let refused = |arguments: &[&str]| {
        let dir = tempfile::tempdir().unwrap();
        let mut command = proscenium(&["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
        let ended = run(command.arg(dir.path().join("data")).args(arguments));
        assert!(!ended.status.success(), "{arguments:?}");
        String::from_utf8(ended.stderr).unwrap()
    };
    for (arguments, expected) in [
        (vec!["--genai-content", "user"], "--genai-endpoint"),
        (vec!["--genai-headers", "a=b"], "--genai-endpoint"),
        (vec!["--genai-endpoint", "collector:4318"], "http://127.0.0.1:4318"),
        (vec!["--genai-endpoint", "http://collector.example?key=1"], "without a query"),
        (
            vec!["--genai-endpoint", "http://127.0.0.1:4318/v1/traces"],
            "the server adds /v1/traces itself; give http://127.0.0.1:4318",
        ),
        (vec!["--genai-endpoint", "http://me:pass@collector.example"], "put them into --genai-headers"),
        ([&endpoint[..], &["--genai-content", "everyone"]].concat(), "user, dashboard or internal"),
        ([&endpoint[..], &["--genai-headers", "authorization Basic-secret"]].concat(), "--genai-headers: header 1 has no `=`"),
    ] {
        let error = refused(&arguments);
        assert!(error.contains(expected), "{arguments:?}: {error}");
        assert!(!error.contains("Basic-secret"), "a credential is shown: {error}");
    }
}
