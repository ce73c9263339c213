//! Events leave Redis for the archive, and every answer stays what it was (N15). The random programs of `exactness` archive,
//! too.

use super::*;
use std::collections::BTreeSet;
use std::path::Path;
use tallystone_counters::Deletions;
use tallystone_counters::log::WINDOW_MS;
use tallystone_counters::redis::ArchivePass;
use tallystone_lua::counter::CounterShardKeys;

const SLICE_MS: u64 = 600_000;
/// How often an archiver dies.
const DEATHS: u64 = 250;

fn config() -> NamespaceConfig {
    NamespaceConfig { archived: true, seconds_per_slice: SLICE_MS / 1_000, ..NamespaceConfig::default() }
}

impl TestNamespace {
    /// An archiver that dies after this number of steps: its futures are dropped between two replies of a store. `None`: it died.
    pub(super) async fn archive_and_die(&self, steps: u64) -> Option<Result<ArchivePass, Refusal>> {
        self.seal_everything().await;
        let archive = async {
            let pass = self.store.redis.archive_pass().await?;
            self.store.redis.merge_archive(&mut BTreeSet::new()).await?;
            Ok(pass)
        };
        die_after(steps, archive).await
    }

    /// Seals all shards, as an archiver does that begins: the oracle has no archiver.
    async fn seal_everything(&self) {
        let names: Vec<CounterName> = (0..200).map(|number| counter(&format!("sealed {number}"))).collect();
        self.store.seal(&names).await.expect("sealed");
    }

    /// Archives all that was written up to now, and checks that the log has nothing left.
    pub(super) async fn archive_everything(&mut self) {
        self.pass(60_000);
        self.seal_everything().await;
        loop {
            match self.store.redis.archive_pass().await {
                Ok(pass) if !pass.is_behind => break,
                Ok(_) => {}
                // A call that one has left behind which died.
                Err(refusal) => assert!(matches!(refusal, Refusal::Unavailable { .. }), "{refusal}"),
            }
        }
        assert_eq!(self.events_keys().await, Vec::<String>::new(), "the log is empty");
        assert_eq!(self.store.redis.unarchived_from_ms().await, Ok(None));
    }

    /// The keys of events in Redis, of all shards.
    async fn events_keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        for shard in 0..SHARDS {
            let bucket_s = self.config.seconds_per_bucket;
            let window = 3 * SLICE_MS.max(self.config.seconds_per_slice * 1_000);
            let all = CounterShardKeys::new(self.store.redis.tag(), shard);
            for bucket in (NOON_MS - 4_000_000) / (bucket_s * 1_000)..=(self.latest_ms() + window) / (bucket_s * 1_000)
            {
                keys.push(all.events(bucket_s, bucket));
            }
        }
        if self.redis.is_cluster() {
            return Vec::new();
        }
        let mut connection = self.redis.connection().await;
        let mut found = Vec::new();
        for keys in keys.chunks(1_000) {
            let mut pipeline = ::redis::pipe();
            for key in keys {
                pipeline.exists(key);
            }
            let there: Vec<bool> = pipeline.query_async(&mut connection).await.expect("keys");
            found.extend(keys.iter().zip(there).filter(|(_, there)| *there).map(|(key, _)| key.clone()));
        }
        found
    }

    /// Archives what is sealed, settled and old, and returns how many events that were. A pass stays in one slice.
    async fn archive(&self) -> u64 {
        self.seal_everything().await;
        let mut events = 0;
        loop {
            let pass = self.store.redis.archive_pass().await.expect("a pass");
            events += pass.events;
            if !pass.is_behind {
                return events;
            }
        }
    }

    /// All events of a counter, page by page.
    async fn all_events(&self, name: &str) -> Vec<Event> {
        let (mut next, end) = ((NOON_MS - 600_000) / WINDOW_MS, self.latest_ms() / WINDOW_MS + 4);
        let mut all = Vec::new();
        while next < end {
            let scan = self.store.scan(&counter(name), next..end, 3).await.expect("events");
            assert!(scan.next_window > next, "it goes on");
            all.extend(scan.events);
            next = scan.next_window;
        }
        all
    }
}

