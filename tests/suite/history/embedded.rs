//! What only the embedded store has: rows, one file, its size limit, its lock.

use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tallystone_indexer::{Embedded, EmbeddedError, EmbeddedOptions, HistoryStore, Queues, SearchQuery, fold};
use tallystone_model::{QueueName, Recorded, Sink};
use tallystone_tests::history::ONLY;
use tallystone_tests::{BEGIN_MS, HeldStore, HistoryFixture, Life, events_of};
use tempfile::TempDir;

fn options(folder: &TempDir) -> EmbeddedOptions {
    EmbeddedOptions { retention_ms: u64::MAX, ..EmbeddedOptions::new(folder.path().join("history.db")) }
}

fn folder() -> TempDir {
    TempDir::new().expect("a temporary folder")
}

fn history(options: EmbeddedOptions) -> HistoryFixture<Embedded> {
    HistoryFixture::new(HeldStore::new(Embedded::open(options).expect("a history"), ()).into(), "embedded")
}

fn open_for_reading(path: &Path) -> Connection {
    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("a database")
}

/// Every row of every table, with the names of queues instead of their numbers.
fn rows(path: &Path) -> BTreeMap<String, Vec<Vec<Value>>> {
    let database = open_for_reading(path);
    let mut tables = BTreeMap::new();
    for table in ["historic", "current", "pairs", "payloads"] {
        let sql = format!("SELECT name, t.* FROM {table} AS t JOIN queues ON number = t.queue");
        let mut select = database.prepare(&sql).expect("a table");
        let columns = select.column_count();
        let row = |row: &rusqlite::Row| (0..columns).filter(|at| *at != 1).map(|at| row.get(at)).collect();
        let mut rows: Vec<Vec<Value>> =
            select.query_map([], row).expect("rows").collect::<Result<_, _>>().expect("values");
        rows.sort_by_key(|row| format!("{row:?}"));
        tables.insert(table.to_owned(), rows);
    }
    tables
}

fn lives(queue: &QueueName, count: u64) -> Vec<Life> {
    let life = |number: u64| {
        let tags = [("carrier", "UA"), ("number", if number.is_multiple_of(2) { "even" } else { "odd" })];
        let life = Life::new(queue, &format!("m{number}")).at(BEGIN_MS + number * 10).tagged(&tags).payload(b"begin");
        let life = life.enqueued().after(20_000).leased("worker").after(5).released("no gate").after(5).leased("w");
        if number.is_multiple_of(10) { life } else { life.after(50).completed().after(1_000).collected() }
    };
    (0..count).map(life).collect()
}

#[tokio::test]
async fn q19_the_same_events_leave_the_same_rows() {
    let (one, other) = (folder(), folder());
    let queues = ["a", "b"].map(|name| QueueName::parse("queue", name).expect("a name"));
    let lives = queues.iter().flat_map(|queue| lives(queue, 50)).collect::<Vec<_>>();
    let events = events_of(&lives);
    let in_order = history(options(&one));
    in_order.record_and_show(&events).await;
    drop(in_order);
    let backwards = history(options(&other));
    for _ in 0..2 {
        let (one, other) = (backwards.store(), backwards.store());
        let write = async |store: &Embedded, events: &[Recorded]| {
            for batch in events.rchunks(7) {
                let batch: Vec<Recorded> = batch.iter().rev().cloned().collect();
                assert_eq!(store.record(&batch).await, Ok(Vec::new()));
            }
        };
        tokio::join!(write(one, &events[30..]), write(other, &events[..200]));
    }
    backwards.show().await;
    drop(backwards);
    let rows_in_order = rows(&options(&one).path);
    assert_eq!(rows_in_order["historic"].len(), events.len());
    assert_eq!((rows_in_order["current"].len(), rows_in_order["pairs"].len()), (100, 200));
    assert_eq!(rows_in_order, rows(&options(&other).path));
}

#[tokio::test]
async fn q21_the_history_survives_a_restart() {
    let folder = folder();
    let life = Life::new(&QueueName::parse("queue", "embedded").expect("a name"), "m").enqueued().leased("w");
    let before = history(options(&folder));
    before.record_and_show(&life.events()).await;
    before.store().advance(ONLY, 5_000).await.expect("an advance");
    drop(before);
    let after = history(options(&folder));
    assert_eq!(after.trace("m").await.message, Some(fold::message(life.last())));
    assert_eq!(after.store().watermark().await, Ok(Some(5_000)));
    let life = life.after(1).completed();
    after.record_and_show(&life.events()).await;
    assert_eq!(after.trace("m").await.transitions.len(), 3);
}

