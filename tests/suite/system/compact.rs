//! `tallystone compact`: counter sets from the command line, against a Redis that has loaded the module.

use super::program::{self, Ended, SOON};
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tallystone_local::{LocalError, MODULE_FILE, Password, PrivateRedis, PrivateRedisOptions, compact_module};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// A Redis with the module, and its folder.
struct Store {
    redis: PrivateRedis,
    dir: TempDir,
}

fn options(dir: &Path) -> PrivateRedisOptions {
    let module = compact_module().expect("a place").expect("cargo build --release -p tallystone-compact-module");
    PrivateRedisOptions { password: Password::New, ..PrivateRedisOptions::new(dir) }.load_module(&module)
}

impl Store {
    async fn start(more: &[&str]) -> Store {
        let dir = TempDir::new().expect("a temporary folder");
        let mut options = options(dir.path());
        options.extra_args.extend(more.iter().map(|arg| (*arg).to_owned()));
        let redis = PrivateRedis::start(options).await.expect("a redis-server");
        Store { redis, dir }
    }

    async fn call(&self, args: &[&str]) -> Ended {
        program::run(program::command(&[&["--json", "compact", "--redis-url", &self.redis.url()], args].concat()), "")
            .await
    }

    async fn ok(&self, args: &[&str]) -> Value {
        let ended = self.call(args).await;
        assert_eq!(ended.code, Some(0), "{args:?}: {ended:?}");
        ended.object()
    }

    /// Runs a verb that must fail with this status and these words.
    async fn fails(&self, code: i32, words: &[&str], args: &[&str]) {
        let ended = self.call(args).await;
        assert_eq!(ended.code, Some(code), "{args:?}: {ended:?}");
        assert!(words.iter().all(|word| ended.stderr.contains(word)), "{args:?}: {words:?}: {ended:?}");
    }

