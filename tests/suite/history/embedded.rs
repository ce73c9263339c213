//! What only the embedded store can do or be: rows, one file, its size, its lock.

use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tallystone_indexer::{Embedded, EmbeddedError, EmbeddedOptions, HistoryStore, SearchQuery, fold};
use tallystone_model::{QueueName, Recorded, Sink};
use tallystone_tests::archive::ONLY;
use tallystone_tests::{BEGIN_MS, Desk, Held, Life, events_of};
use tempfile::TempDir;

fn options(folder: &TempDir) -> EmbeddedOptions {
    EmbeddedOptions { retention_ms: u64::MAX, ..EmbeddedOptions::new(folder.path().join("history.db")) }
}

fn folder() -> TempDir {
    TempDir::new().expect("a temporary folder")
}

fn desk(options: EmbeddedOptions) -> Desk<Embedded> {
    Desk::new(Held::new(Embedded::open(options).expect("a history"), ()).into(), "embedded")
}

fn looked_at(path: &Path) -> Connection {
    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("a database")
}

/// Every row of every table, queues by their names.
fn rows(path: &Path) -> BTreeMap<String, Vec<Vec<Value>>> {
    let database = looked_at(path);
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
    let in_order = desk(options(&one));
    in_order.tell(&events).await;
    drop(in_order);
    let backwards = desk(options(&other));
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
async fn q21_the_history_is_there_after_a_restart() {
    let folder = folder();
    let life = Life::new(&QueueName::parse("queue", "embedded").expect("a name"), "m").enqueued().leased("w");
    let before = desk(options(&folder));
    before.tell(&life.events()).await;
    before.store().advance(ONLY, 5_000).await.expect("an advance");
    drop(before);
    let after = desk(options(&folder));
    assert_eq!(after.trace("m").await.message, Some(fold::message(life.last())));
    assert_eq!(after.store().watermark().await, Ok(Some(5_000)));
    let life = life.after(1).completed();
    after.tell(&life.events()).await;
    assert_eq!(after.trace("m").await.transitions.len(), 3);
}

#[tokio::test]
async fn q21_one_process_at_a_time_has_the_file() {
    let folder = folder();
    let first = desk(options(&folder));
    let second = Embedded::open(options(&folder)).err().expect("it is in use");
    assert!(matches!(second, EmbeddedError::InUse { .. }), "{second:?}");
    assert!(second.to_string().contains("history.db is in use by another process"), "{second}");
    first.tell(&first.life("m").enqueued().events()).await;
    drop(first);
    assert_eq!(desk(options(&folder)).ids(&SearchQuery { limit: 9, ..SearchQuery::default() }).await, ["m"]);
}

#[tokio::test]
async fn q21_what_is_not_a_history_is_refused_and_left_alone() {
    let folder = folder();
    let path = options(&folder).path;
    let refused = || Embedded::open(options(&folder)).err().expect("a refusal");
    std::fs::write(&path, "a letter to somebody, longer than the header of a database. ".repeat(20)).expect("a file");
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
    drop(desk(options(&folder)));
    Connection::open(&path).expect("a database").pragma_update(None, "user_version", 99).expect("a version");
    let newer = refused();
    assert!(matches!(newer, EmbeddedError::Newer { version: 99, known: 1, .. }), "{newer:?}");
    assert!(newer.to_string().contains("has layout 99, and this program knows layouts up to 1"), "{newer}");
    let mut nowhere = options(&folder);
    nowhere.path = folder.path().join("history.db.lock/under-a-file/history.db");
    let unusable = Embedded::open(nowhere).err().expect("a refusal");
    assert!(matches!(unusable, EmbeddedError::Unusable { .. }), "{unusable:?}");
}

#[tokio::test]
async fn q21_questions_do_not_wait_for_a_writer() {
    let folder = folder();
    let desk = desk(options(&folder));
    desk.tell(&desk.life("m").enqueued().events()).await;
    let blocker = Connection::open(&options(&folder).path).expect("a database");
    blocker.execute_batch("BEGIN IMMEDIATE").expect("the right to write");
    let held = desk.held.clone();
    let events = desk.life("n").enqueued().events();
    let writing = tokio::spawn(async move { held.store.record(&events).await });
    // More questions than there are readers.
    let asked = futures(&desk, 16);
    let asked = tokio::time::timeout(Duration::from_secs(5), asked).await.expect("answers while somebody writes");
    assert_eq!(asked, vec![["m"]; 16]);
    assert!(!writing.is_finished(), "the writer waits");
    blocker.execute_batch("COMMIT").expect("the right to write given back");
    assert_eq!(writing.await.expect("no panic"), Ok(Vec::new()));
    assert_eq!(desk.ids(&desk.any()).await, ["n", "m"]);
}

async fn futures(desk: &Desk<Embedded>, count: usize) -> Vec<Vec<String>> {
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..count {
        let (held, query) = (desk.held.clone(), desk.any());
        asked.spawn(async move { held.store.search(&query).await });
    }
    let answers = asked.join_all().await.into_iter();
    answers.map(|found| found.expect("a search").into_iter().map(|message| message.id).collect()).collect()
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
    let desk = desk(EmbeddedOptions { max_bytes: MAX_BYTES, ..options(&folder) });
    // Some wait in a quiet queue from the begin on; the others come and go.
    let quiet = desk.another_queue();
    let waiting: Vec<Life> = (0..50).map(|number| Life::new(&quiet, &format!("waits{number}")).enqueued()).collect();
    desk.tell(&events_of(&waiting)).await;
    let mut events = events_of(&lives(&desk.queue, 20_000));
    events.sort_by_key(|recorded| recorded.event.at_ms);
    let mut largest = 0;
    for batch in events.chunks(BATCH) {
        desk.record(batch).await;
        largest = largest.max(file_bytes(&path));
    }
    // Nobody has pruned: the bound holds but for the events of a call, of which none takes a kilobyte.
    assert!(largest <= MAX_BYTES + (BATCH * 1_024) as u64, "the file came to {largest} bytes");
    assert!(largest > MAX_BYTES / 2, "the file came to {largest} bytes only: this proves nothing");
    while desk.store().prune(BEGIN_MS).await.expect("a step") {}
    assert!(file_bytes(&path) <= MAX_BYTES, "the file has {} bytes", file_bytes(&path));
    desk.show().await;
    // The newest are there, the oldest are not, and what a queue still has is kept to the last.
    let newest = events.iter().rev().find(|recorded| recorded.event.to.is_none()).expect("a collected message");
    let id = newest.event.id.as_str();
    assert_eq!(desk.trace(id).await.transitions.last(), Some(&fold::transition(&newest.event)));
    assert_eq!(desk.trace("m1").await.transitions, []);
    assert_eq!(desk.depth(&[]).await, [0, 0, 2_000, 0, 0, 0]);
    let of_quiet = SearchQuery { queue: Some(quiet.clone()), ..desk.any() };
    assert_eq!(desk.ids(&of_quiet).await.len(), 50);
    drop(desk);
    // A smaller bound: the file shrinks.
    let desk = self::desk(EmbeddedOptions { max_bytes: MAX_BYTES / 2, ..options(&folder) });
    let mut steps = 0;
    while desk.store().prune(BEGIN_MS).await.expect("a step") {
        steps += 1;
    }
    assert!(steps > 0, "so much does not go in one step");
    assert!(file_bytes(&path) <= MAX_BYTES / 2, "the file has {} bytes", file_bytes(&path));
    assert_eq!(desk.depth(&[]).await, [0, 0, 2_000, 0, 0, 0]);
    drop(desk);
    // One that not even what is not gone fits into.
    let desk = self::desk(EmbeddedOptions { max_bytes: 256 * 1024, ..options(&folder) });
    while desk.store().prune(BEGIN_MS).await.expect("a step") {}
    assert!(file_bytes(&path) <= 256 * 1024, "the file has {} bytes", file_bytes(&path));
    let left = desk.depth(&[]).await[2];
    assert!(0 < left && left < 2_000, "{left} are left");
    assert_eq!(desk.ids(&SearchQuery { limit: 1, ..desk.any() }).await, ["m19990"], "the youngest");
    assert_eq!(desk.ids(&of_quiet).await.len(), 0);
}

#[tokio::test]
async fn q21_it_is_a_sink_of_the_relay() {
    let folder = folder();
    let desk = desk(options(&folder));
    let life = desk.life("m").enqueued().after(1).leased("w");
    for _ in 0..2 {
        desk.store().deliver(life.events().into()).await.expect("a delivery");
    }
    assert_eq!(desk.store().watermark().await, Ok(None));
    desk.store().delivered_to(BEGIN_MS + 1).await.expect("a word");
    assert_eq!(desk.store().watermark().await, Ok(Some(BEGIN_MS + 1)));
    assert_eq!(desk.trace("m").await.transitions.len(), 2);
}

#[tokio::test]
async fn q19_an_event_that_no_row_can_hold_is_rejected_alone() {
    let folder = folder();
    let desk = desk(options(&folder));
    let mut events = desk.life("m").enqueued().leased("w").events();
    events.insert(1, desk.life("n").sequence(u64::MAX).enqueued().events().remove(0));
    let rejected = desk.store().record(&events).await.expect("a record");
    assert_eq!(rejected.len(), 1);
    assert_eq!((rejected[0].index, rejected[0].why.as_str()), (1, "sequence is past the range of a row"));
    desk.show().await;
    assert_eq!(desk.trace("m").await.transitions.len(), 2);
    assert_eq!(desk.ids(&desk.any()).await, ["m"]);
}
