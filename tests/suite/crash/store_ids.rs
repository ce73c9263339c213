//! `redis.store_ids`: a program that knows its store does not start on another one, nor on an emptied one (X7).

use super::machines::{Redis, Server};
use crate::system::program;
use tempfile::TempDir;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x7_a_server_that_expects_a_store_does_not_start_on_an_empty_one() {
    let dir = TempDir::new().expect("a temporary folder");
    let redis = Redis::start().await;
    let url = redis.url();
    let show = async || {
        let shown = program::run(program::command(&["store", "show", "--redis-url", &url]), "").await;
        assert_eq!(shown.code, Some(0), "{shown:?}");
        shown.stdout.trim().to_owned()
    };
    assert!(show().await.ends_with("has no data of Tallystone."));
    Server::start_as(&["server", "--redis-url", &url, "--log", "error"]).await.stop().await;
    let ids = show().await;
    assert!(ids.starts_with("store_ids = [\"") && !ids.contains(','), "{ids}");
    let config = dir.path().join("tallystone.toml");
    std::fs::write(&config, format!("[redis]\nurl = \"{url}\"\n{ids}\n")).expect("a file");
    let path = config.to_str().expect("text");
    Server::start_as(&["server", "--config", path, "--log", "error"]).await.stop().await;

    redis.flush().await;
    for verb in ["server", "counters"] {
        let started = program::run(program::command(&[verb, "--config", path, "--listen", "127.0.0.1:0"]), "").await;
        assert_eq!(started.code, Some(2), "{started:?}");
        assert!(started.stderr.contains("redis.store_ids"), "{started:?}");
        assert!(started.stderr.contains("tallystone store show"), "{started:?}");
    }
    let mut connection = redis.connection().await;
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut connection).await.expect("keys");
    assert!(keys.is_empty(), "nothing is written into another store: {keys:?}");
}
