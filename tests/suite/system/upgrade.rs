//! O6: data outlives versions. A data folder that an earlier version wrote opens with the program of today, and holds
//! what that version recorded with it. The folders are made by tests/fixtures/make.py.

use super::dev::Dev;
use super::program::{self, Running, SOON};
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};
use tallystone_tests::http_client;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// History is kept longer than the messages, so that no time of running this test finds less of it.
const ENVIRONMENT: [(&str, &str); 1] = [("TALLYSTONE_HISTORY_RETENTION_MS", "315360000000")];
/// The version of the history file that the program of today writes. It upgrades an earlier file in one transaction.
const HISTORY_VERSION: i32 = 3;
/// What a message keeps in whatever state it is.
const LASTING: [&str; 7] = ["id", "payload", "priority", "metadata", "max_attempts", "attempts", "enqueued_at_ms"];

/// A copy of a fixture's data folder, and what it holds.
struct Fixture {
    folder: TempDir,
    expected: Value,
}

impl Fixture {
    fn unpack(version: &str) -> Fixture {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(version);
        let folder = TempDir::new().expect("a temporary folder");
        let archive = source.join("data.tar.gz");
        let unpacked = std::process::Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(folder.path()).status();
        assert!(unpacked.is_ok_and(|status| status.success()), "tar unpacks {version}");
        let expected = std::fs::read_to_string(source.join("expected.json")).expect("expected.json");
        Fixture { folder, expected: serde_json::from_str(&expected).expect("JSON") }
    }

    async fn open(&self) -> Dev {
        Dev::start_with(self.folder.path(), &[], &ENVIRONMENT).await
    }

    /// Starts the program and kills it after this time, wherever it is then.
    async fn open_and_kill_after(&self, time: Duration) {
        let opening = Running::start(Dev::command(self.folder.path(), &[], &ENVIRONMENT));
        sleep(time).await;
        opening.kill().await;
        super::dev::until_folder_is_free(self.folder.path()).await;
    }

    /// The version of the history file. The file is not changed by this, nor is its log.
    fn history_version(&self) -> i32 {
        let path = self.folder.path().join("history.db");
        let file = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("the history");
        file.pragma_query_value(None, "user_version", |row| row.get(0)).expect("a version")
    }

    fn list(&self, name: &str) -> &[Value] {
        self.expected[name].as_array().expect("a list")
    }

    /// One that earlier fixtures do not have.
    fn later_list(&self, name: &str) -> &[Value] {
        self.expected[name].as_array().map_or(&[], Vec::as_slice)
    }

    /// For how long it has been there.
    fn age(&self) -> Duration {
        Duration::from_millis(now_ms() - self.expected["made_at_ms"].as_u64().expect("a time"))
    }
}

#[tokio::test]
async fn o6_data_of_version_0_1_opens_unchanged_whenever_it_is_killed() {
    opens_unchanged("data-0.1", 1).await;
}

#[tokio::test]
async fn o6_data_with_shards_archive_views_and_sets_opens_unchanged_whenever_it_is_killed() {
    opens_unchanged("data-0.1-2026-11", HISTORY_VERSION).await;
}

async fn opens_unchanged(version: &str, history_version: i32) {
    let fixture = Fixture::unpack(version);
    let mut found = fixture.history_version();
    assert_eq!(found, history_version, "the history of {version}");
    // From before Redis runs until after it serves.
    for ms in [5, 40, 100, 200, 400, 800] {
        fixture.open_and_kill_after(Duration::from_millis(ms)).await;
        let before = std::mem::replace(&mut found, fixture.history_version());
        assert!(found == before || found == HISTORY_VERSION, "killed after {ms} ms: from {before} to {found}");
    }
    let dev = fixture.open().await;
    assert_eq!(fixture.history_version(), HISTORY_VERSION);
    holds_all(&dev, &fixture).await;
    dev.kill().await;
    let dev = fixture.open().await;
    holds_all(&dev, &fixture).await;
    work_goes_on(&dev, &fixture).await;
    dev.stop().await;
}