#[tokio::test]
async fn n15_events_leave_redis_and_retries_keep_their_answers() {
    let mut ns = TestNamespace::new("left", config()).await;
    let adds: Vec<NewEvent> = (0..40).map(|n| add("c", &format!("t{n}"), NOON_MS - n * 10, 1 + n as i64)).collect();
    assert!(ns.store.append(&adds).await.iter().all(Result::is_ok));
    assert_eq!(ns.append_one(event("d", "clear", NOON_MS, Change::Clear)).await, counted(NOON_MS));
    assert_eq!(ns.archive().await, 0, "nothing is sealed, settled and old");
    ns.pass(60_000);
    assert_eq!(ns.archive().await, 0, "no rollup has settled it");
    for name in ["c", "d"] {
        ns.roll_up(name).await;
    }
    assert_eq!(ns.archive().await, 41);
    assert_eq!(ns.events_keys().await, Vec::<String>::new());
    assert_eq!(
        ns.store.append(&adds).await,
        adds.iter().map(|add| duplicate(add.time_ms.unwrap())).collect::<Vec<_>>()
    );
    assert_eq!(ns.append_one(add("c", "t1", NOON_MS - 10, 99)).await, Err(Refusal::TokenConflict));
    assert_eq!(ns.append_one(event("c", "t1", NOON_MS - 10, Change::Clear)).await, Err(Refusal::TokenConflict));
    assert_eq!(ns.append_one(add("d", "clear", NOON_MS, 1)).await, Err(Refusal::TokenConflict));
    assert_eq!(ns.append_one(event("d", "clear", NOON_MS, Change::Clear)).await, duplicate(NOON_MS));
    assert_eq!(ns.append_one(add("c", "never sent", NOON_MS, 1)).await, Err(Refusal::TooOld));
    assert_eq!(ns.all_events("c").await.len(), 40);
    assert_eq!(ns.count("c").await, (1..=40).sum::<i64>());
}

/// Memory follows the rate of adds and not how long events are kept.
#[tokio::test]
async fn n15_the_log_has_only_what_is_younger_than_the_archive_leaves() {
    let mut ns = TestNamespace::new("flat", config()).await;
    for minute in 0..30 {
        let now_ms = ns.now_ms();
        let adds: Vec<NewEvent> =
            (0..100).map(|n| add(&format!("c{}", n % 7), &format!("{minute}-{n}"), now_ms - n, 1)).collect();
        assert!(ns.store.append(&adds).await.iter().all(Result::is_ok));
        ns.pass(60_000);
        for name in 0..7 {
            ns.roll_up(&format!("c{name}")).await;
        }
        assert_eq!(ns.archive().await, 100);
        assert_eq!(ns.events_keys().await, Vec::<String>::new(), "after minute {minute}");
    }
    for name in 0..7 {
        let name = format!("c{name}");
        assert_eq!(ns.all_events(&name).await.len() as i64, ns.count(&name).await, "{name}");
    }
}

