//! S3, S4: the verbs that make tokens and explain rights.

use crate::system::program;
use std::os::unix::fs::PermissionsExt as _;
use tempfile::TempDir;

async fn run(args: &[&str]) -> program::Ended {
    program::run(program::command(args), "").await
}

#[tokio::test]
async fn s4_a_new_token_is_an_entry_whose_rights_are_explained() {
    let dir = TempDir::new().expect("a temporary folder");
    let path = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
    let (principals, token) = (path("principals.toml"), path("token"));
    let rights = ["--right", "consume:orders/*", "--right", "deny:consume:orders/vip"];
    let new = [&["token", "new", "--name", "worker", "--expires-in", "90d", "--json"][..], &rights].concat();
    let made = run(&new).await.object();
    let shown = made["token"].as_str().expect("a token");
    assert!(shown.starts_with("ts_") && !made["entry"].as_str().expect("text").contains(shown));
    let made = run(&[&new[..], &["--out", &token]].concat()).await.object();
    assert!(made["token"].is_null(), "{made}");
    let mode = std::fs::metadata(&token).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = run(&[&new[..], &["--out", &token]].concat()).await;
    assert_eq!(again.code, Some(2), "a token is not overwritten: {again:?}");
    std::fs::write(&principals, made["entry"].as_str().expect("text")).expect("a file");
    for (right, name, code, rule) in [
        ("consume", "orders/a", 0, "consume:orders/*"),
        ("consume", "orders/vip", 1, "deny:consume:orders/vip"),
        ("consume", "orders/*", 1, "deny:consume:orders/vip"),
        ("produce", "orders/a", 1, "no rule"),
    ] {
        let checked = run(&["auth", "check", "--principals", &principals, "worker", right, name]).await;
        assert_eq!(checked.code, Some(code), "{checked:?}");
        assert!(checked.stdout.contains(rule), "{checked:?}");
    }
    let unknown = run(&["auth", "check", "--principals", &principals, "werker", "consume", "a"]).await;
    assert!(unknown.code == Some(2) && unknown.stderr.contains("\"worker\""), "{unknown:?}");
    let wrong = run(&["token", "new", "--name", "a", "--right", "fly:*"]).await;
    assert!(wrong.code == Some(2) && wrong.stderr.contains("\"fly\" is no right"), "{wrong:?}");
}