/// Everything that the fixture recorded is there.
async fn holds_all(dev: &Dev, fixture: &Fixture) {
    let found = messages(dev, fixture).await;
    queues(dev, fixture, &found).await;
    history(dev, fixture).await;
    counters(dev, fixture).await;
    archive(dev, fixture).await;
    views(dev, fixture).await;
    set(dev, fixture).await;
    let checked = dev.call(&["check"]).await;
    assert_eq!(checked.code, Some(0), "every invariant holds: {checked:?}");
    let compared = dev.call(&["history", "check", "--traces"]).await;
    assert_eq!(compared.code, Some(0), "history and queues agree: {compared:?}");
}

/// The messages, by queue and id, as they are now. A time limit may have passed since the fixture was made; a message
/// whose limit has not passed is as it was in every field.
async fn messages(dev: &Dev, fixture: &Fixture) -> BTreeMap<(String, String), Value> {
    let mut found = BTreeMap::new();
    for recorded in fixture.list("messages") {
        let (queue, id) = (text(&recorded["queue"]), text(&recorded["id"]));
        let Some(state) = state_now(recorded) else { continue };
        let message = eventually(&format!("{id} is {state}"), async || {
            let message = dev.ok(&["msg", "get", queue, id]).await;
            (message["state"] == state).then_some(message)
        })
        .await;
        let is_as_it_was = recorded["state"] == state;
        // A coalesced run that lapses gives its attempts back (Q12).
        let starts_again = !is_as_it_was && recorded["coalesced"] == true;
        for (field, value) in recorded.as_object().expect("an object") {
            if field != "queue" && (is_as_it_was || LASTING.contains(&field.as_str())) {
                let attempts = json!(0);
                let value = if starts_again && field == "attempts" { &attempts } else { value };
                assert_eq!(&message[field], value, "{queue} {id} {field}");
            }
        }
        found.insert((queue.to_owned(), id.to_owned()), message);
    }
    found
}

/// The state that a recorded message must have now; none if its retention has ended.
fn state_now(recorded: &Value) -> Option<&'static str> {
    let is_due = recorded["due_ms"].as_u64().is_some_and(|due_ms| due_ms != 0 && due_ms <= now_ms());
    let has_attempts = recorded["attempts"].as_u64() < recorded["max_attempts"].as_u64();
    match (text(&recorded["state"]), is_due) {
        ("invisible", false) => Some("invisible"),
        ("running", false) => Some("running"),
        ("running", true) if !has_attempts => Some("errored"),
        ("pending", _) | ("invisible" | "running", true) => Some("pending"),
        ("completed", false) => Some("completed"),
        ("canceled", false) => Some("canceled"),
        ("errored", false) => Some("errored"),
        ("completed" | "canceled" | "errored", true) => None,
        (other, _) => panic!("{other} is no state"),
    }
}

/// Configuration, depth in all and by a filter, and the order of the waiting messages.
async fn queues(dev: &Dev, fixture: &Fixture, found: &BTreeMap<(String, String), Value>) {
    for recorded in fixture.list("queues") {
        let name = text(&recorded["name"]);
        let queue = dev.ok(&["queue", "describe", name]).await;
        assert_eq!(queue["created_at_ms"], recorded["created_at_ms"], "{name}");
        for (field, value) in recorded["config"].as_object().expect("an object") {
            assert_eq!(&queue["config"][field], value, "{name} {field}");
        }
        let of_queue = || found.iter().filter(|((queue, _), _)| queue == name).map(|(_, message)| message);
        assert_eq!(queue["depth"], depth(of_queue()), "{name}");

        let order = dev.call(&["msg", "ls", name, "--limit", "1000"]).await.json();
        let pending = |message: &&Value| message["queue"] == name && message["state"] == "pending";
        let recorded: Vec<&Value> =
            fixture.list("messages").iter().filter(pending).map(|message| &message["id"]).collect();
        let order: Vec<&Value> =
            order.iter().map(|message| &message["id"]).filter(|id| recorded.contains(id)).collect();
        assert_eq!(order, recorded, "{name}: the most urgent first, then the oldest");
    }
    let filtered = dev.ok(&["queue", "describe", "parcels", "--filter", "carrier=UA"]).await;
    let of_carrier = found.values().filter(|message| message["metadata"]["carrier"] == "UA");
    assert_eq!(filtered["depth"], depth(of_carrier), "by the declared index");
}