#[tokio::test]
async fn q23_o6_a_file_without_results_is_upgraded() {
    let folder = folder();
    let begun =
        |id: &str| Life::new(&QueueName::parse("queue", "embedded").expect("a name"), id).enqueued().leased("w");
    let (old, new) = (begun("old"), begun("new"));
    let before = history(options(&folder));
    before.record_and_show(&events_of(&[old.clone(), new.clone()])).await;
    drop(before);
    // As layout 2 was.
    let file = Connection::open(options(&folder).path).expect("a database");
    file.execute_batch("ALTER TABLE current DROP COLUMN result; PRAGMA user_version = 2;").expect("an older layout");
    drop(file);
    let after = history(options(&folder));
    assert_eq!(after.trace("old").await.message, Some(fold::message(old.last())));
    after.record_and_show(&new.after(1).completed_with(b"done").events()).await;
    assert_eq!(after.trace("new").await.message.expect("a message").result, "done");
}

#[tokio::test]
async fn q21_only_one_process_opens_the_file() {
    let folder = folder();
    let first = history(options(&folder));
    let second = Embedded::open(options(&folder)).err().expect("it is in use");
    assert!(matches!(second, EmbeddedError::InUse { .. }), "{second:?}");
    assert!(second.to_string().contains("history.db is in use by another process"), "{second}");
    first.record_and_show(&first.life("m").enqueued().events()).await;
    drop(first);
    assert_eq!(history(options(&folder)).ids(&SearchQuery { limit: 9, ..SearchQuery::default() }).await, ["m"]);
}

#[tokio::test]
async fn q21_a_foreign_file_is_refused_and_not_changed() {
    let folder = folder();
    let path = options(&folder).path;
    let refused = || Embedded::open(options(&folder)).err().expect("a refusal");
    std::fs::write(&path, "a letter to a friend, longer than the header of a database. ".repeat(20)).expect("a file");
    let before = std::fs::read(&path).expect("the file");
    assert!(matches!(refused(), EmbeddedError::Foreign { .. }), "{:?}", refused());
    assert_eq!(std::fs::read(&path).expect("the file"), before);
    std::fs::remove_file(&path).expect("a file");
    Connection::open(&path).expect("a database").execute_batch("CREATE TABLE accounts (name TEXT)").expect("a table");
    let before = std::fs::read(&path).expect("the file");
    assert!(matches!(refused(), EmbeddedError::Foreign { .. }), "{:?}", refused());
    assert_eq!(std::fs::read(&path).expect("the file"), before);
    std::fs::remove_file(&path).expect("a file");
    std::fs::create_dir(&path).expect("a folder where the file should be");
    assert!(matches!(refused(), EmbeddedError::Sql { .. }), "{:?}", refused());
    std::fs::remove_dir(&path).expect("a folder");
    drop(history(options(&folder)));
    Connection::open(&path).expect("a database").pragma_update(None, "user_version", 99).expect("a version");
    let newer = refused();
    assert!(matches!(newer, EmbeddedError::Newer { version: 99, known: 3, .. }), "{newer:?}");
    assert!(newer.to_string().contains("has layout 99, and this program knows layouts up to 3"), "{newer}");
    let mut nowhere = options(&folder);
    nowhere.path = folder.path().join("history.db.lock/under-a-file/history.db");
    let unusable = Embedded::open(nowhere).err().expect("a refusal");
    assert!(matches!(unusable, EmbeddedError::Unusable { .. }), "{unusable:?}");
}

#[tokio::test]
async fn q21_queries_do_not_wait_for_a_writer() {
    let folder = folder();
    let history = history(options(&folder));
    history.record_and_show(&history.life("m").enqueued().events()).await;
    let blocker = Connection::open(&options(&folder).path).expect("a database");
    blocker.execute_batch("BEGIN IMMEDIATE").expect("the right to write");
    let held = history.held.clone();
    let events = history.life("n").enqueued().events();
    let writing = tokio::spawn(async move { held.store.record(&events).await });
    // More queries than there are readers.
    let searches = searches(&history, 16);
    let found = tokio::time::timeout(Duration::from_secs(5), searches).await.expect("results during a write");
    assert_eq!(found, vec![["m"]; 16]);
    assert!(!writing.is_finished(), "the writer waits");
    blocker.execute_batch("COMMIT").expect("the right to write given back");
    assert_eq!(writing.await.expect("no panic"), Ok(Vec::new()));
    assert_eq!(history.ids(&history.any()).await, ["n", "m"]);
}

async fn searches(history: &HistoryFixture<Embedded>, count: usize) -> Vec<Vec<String>> {
    let mut searches = tokio::task::JoinSet::new();
    for _ in 0..count {
        let (held, query) = (history.held.clone(), history.any());
        searches.spawn(async move { held.store.search(&query).await });
    }
    let results = searches.join_all().await.into_iter();
    results.map(|found| found.expect("a search").into_iter().map(|message| message.id).collect()).collect()
}