#[tokio::test]
async fn n15_a_damaged_object_holds_up_the_merges_of_one_slice_only() {
    let mut ns = TestNamespace::new("damaged", config()).await;
    for round in 0..9_u64 {
        let now_ms = ns.now_ms();
        assert_eq!(ns.append_one(add("c", &format!("{round}"), now_ms, 1)).await, counted(now_ms));
        ns.pass(SLICE_MS / 3);
        ns.roll_up("c").await;
        ns.archive_everything().await;
    }
    // The objects of each slice.
    let slices = |ns: &TestNamespace| {
        let folder = ns.archive.folder.path().join(ns.store.redis.tag());
        let names = |path: &Path| {
            let entries = std::fs::read_dir(path).expect("a folder").map(|entry| entry.expect("an entry").path());
            let mut paths = entries.collect::<Vec<_>>();
            paths.sort();
            paths
        };
        let folders = names(&folder).into_iter().filter(|path| path.is_dir());
        folders.map(|slice| names(&slice)).collect::<Vec<_>>()
    };
    let before = slices(&ns);
    let several: Vec<usize> = (0..before.len()).filter(|slice| before[*slice].len() > 1).collect();
    let [damaged, other, ..] = several[..] else { panic!("too few slices have several objects: {before:?}") };
    let object = &before[damaged][0];
    let mut bytes = std::fs::read(object).expect("an object");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(object, bytes).expect("a file");
    let merged = ns.store.redis.merge_archive(&mut BTreeSet::new()).await;
    assert!(matches!(merged, Err(Refusal::DataLoss { .. })), "{merged:?}");
    let after = slices(&ns);
    assert_eq!((after[damaged].len(), after[other].len()), (before[damaged].len(), 1));
}

/// A list lacks an object, as that of a network file system does for some time: its events may have counted.
#[tokio::test]
async fn n15_where_an_object_is_missing_nothing_is_too_old() {
    let mut ns = TestNamespace::new("missing", config()).await;
    let mut times = Vec::new();
    for round in 0..3 {
        let now_ms = ns.now_ms();
        assert_eq!(ns.append_one(add("c", &format!("{round}"), now_ms, 1)).await, counted(now_ms));
        times.push(now_ms);
        ns.pass(60_000);
        ns.roll_up("c").await;
        assert_eq!(ns.archive().await, 1);
    }
    let slice = ns.archive.folder.path().join(ns.store.redis.tag()).join(format!("{NOON_MS:014}"));
    let mut objects: Vec<_> = std::fs::read_dir(&slice).expect("a slice").map(|entry| entry.unwrap().path()).collect();
    objects.sort();
    assert_eq!(objects.len(), 3, "one of each pass");
    let away = ns.archive.folder.path().join("away");
    std::fs::rename(&objects[1], &away).expect("moved");
    let retry = async |token: &str, time_ms: u64| ns.store.redis.append(&[add("c", token, time_ms, 1)]).await.remove(0);
    for token in ["1", "never sent"] {
        let unknown = retry(token, times[1]).await;
        assert!(matches!(unknown, Err(Refusal::Unavailable { .. })), "{unknown:?}");
    }
    assert_eq!(retry("0", times[0]).await, duplicate(times[0]));
    assert_eq!(retry("never sent", times[0]).await, Err(Refusal::TooOld));
    let windows = times[0] / WINDOW_MS..times[2] / WINDOW_MS + 1;
    let scan = ns.store.redis.scan(&counter("c"), windows.clone(), 100).await;
    assert!(matches!(scan, Err(Refusal::Unavailable { .. })), "it would lack an event: {scan:?}");
    std::fs::rename(&away, &objects[1]).expect("moved back");
    assert_eq!(retry("1", times[1]).await, duplicate(times[1]));
    assert_eq!(retry("never sent", times[1]).await, Err(Refusal::TooOld));
    assert_eq!(ns.store.redis.scan(&counter("c"), windows, 100).await.expect("events").events.len(), 3);
}

