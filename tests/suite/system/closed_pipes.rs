//! Programs whose output nothing reads: a pager that was closed, a log collector that died.

use super::dev::Dev;
use super::program::{self, SOON, until};
use std::io::PipeWriter;
use std::process::Stdio;
use tallystone_local::{PrivateRedis, PrivateRedisOptions};
use tallystone_tests::lasting_port;
use tempfile::TempDir;
use tokio::time::timeout;

/// A pipe that nothing reads.
fn unread() -> PipeWriter {
    let (_, writer) = std::io::pipe().expect("a pipe");
    writer
}

/// The exit status of a command whose stdout, and perhaps stderr, nothing reads.
async fn code(dev: &Dev, args: &[&str], stderr: Stdio) -> Option<i32> {
    let mut command = program::command(&[&["--server", dev.url()], args].concat());
    command.stdin(Stdio::null()).stdout(unread()).stderr(stderr);
    timeout(SOON, command.status()).await.expect("ends in time").expect("the program starts").code()
}

#[tokio::test]
async fn a_verb_without_a_reader_ends_with_the_status_of_what_it_did() {
    let dev = Dev::start().await;
    for id in ["a", "b"] {
        dev.ok(&["msg", "enqueue", "q", "--id", id]).await;
    }
    for stderr in [Stdio::null, || unread().into()] {
        assert_eq!(code(&dev, &["msg", "ls", "q"], stderr()).await, Some(0));
        assert_eq!(code(&dev, &["msg", "ls", "nothing"], stderr()).await, Some(1));
        assert_eq!(code(&dev, &["msg", "cancel", "q", "no message"], stderr()).await, Some(1));
        assert_eq!(code(&dev, &["msg", "ls", "q", "--limit", "0"], stderr()).await, Some(2));
    }
    assert_eq!(code(&dev, &["msg", "cancel", "q", "a"], Stdio::null()).await, Some(0));
    assert_eq!(dev.ok(&["msg", "get", "q", "a"]).await["state"], "canceled");
    // The command of `b` has ended, and its outcome is the first that has no reader.
    assert_eq!(code(&dev, &["--json", "work", "q", "--exec", "true"], Stdio::null()).await, Some(0));
    assert_eq!(dev.ok(&["msg", "get", "q", "b"]).await["state"], "completed");
    dev.stop().await;
}

#[tokio::test]
async fn a_server_whose_log_nothing_reads_serves_on() {
    let dir = TempDir::new().expect("a temporary folder");
    let options = PrivateRedisOptions { port: Some(lasting_port()), ..PrivateRedisOptions::new(dir.path()) };
    let redis = PrivateRedis::start(options.clone()).await.expect("a redis-server");
    let (address, redis_url) = (format!("127.0.0.1:{}", lasting_port()), redis.url());
    let args = ["server", "--listen", &address, "--redis-url", &redis_url];
    let mut server = program::command(&args).stdout(unread()).stderr(unread()).spawn().expect("the program starts");
    let url = format!("http://{address}");
    let health = async || program::run(program::command(&["--server", &url, "health"]), "").await.code;
    until("the server serves", async || health().await == Some(0)).await;
    // It logs the outage, and its end.
    redis.kill();
    redis.ended().await;
    until("the server does not serve", async || health().await == Some(1)).await;
    let _redis = PrivateRedis::start(options).await.expect("the redis-server again");
    until("the server serves again", async || health().await == Some(0)).await;
    assert_eq!(server.try_wait().expect("a child"), None);
}