fn file_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).expect("the file").len()
}

#[tokio::test]
async fn q19_the_size_of_the_file_is_bounded() {
    const MAX_BYTES: u64 = 4 * 1024 * 1024;
    const BATCH: usize = 1_000;
    let folder = folder();
    let path = options(&folder).path;
    let history = history(EmbeddedOptions { max_bytes: MAX_BYTES, ..options(&folder) });
    // Some messages wait in a quiet queue from the beginning; the others come and go.
    let quiet = history.another_queue();
    let waiting: Vec<Life> = (0..50).map(|number| Life::new(&quiet, &format!("waits{number}")).enqueued()).collect();
    history.record_and_show(&events_of(&waiting)).await;
    let mut events = events_of(&lives(&history.queue, 20_000));
    events.sort_by_key(|recorded| recorded.event.at_ms);
    let mut largest = 0;
    for batch in events.chunks(BATCH) {
        history.record(batch).await;
        largest = largest.max(file_bytes(&path));
    }
    // Without a prune the file exceeds the limit at most by the events of one call, each below a kilobyte.
    assert!(largest <= MAX_BYTES + (BATCH * 1_024) as u64, "the file came to {largest} bytes");
    assert!(largest > MAX_BYTES / 2, "the file came to only {largest} bytes: too few to reach the limit");
    while history.store().prune(BEGIN_MS).await.expect("a step") {}
    assert!(file_bytes(&path) <= MAX_BYTES, "the file has {} bytes", file_bytes(&path));
    history.show().await;
    // The newest transitions are kept, the oldest are not, and messages that are not gone are removed last.
    let newest = events.iter().rev().find(|recorded| recorded.event.to.is_none()).expect("a collected message");
    let id = newest.event.id.as_str();
    assert_eq!(history.trace(id).await.transitions.last(), Some(&fold::transition(&newest.event)));
    assert_eq!(history.trace("m1").await.transitions, []);
    assert_eq!(history.depth(&[]).await, [0, 0, 2_000, 0, 0, 0]);
    let of_quiet = SearchQuery { queues: Queues::One(quiet.clone()), ..history.any() };
    assert_eq!(history.ids(&of_quiet).await.len(), 50);
    drop(history);
    // With a smaller limit the file shrinks.
    let history = self::history(EmbeddedOptions { max_bytes: MAX_BYTES / 2, ..options(&folder) });
    let mut steps = 0;
    while history.store().prune(BEGIN_MS).await.expect("a step") {
        steps += 1;
    }
    assert!(steps > 0, "too much for one step");
    assert!(file_bytes(&path) <= MAX_BYTES / 2, "the file has {} bytes", file_bytes(&path));
    assert_eq!(history.depth(&[]).await, [0, 0, 2_000, 0, 0, 0]);
    drop(history);
    // A limit below the size of the messages that are not gone.
    let history = self::history(EmbeddedOptions { max_bytes: 256 * 1024, ..options(&folder) });
    while history.store().prune(BEGIN_MS).await.expect("a step") {}
    assert!(file_bytes(&path) <= 256 * 1024, "the file has {} bytes", file_bytes(&path));
    let left = history.depth(&[]).await[2];
    assert!(0 < left && left < 2_000, "{left} are left");
    assert_eq!(history.ids(&SearchQuery { limit: 1, ..history.any() }).await, ["m19990"], "the youngest");
    assert_eq!(history.ids(&of_quiet).await.len(), 0);
}

#[tokio::test]
async fn q21_the_relay_writes_to_it_directly() {
    let folder = folder();
    let history = history(options(&folder));
    let life = history.life("m").enqueued().after(1).leased("w");
    for _ in 0..2 {
        history.store().deliver(life.events().into()).await.expect("a delivery");
    }
    assert_eq!(history.store().watermark().await, Ok(None));
    history.store().delivered_to(BEGIN_MS + 1).await.expect("a word");
    assert_eq!(history.store().watermark().await, Ok(Some(BEGIN_MS + 1)));
    assert_eq!(history.trace("m").await.transitions.len(), 2);
}

#[tokio::test]
async fn q19_an_event_that_no_row_can_hold_is_rejected_alone() {
    let folder = folder();
    let history = history(options(&folder));
    let mut events = history.life("m").enqueued().leased("w").events();
    events.insert(1, history.life("n").sequence(u64::MAX).enqueued().events().remove(0));
    let rejected = history.store().record(&events).await.expect("a record");
    assert_eq!(rejected.len(), 1);
    assert_eq!((rejected[0].index, rejected[0].why.as_str()), (1, "sequence is beyond the range of a row"));
    history.show().await;
    assert_eq!(history.trace("m").await.transitions.len(), 2);
    assert_eq!(history.ids(&history.any()).await, ["m"]);
}