/// A partition is unavailable, or has lost its data: the others are archived.
#[tokio::test]
async fn n15_a_shard_that_fails_holds_up_no_other() {
    let mut ns = TestNamespace::new("failing", config()).await;
    let adds: Vec<NewEvent> = (0..40).map(|n| add("c", &format!("t{n}"), NOON_MS - n, 1)).collect();
    assert!(ns.store.append(&adds).await.iter().all(Result::is_ok));
    let of_c: Vec<u16> = ns.pending("c").await.into_iter().map(|(shard, _)| shard).collect();
    ns.pass(60_000);
    ns.roll_up("c").await;
    ns.seal_everything().await;
    let other = (0..SHARDS).find(|shard| !of_c.contains(shard)).expect("it is not in all shards");
    let mut connection = ns.redis.connection().await;
    let state = CounterShardKeys::new(ns.store.redis.tag(), other).key("state");
    let () = ::redis::cmd("DEL").arg(state).query_async(&mut connection).await.expect("deleted");
    assert!(matches!(ns.store.redis.unarchived_from_ms().await, Ok(Some(_))), "the other shards say so");
    // A pass covers a slice of ten minutes, and the log began an hour ago.
    for _ in 0..8 {
        let pass = ns.store.redis.archive_pass().await;
        assert!(pass.is_err(), "of shard {other}: {pass:?}");
    }
    assert_eq!(ns.events_keys().await, Vec::<String>::new());
    assert_eq!(
        ns.store.redis.append(&adds).await,
        adds.iter().map(|add| duplicate(add.time_ms.unwrap())).collect::<Vec<_>>()
    );
}

/// A pass dies between any two of its steps: each event is somewhere, and counts once.
#[tokio::test]
async fn n15_an_archiver_may_die_at_any_step() {
    let mut ns = TestNamespace::new("deaths", NamespaceConfig { seconds_per_bucket: 20, ..config() }).await;
    let (mut sent, mut died) = (Vec::new(), 0);
    for round in 0..DEATHS {
        let now_ms = ns.now_ms();
        let adds: Vec<NewEvent> = (0..20)
            .map(|n| {
                add(
                    ["a", "b", "ü"][n as usize % 3],
                    &format!("{round}-{n}"),
                    now_ms - n * 37 % 4_000,
                    round as i64 - n as i64,
                )
            })
            .collect();
        assert!(ns.store.append(&adds).await.iter().all(Result::is_ok));
        sent.extend(adds);
        ns.pass(rand::random_range(1_000..30_000));
        for name in ["a", "b", "ü"] {
            ns.roll_up(name).await;
        }
        died += u64::from(ns.archive_and_die(round % 83).await.is_none());
        // Some that were sent long ago, too. The oracle has the right answers.
        let again: Vec<NewEvent> = (0..5).map(|_| sent[rand::random_range(0..sent.len())].clone()).collect();
        assert!(ns.store.append(&again).await.iter().all(|answer| answer.as_ref().is_ok_and(|was| was.duplicate)));
    }
    assert!(died > DEATHS / 3, "{died} of {DEATHS} died");
    ns.pass(60_000);
    for name in ["a", "b", "ü"] {
        ns.roll_up(name).await;
    }
    ns.archive_everything().await;
    for name in ["a", "b", "ü"] {
        let events = ns.all_events(name).await;
        let deltas = sent.iter().filter(|add| add.counter == counter(name)).map(|add| match add.change {
            Change::Add(delta) => delta,
            Change::Clear => 0,
        });
        assert_eq!(ns.count(name).await, deltas.sum::<i64>(), "{name}");
        assert_eq!(events.len(), sent.iter().filter(|add| add.counter == counter(name)).count(), "{name}");
    }
}

/// Two archivers at once: the one that began first may write, and then marks nothing.
#[tokio::test]
async fn n15_of_two_archivers_the_later_one_goes_on() {
    let mut ns = TestNamespace::new("two", config()).await;
    for round in 0..20 {
        let now_ms = ns.now_ms();
        let adds: Vec<NewEvent> = (0..30).map(|n| add("c", &format!("{round}-{n}"), now_ms - n, 1)).collect();
        assert!(ns.store.append(&adds).await.iter().all(Result::is_ok));
        ns.pass(40_000);
        ns.roll_up("c").await;
        ns.seal_everything().await;
        let (one, other) = tokio::join!(ns.store.redis.archive_pass(), ns.store.redis.archive_pass());
        for pass in [one, other] {
            assert!(matches!(pass, Ok(_) | Err(Refusal::Unavailable { .. })), "{pass:?}");
        }
        assert!(ns.store.append(&adds).await.iter().all(|answer| answer.as_ref().is_ok_and(|was| was.duplicate)));
    }
    ns.pass(60_000);
    ns.roll_up("c").await;
    ns.archive_everything().await;
    assert_eq!(ns.all_events("c").await.len(), 600);
}