fn depth<'a>(messages: impl Iterator<Item = &'a Value>) -> Value {
    let mut depth = json!({"invisible": 0, "pending": 0, "running": 0, "completed": 0, "canceled": 0, "errored": 0});
    for message in messages {
        let count = &mut depth[text(&message["state"])];
        *count = json!(count.as_u64().expect("a state") + 1);
    }
    depth
}

/// The recorded transitions come first in each trace. What was in the outbox when the old version was killed arrives.
async fn history(dev: &Dev, fixture: &Fixture) {
    for recorded in fixture.list("traces") {
        let (queue, id) = (text(&recorded["queue"]), text(&recorded["id"]));
        let transitions = recorded["transitions"].as_array().expect("a list");
        let found = dev.call(&["msg", "trace", queue, id]).await.json();
        assert!(found.len() >= transitions.len(), "{id}: {found:?}");
        for (found, recorded) in found.iter().zip(transitions) {
            for (field, value) in recorded.as_object().expect("an object") {
                assert_eq!(&found[field], value, "{queue} {id} {field}");
            }
        }
    }
    for id in fixture.list("late").iter().map(text) {
        let first = eventually(&format!("history has {id}"), async || {
            let trace = dev.call(&["msg", "trace", "parcels", id]).await;
            (trace.code == Some(0)).then(|| trace.json().swap_remove(0))
        })
        .await;
        assert_eq!((&first["version"], &first["to"], &first["by"]), (&json!(1), &json!("pending"), &json!("enqueue")));
    }
}

/// Every acknowledged add counts once. What was not rolled up when the old version was killed is rolled up now.
async fn counters(dev: &Dev, fixture: &Fixture) {
    for recorded in fixture.list("namespaces") {
        let found = dev.counter(&["namespace", "get", text(&recorded["name"])]).await;
        for (field, value) in recorded["config"].as_object().expect("an object") {
            assert_eq!(&found["config"][field], value, "{} {field}", recorded["name"]);
        }
    }
    for recorded in fixture.list("counters") {
        let (namespace, counter) = (text(&recorded["namespace"]), text(&recorded["counter"]));
        eventually(&format!("{namespace}/{counter} is {}", recorded["count"]), async || {
            let found = dev.counter(&["get", counter, "--namespace", namespace]).await;
            (found["count"] == recorded["count"]).then_some(())
        })
        .await;
    }
}

/// For a year an audit finds the events that were added before, most of them in the archive.
async fn archive(dev: &Dev, fixture: &Fixture) {
    for counter in fixture.later_list("audited").iter().map(text) {
        if fixture.age() < Duration::from_secs(360 * 86_400) {
            eventually(&format!("{counter} agrees with its events"), async || {
                let audit = dev.counter(&["audit", counter, "--namespace", "kept"]).await;
                assert_eq!(audit["agrees"], true, "{audit}");
                (audit["events"] == 4).then_some(())
            })
            .await;
        }
    }
}

async fn views(dev: &Dev, fixture: &Fixture) {
    let url = dev.ready["views"].as_str().expect("a URL");
    let http = http_client();
    for recorded in fixture.later_list("views") {
        let path = format!("{url}/v1/videos/{}/views", text(&recorded["video"]));
        eventually(&format!("{path} has the counts"), async || {
            let response = http.get(&path).send().await.expect("an answer");
            let found: Value = serde_json::from_str(&response.text().await.expect("text")).expect("JSON");
            ["viewCount", "pageViews"].iter().all(|kind| found[*kind] == recorded[*kind]).then_some(())
        })
        .await;
    }
}

async fn set(dev: &Dev, fixture: &Fixture) {
    let recorded = fixture.later_list("set");
    if recorded.is_empty() {
        return;
    }
    let url = dev.redis_url();
    let ids: Vec<String> = recorded.iter().map(|record| record["id"].to_string()).collect();
    let get = ["compact", "get", "--redis-url", &url, "board"].into_iter().chain(ids.iter().map(String::as_str));
    assert_eq!(dev.call(&get.collect::<Vec<_>>()).await.json(), recorded);
}