    /// Waits until a replica has this number of ids.
    async fn has_ids(&self, key: &str, ids: u64) {
        let give_up_at = Instant::now() + SOON;
        loop {
            let info = self.call(&["info", key]).await;
            if info.code == Some(0) && info.object()["ids"] == ids {
                return;
            }
            assert!(Instant::now() < give_up_at, "the replica does not follow: {info:?}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until a table is in a file, and returns the file.
    async fn cold_file(&self, key: &str) -> PathBuf {
        let give_up_at = Instant::now() + SOON;
        loop {
            let tables = self.call(&["tables", key]).await.json();
            if let Some(table) = tables.iter().find(|table| table["state"] == "cold") {
                return self.dir.path().join(table["file"].as_str().expect("a name"));
            }
            assert!(Instant::now() < give_up_at, "no table became cold: {tables:?}");
            sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test]
async fn w1_counter_sets_are_created_counted_changed_and_shown() {
    let store = Store::start(&[]).await;
    let created = store.ok(&["create", "posts", "likes=24", "balance=i40", "--table-slots", "4096"]).await;
    assert_eq!((&created["schema"], &created["table_slots"]), (&json!("likes u24 balance i40"), &json!(4_096)));
    let row = store.ok(&["incr", "posts", "18446744073709551615", "likes=2", "balance=-3"]).await;
    assert_eq!(row, json!({"id": u64::MAX, "values": {"likes": 2, "balance": -3}}));
    let now = std::process::Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"]).output().expect("date").stdout;
    let now = String::from_utf8(now).expect("a time");
    for _ in 0..2 {
        let row = store.ok(&["incr", "posts", "7", "likes=1", "--token", "t", "--at", now.trim()]).await;
        assert_eq!(row["values"]["likes"], 1, "the same token and time count once");
    }
    let altered = store.ok(&["alter", "posts", "--add", "views=8", "--widen", "likes=32", "--memory-max", "1G"]).await;
    let expected = (&json!("likes u32 balance i40 views u8"), &json!(1_u64 << 30));
    assert_eq!((&altered["schema"], &altered["memory_max"]), expected);
    let rows = store.call(&["get", "posts", "18446744073709551615", "5"]).await.json();
    assert_eq!(rows[0]["values"], json!({"likes": 2, "balance": -3, "views": 0}));
    assert_eq!(rows[1]["values"], json!({"likes": 0, "balance": 0, "views": 0}));
    assert_eq!(store.ok(&["info", "posts"]).await["order"], "RISING");
    assert_eq!(store.ok(&["check", "posts"]).await["faults"], json!([]));
    assert_eq!(store.call(&["tables", "posts"]).await.json()[0]["state"], "hot");

    store.fails(1, &["there is no counter set", "compact create"], &["get", "none", "1"]).await;
    store.fails(1, &["exists", "BUSYKEY"], &["create", "posts", "a=1"]).await;
    store.fails(1, &["OVERFLOW", "below 0"], &["incr", "posts", "5", "likes=-1"]).await;
    store.fails(2, &["--fill-percent"], &["alter", "posts", "--fill-percent", "99"]).await;
    store
        .fails(
            2,
            &["--memory-max needs --order rising"],
            &["create", "b", "a=1", "--order", "random", "--memory-max", "1G"],
        )
        .await;
    store.fails(2, &["no field 'x'"], &["incr", "posts", "5", "x=1"]).await;
    store.fails(2, &["FIELD=BITS"], &["create", "b", "likes", "24"]).await;
    store.fails(2, &["--at"], &["incr", "posts", "7", "likes=1", "--token", "t"]).await;
    store.fails(2, &["nothing to change"], &["alter", "posts"]).await;
}

#[tokio::test]
async fn w1_a_redis_without_the_module_is_said() {
    let dir = TempDir::new().expect("a temporary folder");
    let redis = PrivateRedis::start(PrivateRedisOptions::new(dir.path())).await.expect("a redis-server");
    let ended = program::run(program::command(&["compact", "--redis-url", &redis.url(), "info", "k"]), "").await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("has not loaded the module") && ended.stderr.contains(MODULE_FILE), "{ended:?}");
}

#[tokio::test]
async fn w4_data_of_a_set_without_the_module_names_the_library() {
    for rewrites in [false, true] {
        let dir = TempDir::new().expect("a temporary folder");
        let redis = PrivateRedis::start(options(dir.path())).await.expect("a redis-server");
        let url = redis.url();
        let args = ["compact", "--redis-url", &url, "create", "k", "a=8"];
        assert_eq!(program::run(program::command(&args), "").await.code, Some(0));
        if rewrites {
            let client = redis::Client::open(url.as_str()).expect("an address");
            let mut connection = tallystone_tests::patient_connection(&client).await.expect("a connection");
            redis::cmd("BGREWRITEAOF").exec_async(&mut connection).await.expect("a rewrite");
            let give_up_at = Instant::now() + SOON;
            loop {
                let info: redis::InfoDict =
                    redis::cmd("INFO").arg("persistence").query_async(&mut connection).await.expect("INFO");
                let waits = ["aof_rewrite_in_progress", "aof_rewrite_scheduled"];
                if waits.iter().all(|name| info.get::<u32>(name) == Some(0)) {
                    break;
                }
                assert!(Instant::now() < give_up_at, "the rewrite does not end");
                sleep(Duration::from_millis(20)).await;
            }
        }
        redis.stop().await;
        let error = PrivateRedis::start(PrivateRedisOptions::new(dir.path())).await.expect_err("no module");
        assert!(matches!(error, LocalError::ModuleNeeded { .. }), "{error}");
        assert!(error.to_string().contains(MODULE_FILE), "{error}");
    }
}

#[tokio::test]
async fn w4_an_export_is_imported_as_it_was() {
    let store = Store::start(&[]).await;
    store.ok(&["create", "a", "likes=8", "balance=i16", "--table-slots", "1024"]).await;
    let lines: String = (1..=3_000_u64)
        .map(|n| format!("{{\"id\":{},\"values\":{{\"likes\":{n},\"balance\":-{n}}}}}\n", n * 512))
        .collect();
    let file = |name: &str| store.dir.path().join(name).to_str().expect("a plain path").to_owned();
    std::fs::write(file("lines"), lines).expect("a file");
    assert_eq!(store.ok(&["import", "a", &file("lines")]).await["ids"], 3_000);
    for (form, name) in [(None, "json"), (Some("--packed"), "packed")] {
        let out = file(name);
        let args: Vec<&str> = ["export", "a", "--out", &out].into_iter().chain(form).collect();
        assert_eq!(store.ok(&args).await["ids"], 3_000);
        assert_eq!(store.ok(&["import", name, &out]).await, json!({"key": name, "created": true, "ids": 3_000}));
        let (a, copy) = (store.ok(&["info", "a"]).await, store.ok(&["info", name]).await);
        // Where an id is within the set depends on the hash's random seed.
        for same in ["schema", "ids", "table_slots"] {
            assert_eq!(a[same], copy[same], "{same}");
        }
        let row = store.ok(&["get", name, "1536000"]).await;
        assert_eq!(row["values"], json!({"likes": 3_000, "balance": -3_000}));
        let whole = std::fs::read(&out).expect("a file");
        std::fs::write(&out, &whole[..whole.len() - 5]).expect("a file");
        store.fails(2, &[&out], &["import", name, &out]).await;
        // A bit that flips anywhere is found before anything is sent. Without its first bytes a packed copy is none.
        for flip in 0..20 {
            let mut flipped = whole.clone();
            flipped[8 + flip * (whole.len() - 9) / 19] ^= 1 << (flip % 8);
            std::fs::write(&out, &flipped).expect("a file");
            store.fails(2, &[&out], &["import", &format!("flipped-{flip}"), &out]).await;
            store.fails(1, &[], &["info", &format!("flipped-{flip}")]).await;
        }
    }
}

#[tokio::test]
async fn w3_a_damaged_page_is_found_and_repaired_from_a_replica() {
    let primary = Store::start(&[]).await;
    let conf = std::fs::read_to_string(primary.dir.path().join("redis.conf")).expect("a password");
    let password = conf.trim().strip_prefix("requirepass ").expect("a password").to_owned();
    let port = primary.redis.port().to_string();
    let replica = Store::start(&["--replicaof", "127.0.0.1", &port, "--masterauth", &password]).await;
    primary.ok(&["create", "k", "n=32", "--table-slots", "4096", "--memory-max", "1", "--cache-bytes", "0"]).await;
    let lines: String = (1..=9_000_u64).map(|n| format!("{{\"id\":{},\"values\":{{\"n\":{n}}}}}\n", n * 3)).collect();
    let file = primary.dir.path().join("lines");
    std::fs::write(&file, lines).expect("a file");
    primary.ok(&["import", "k", file.to_str().expect("a plain path")]).await;
    replica.has_ids("k", 9_000).await;
    let cold = primary.cold_file("k").await;
    let page = OpenOptions::new().write(true).read(true).open(&cold).expect("the file");
    let mut byte = [0];
    page.read_exact_at(&mut byte, 2_000).expect("a page");
    page.write_all_at(&[byte[0] ^ 0x10], 2_000).expect("a page");

    primary.fails(1, &["fault", "repair"], &["check", "k"]).await;
    primary.fails(1, &["DAMAGED", "repair"], &["get", "k", "30"]).await;
    replica.fails(2, &["is a replica", "primary"], &["repair", "k", "--from", &primary.redis.url()]).await;
    let planned = primary.ok(&["repair", "k", "--from", &replica.redis.url(), "--dry-run"]).await;
    assert_eq!(planned["ranges"].as_array().map(Vec::len), Some(1), "{planned}");
    let repaired = primary.ok(&["repair", "k", "--from", &replica.redis.url()]).await;
    assert!(repaired["ids"].as_u64() > Some(0) && repaired["faults"] == json!([]), "{repaired}");
    assert_eq!(primary.ok(&["check", "k"]).await["faults"], json!([]));
    let ids: Vec<String> = (1..=27_000_u64).step_by(97).map(|id| id.to_string()).collect();
    let args: Vec<&str> = ["get", "k"].into_iter().chain(ids.iter().map(String::as_str)).collect();
    for row in primary.call(&args).await.json() {
        let id = row["id"].as_u64().expect("an id");
        let expected = if id.is_multiple_of(3) { id / 3 } else { 0 };
        assert_eq!(row["values"]["n"], expected, "id {id}");
    }
}
