//! The log of `tallystone rollup-worker` while what it needs is unavailable.

use super::program::{self, Running, SOON};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use tallystone_local::{PrivateRedis, PrivateRedisOptions};
use tallystone_tests::{lasting_port, patient_connection};
use tempfile::TempDir;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Attempts of the worker to connect: many more than the lines that it may log meanwhile.
const ATTEMPTS: usize = 12;

async fn redis(dir: &Path, port: u16) -> PrivateRedis {
    let options = PrivateRedisOptions { port: Some(port), ..PrivateRedisOptions::new(dir) };
    PrivateRedis::start(options).await.expect("a redis-server")
}

fn server(verb: &str, port: u16, more_args: &[&str]) -> Running {
    let address = format!("127.0.0.1:{port}");
    let mut command = program::command(&[&[verb, "--log-format", "json", "--listen", &address], more_args].concat());
    command.env("RUST_LOG", "info");
    Running::start_logged(command)
}

/// Takes the place of something that is unavailable, until this number of tries.
async fn refuse(port: u16) {
    let tried = spawn_blocking(move || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("a free port");
        for _ in 0..ATTEMPTS {
            drop(listener.accept().expect("a connection"));
        }
    });
    timeout(SOON, tried).await.expect("attempts").expect("a thread");
}

/// Reads the log up to a line with these words. Returns the number of warnings.
async fn warnings_until(worker: &mut Running, words: &str) -> usize {
    let mut warnings = 0;
    loop {
        let line = worker.line().await;
        warnings += usize::from(line.contains(r#""level":"WARN""#));
        if line.contains(words) {
            return warnings;
        }
    }
}

#[tokio::test]
async fn a_rollup_worker_logs_an_outage_once() {
    let dir = TempDir::new().expect("a temporary folder");
    let (redis_port, queue_port, counters_port) = (lasting_port(), lasting_port(), lasting_port());
    let store = redis(dir.path(), redis_port).await;
    let (redis_url, queue_url) = (store.url(), format!("http://127.0.0.1:{queue_port}"));
    let mut queue = server("server", queue_port, &["--redis-url", &redis_url]);
    warnings_until(&mut queue, "serving").await;
    let mut counters = server("counters", counters_port, &["--redis-url", &redis_url, "--server", &queue_url]);
    warnings_until(&mut counters, "serving").await;
    let counters_url = format!("http://127.0.0.1:{counters_port}");
    let put = program::command(&["counter", "--counters", &counters_url, "namespace", "put", "n"]);
    assert_eq!(program::run(put, "").await.code, Some(0));

    // Without a counter that waits for its rollup the worker has nothing to do with a namespace.
    let add = async || {
        let add = program::command(&["counter", "--counters", &counters_url, "add", "--namespace", "n", "c"]);
        assert_eq!(program::run(add, "").await.code, Some(0));
    };
    add().await;

    let args = ["rollup-worker", "--log-format", "json", "--redis-url", &redis_url, "--server", &queue_url];
    let mut command = program::command(&args);
    command.env("RUST_LOG", "info");
    let mut worker = Running::start_logged(command);
    assert_eq!(warnings_until(&mut worker, "\"rolling up\"").await, 0);

    store.stop().await;
    refuse(redis_port).await;
    let store = redis(dir.path(), redis_port).await;
    assert_eq!(warnings_until(&mut worker, "the registry of namespaces can be read again").await, 1);

    add().await;
    queue.kill().await;
    refuse(queue_port).await;
    let mut queue = server("server", queue_port, &["--redis-url", &redis_url]);
    assert_eq!(warnings_until(&mut worker, "a Work stream is open again").await, 1);
    warnings_until(&mut queue, "serving").await;

    assert!(worker.stop().await.success());

    // A store that is refused ends each stream soon after it has opened: that is one outage.
    add().await;
    let mut command = program::command(&args);
    command.env("RUST_LOG", "info,tallystone_client=debug");
    let mut worker = Running::start_logged(command);
    assert_eq!(warnings_until(&mut worker, "\"rolling up\"").await, 0);
    let store_client = redis::Client::open(store.url()).expect("an address");
    let mut connection = patient_connection(&store_client).await.expect("a connection");
    // The mark of the queue's store; that of the counters stays.
    let other_mark = redis::cmd("HSET").arg("ts:store").arg("id").arg("another").exec_async(&mut connection).await;
    other_mark.expect("a mark");
    add().await;
    let (mut breaks, mut warnings) = (0, 0);
    while breaks < ATTEMPTS {
        let line = worker.line().await;
        if line.contains("the Work stream broke") {
            breaks += 1;
            warnings += usize::from(line.contains(r#""level":"WARN""#));
        }
    }
    assert_eq!(warnings, 1);
    worker.kill().await;
    counters.kill().await;
    queue.kill().await;
    store.stop().await;
}