/// What the old version left is worked on: the most urgent message that can run first, by tokens higher than all before.
async fn work_goes_on(dev: &Dev, fixture: &Fixture) {
    let found = messages(dev, fixture).await;
    for queue in ["parcels", "flights"] {
        let of_queue = || found.iter().filter(|((name, _), _)| name == queue).map(|(_, message)| message);
        let is_locked = |message: &&Value| {
            let mut running = of_queue().filter(|other| other["state"] == "running");
            queue == "flights" && running.any(|other| other["metadata"]["tail"] == message["metadata"]["tail"])
        };
        let pending = dev.call(&["msg", "ls", queue, "--limit", "1000"]).await.json();
        let most_urgent = &pending.iter().find(|message| !is_locked(message)).expect("a message that can run")["id"];
        let messages = fixture.list("messages").iter().filter(|message| message["queue"] == queue);
        let highest = messages.filter_map(|message| message["fencing_token"].as_u64()).max();
        let command = program::command(&["--json", "--server", dev.url(), "work", queue, "--exec", "true"]);
        let mut worker = Running::start(command);
        let first: Value = serde_json::from_str(&worker.line().await).expect("JSON");
        assert_eq!((&first["id"], &first["outcome"]), (most_urgent, &json!("completed")));
        assert!(first["fencing_token"].as_u64() > highest, "{first} after {highest:?}");
        assert!(worker.stop().await.success());
    }
    spread_work_goes_on(dev, fixture).await;
    assert_eq!(dev.counter(&["add", "small", "--get"]).await["count"], 104);
}

/// Of a queue with several shards a worker gets every message whose value has no lease.
async fn spread_work_goes_on(dev: &Dev, fixture: &Fixture) {
    let mut of_queue: Vec<&Value> =
        fixture.list("messages").iter().filter(|message| message["queue"] == "spread").collect();
    if of_queue.is_empty() {
        return;
    }
    of_queue.retain(|message| message["state"] == "pending");
    let command = program::command(&["--json", "--server", dev.url(), "work", "spread", "--exec", "true"]);
    let mut worker = Running::start(command);
    for _ in of_queue.iter().filter(|message| !["N0", "N1"].contains(&text(&message["metadata"]["tail"]))) {
        let done: Value = serde_json::from_str(&worker.line().await).expect("JSON");
        assert_eq!(done["outcome"], "completed", "{done}");
    }
    assert!(worker.stop().await.success());
}

#[tokio::test]
async fn o6_other_formats_are_refused_in_one_sentence() {
    let folder = TempDir::new().expect("a temporary folder");
    let formats = [
        ("ts:format", "queues", [1, 1_000]),
        ("tc:format", "counters", [1, 1_000]),
        // Views have had format 1 only.
        ("tc:views:format", "views", [2, 1_000]),
    ];
    for (key, what, others) in formats {
        for found in others {
            let data = folder.path().join(format!("{what}-{found}"));
            let dev = Dev::start_in(&data, &[]).await;
            let url = dev.redis_url();
            let mut connection = dev.redis().await;
            let () = redis::cmd("SET").arg(key).arg(found).query_async(&mut connection).await.expect("a format");
            let sentence =
                format!("the {what} in this Redis were written in format {found}, but this server reads format");

            // A server on the same Redis; counters and views are served by other programs, named like their data.
            let verb = if what == "queues" { "server" } else { what };
            let args = [verb, "--listen", "127.0.0.1:0", "--redis-url", &url];
            refused(&program::run(program::command(&args), "").await, &sentence);
            dev.stop().await;
            let reopened = program::run(Dev::command(&data, &[], &[]), "").await;
            refused(&reopened, &sentence);
            assert_eq!(reopened.stdout, "", "it is not said to be ready");
        }
    }
}

fn refused(ended: &program::Ended, sentence: &str) {
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains(sentence), "{ended:?}");
    assert!(ended.stderr.contains("use the version that wrote them"), "it says what to do: {ended:?}");
}

/// Waits until it has a value.
async fn eventually<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let give_up_at = Instant::now() + SOON;
    loop {
        if let Some(value) = check().await {
            return value;
        }
        assert!(Instant::now() < give_up_at, "in time: {what}");
        sleep(Duration::from_millis(100)).await;
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

fn now_ms() -> u64 {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock after 1970");
    u64::try_from(since_1970.as_millis()).expect("a clock of this age")
}