/// The store loses its last writes, which the archive has: they have not counted, and no answer says that they have.
#[tokio::test]
async fn n15_what_the_store_has_lost_counts_no_more_though_the_archive_has_it() {
    let redis = Arc::new(TestRedis::start().await);
    let mut connection = redis.connection().await;
    let mut ns = TestNamespace::on(redis, "lost", config()).await;
    let (kept, lost) = (add("c", "kept", NOON_MS, 1), add("c", "lost", NOON_MS + 5, 2));
    assert_eq!(ns.append_one(kept.clone()).await, counted(NOON_MS));
    let before = dump(&mut connection).await;
    ns.at(NOON_MS + 10);
    // Past the oracle, which loses nothing.
    let store = ns.store.redis.clone();
    assert_eq!(store.append(std::slice::from_ref(&lost)).await, [counted(NOON_MS + 5)]);
    ns.at(NOON_MS + 60_000);
    let jobs = [ns.job(&counter("c"))];
    assert!(roll_up(&store, &store, &jobs).await.remove(0).is_ok());
    assert_eq!(ns.archive().await, 2);
    assert_eq!(store.append(std::slice::from_ref(&lost)).await, [duplicate(NOON_MS + 5)]);
    restore(&mut connection, &before).await;
    assert_eq!(ns.append_one(lost.clone()).await, Err(Refusal::TooOld), "by the limit of the log");
    assert_eq!(ns.append_one(kept.clone()).await, duplicate(NOON_MS));
    ns.roll_up("c").await;
    assert_eq!(ns.archive().await, 1);
    assert_eq!(ns.events_keys().await, Vec::<String>::new());
    assert_eq!(ns.append_one(lost).await, Err(Refusal::TooOld), "by the archive");
    assert_eq!(ns.append_one(kept).await, duplicate(NOON_MS));
    assert_eq!(ns.all_events("c").await.len(), 1);
    assert_eq!(ns.count("c").await, 1);
}

type Dump = Vec<(Vec<u8>, Vec<u8>)>;

async fn dump(redis: &mut tallystone_tests::TestConnection) -> Dump {
    let keys: Vec<Vec<u8>> = ::redis::cmd("KEYS").arg("*").query_async(redis).await.expect("keys");
    let mut all = Vec::new();
    for key in keys {
        let value: Vec<u8> = ::redis::cmd("DUMP").arg(&key).query_async(redis).await.expect("a value");
        all.push((key, value));
    }
    all
}

async fn restore(redis: &mut tallystone_tests::TestConnection, all: &Dump) {
    let mut pipeline = ::redis::pipe();
    pipeline.atomic().cmd("FLUSHDB");
    for (key, value) in all {
        pipeline.cmd("RESTORE").arg(key).arg(0).arg(value);
    }
    pipeline.exec_async(redis).await.expect("restored");
}

#[tokio::test]
async fn n15_an_archive_that_is_unavailable_leaves_everything_where_it_is() {
    let mut ns = TestNamespace::new("away", config()).await;
    assert_eq!(ns.append_one(add("c", "old", NOON_MS, 1)).await, counted(NOON_MS));
    ns.pass(60_000);
    ns.roll_up("c").await;
    assert_eq!(ns.archive().await, 1);
    let now_ms = ns.now_ms();
    assert_eq!(ns.append_one(add("c", "new", now_ms, 1)).await, counted(now_ms));
    ns.pass(60_000);
    ns.roll_up("c").await;
    let folder = ns.archive.folder.path();
    let (away, aside) = (folder.join(ns.store.redis.tag()), folder.join("aside"));
    std::fs::rename(&away, &aside).expect("moved");
    std::fs::write(&away, b"no folder").expect("a file");
    ns.seal_everything().await;
    let refused = ns.store.redis.archive_pass().await;
    assert!(matches!(refused, Err(Refusal::Unavailable { .. })), "{refused:?}");
    // Whether it has counted is not known: it is not guessed.
    let retry = ns.store.redis.append(&[add("c", "old", NOON_MS, 1)]).await.remove(0);
    assert!(matches!(retry, Err(Refusal::Unavailable { .. })), "{retry:?}");
    assert_eq!(ns.append_one(add("c", "new", now_ms, 1)).await, duplicate(now_ms));
    std::fs::remove_file(&away).expect("removed");
    std::fs::rename(&aside, &away).expect("moved back");
    assert_eq!(ns.append_one(add("c", "old", NOON_MS, 1)).await, duplicate(NOON_MS));
    assert_eq!(ns.archive().await, 1);
    assert_eq!(ns.all_events("c").await.len(), 2);
}

#[tokio::test]
async fn n15_retention_drops_slices_of_the_archive_and_a_deleted_counter_stays_deleted() {
    let after_ms = NamespaceConfig { close_after_ms: 2 * SLICE_MS, delete_after_ms: 3 * SLICE_MS, ..config() };
    let mut ns = TestNamespace::new("retained", after_ms).await;
    assert_eq!(ns.append_one(add("c", "add", NOON_MS, 7)).await, counted(NOON_MS));
    assert_eq!(ns.append_one(event("c", "gone", NOON_MS + 1, Change::Clear)).await, counted(NOON_MS + 1));
    ns.store.delete(&counter("c"), NOON_MS + 1).await.expect("deleted");
    ns.pass(60_000);
    ns.roll_up("c").await;
    ns.archive_everything().await;
    for shard in 0..SHARDS {
        ns.store.prune(shard).await.expect("pruned");
    }
    assert_eq!(ns.store.deleted_to(&counter("c")).await, Ok(Some(NOON_MS + 1)), "its events are in the archive");
    assert!(ns.store.redis.prune_archive().await.expect("pruned") > 0, "the slices from before it was made");
    ns.pass(3 * SLICE_MS);
    let first_ms = async || ns.archive.archive.archive.first_slice_ms(ns.store.redis.tag()).await.expect("slices");
    ns.store.redis.prune_archive().await.expect("pruned");
    assert_eq!(first_ms().await, Some(NOON_MS), "its slice has not ended for so long");
    ns.pass(SLICE_MS);
    assert_eq!(ns.append_one(add("c", "add", NOON_MS, 7)).await, Err(Refusal::TokenExpired));
    ns.pass(7_200_000);
    for shard in 0..SHARDS {
        ns.store.redis.prune(shard).await.expect("pruned");
    }
    let mark = ns.store.redis.deleted_to(&counter("c")).await;
    assert_eq!(mark, Ok(Some(NOON_MS + 1)), "its slice is past its retention, but not deleted yet");
    assert!(ns.store.redis.prune_archive().await.expect("pruned") > 0);
    assert_eq!(first_ms().await, None);
    for shard in 0..SHARDS {
        ns.store.prune(shard).await.expect("pruned");
    }
    assert_eq!(ns.store.deleted_to(&counter("c")).await, Ok(None));
}

/// A namespace that begins to be archived: what its log has goes to the archive, too.
#[tokio::test]
async fn n15_a_namespace_may_be_archived_later_and_then_stays_so() {
    let before = NamespaceConfig { archived: false, ..config() };
    let mut ns = TestNamespace::new("later", before.clone()).await;
    let old = add("c", "old", NOON_MS, 5);
    assert_eq!(ns.append_one(old.clone()).await, counted(NOON_MS));
    ns.pass(3_600_000);
    ns.roll_up("c").await;
    assert!(before.check_change(&config()).is_ok() && config().check_change(&before).is_err());
    ns.reconfigure(config()).await;
    ns.archive_everything().await;
    assert_eq!(ns.append_one(old).await, duplicate(NOON_MS));
    assert_eq!(ns.all_events("c").await.len(), 1);
}
