//! Events move from the log to the archive (N15).
//!
//! An archiver takes each shard in these steps: begin (seal it, and leave a ticket), read what is sealed and settled, write
//! that to the archive, mark it as archived, drop it. After a crash between any two steps each event is in the log, in the
//! archive, or in both, and the next archiver continues. If the store has lost its last writes, the ticket is not there any
//! more or everything before it is: so what was read is never taken for more than it is (docs/decisions/0094).

use super::RedisNamespace;
use super::calls::{defect, of_archive, of_link};
use super::clock::earliest_ms;
use super::events::Shard;
use super::layout::{Field, window_of};
use super::record;
use crate::config::EventArchive;
use crate::log::{Change, Event, WINDOW_MS};
use crate::names::CounterName;
use crate::namespace::{Placement, SHARDS};
use crate::refusal::Refusal;
use futures::future::{join_all, try_join_all};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tallystone_archive::{Archive, ArchiveError, ArchivedEvent, NewObject, Reached, ShardSpan};
use tallystone_link::ScanPosition;
use tallystone_lua::counter::{ARCHIVE, CounterAnswer, CounterScript, SETTLED_NAMES, STATE_LATEST, STATE_PRUNED};
use tallystone_model::Applied;

/// Events of one shard in one object. A pass ends behind the window that has more.
const EVENTS_MAX: usize = 100_000;
/// Time buckets that one pass covers, in each shard.
const BUCKETS_MAX: u64 = 2_048;
/// Fields that one script call drops, and names that one command reads or removes, at most.
const FIELDS_MAX: usize = 1_000;

/// Fields of a hash, and their values.
type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// What one pass has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArchivePass {
    /// Events that it has written.
    pub events: u64,
    /// The size of the objects that it has written; 0: no shard could go on.
    pub bytes: u64,
    /// There is more to archive at once.
    pub is_behind: bool,
}

/// A shard with which an archiver has begun. Times are Unix ms.
struct Begun {
    shard: u16,
    now_ms: u64,
    sealed_to_ms: u64,
    archived_to_ms: u64,
    dropped_to_ms: u64,
}

/// What a pass moves out of a shard.
struct Moved {
    shard: u16,
    from_ms: u64,
    to_ms: u64,
    /// There is more that could be moved.
    is_behind: bool,
    slots: Vec<(Field, Vec<u8>)>,
    /// The scores of the names that it has found.
    settled_to_ms: Vec<u64>,
    names: HashMap<[u8; 12], Arc<str>>,
}

/// Of an archive record (lua/counter/archive.lua), in front of its ticket.
const DROPPED_TO_BYTES: usize = 6;

fn not_ours() -> Refusal {
    let why = "another archiver has begun, or the store has lost its last writes".to_owned();
    Refusal::Unavailable { applied: Applied::Unknown, why }
}

impl RedisNamespace {
    /// From when on there may be events that are not archived, in Unix ms; `None`: there are none.
    pub async fn unarchived_from_ms(&self) -> Result<Option<u64>, Refusal> {
        let mut failed = None;
        let states = each(&mut failed, (0..SHARDS).map(|shard| self.reached(shard))).await;
        let unarchived = states.into_iter().filter(|(latest_ms, archived_to_ms)| latest_ms >= archived_to_ms);
        // Shards that can be read need no others to be archived.
        match (unarchived.map(|(_, archived_to_ms)| archived_to_ms).min(), failed) {
            (None, Some(refusal)) => Err(refusal),
            (from_ms, _) => Ok(from_ms),
        }
    }

    /// Moves events of all shards to the archive, in one object for each slice. Each shard goes as far as it is sealed and
    /// settled, older than `keep_ms` of the archive, and within one slice. A shard that fails holds up no other.
    ///
    /// # Errors
    /// [`Refusal::Unavailable`]: a shard or the archive is unavailable, or another archiver has begun. Nothing is lost, and any
    /// archiver continues.
    pub async fn archive_pass(&self) -> Result<ArchivePass, Refusal> {
        let archive = self.archive()?;
        if !self.has_begun().await? {
            archive.begin(&self.tag, None).await.map_err(of_archive)?;
        }
        let mut failed = None;
        let reached = each(&mut failed, (0..SHARDS).map(|shard| self.reached(shard))).await;
        // Before it begins: an object of a later archiver must not be among them.
        let mut slices: BTreeMap<u64, Reached> = BTreeMap::new();
        for slice_ms in reached.iter().map(|(_, to_ms)| self.slice_of(*to_ms)) {
            if let Entry::Vacant(new) = slices.entry(slice_ms) {
                new.insert(archive.reached(&self.tag, slice_ms).await.map_err(of_archive)?);
            }
        }
        let ticket = format!("{:016x}", rand::random::<u64>());
        let begun = each(&mut failed, (0..SHARDS).map(|shard| self.begin(shard, &ticket))).await;
        // Before anything is dropped: nothing shows later that a shard began again.
        self.note_gapless(archive, &begun, failed.is_none()).await?;
        let drop_left = async |begun: Begun| self.drop_left(&begun).await.map(|()| begun);
        let begun = each(&mut failed, begun.into_iter().map(drop_left)).await;
        let now_ms = begun.iter().map(|begun| begun.now_ms).max().unwrap_or_default();
        let mut pass = ArchivePass::default();
        // Nearly always one: a shard may wait in an earlier slice than the others.
        for (slice_ms, written) in slices {
            let in_slice = begun.iter().filter(|begun| self.slice_of(begun.archived_to_ms) == slice_ms);
            let moved = each(&mut failed, in_slice.map(|begun| self.take(begun, now_ms))).await;
            pass.is_behind |= moved.iter().any(|moved| moved.is_behind);
            let moved = moved.into_iter().filter(|moved| moved.from_ms < moved.to_ms);
            let moved = each(&mut failed, moved.map(|moved| self.still_ours(moved, &ticket))).await;
            let object = self.object(slice_ms, now_ms.max(written.written_ms + 1), &moved)?;
            // Also without events: its spans show that there were none, and where a list lacks an object. And an object of before may be
            // of writes that the store has lost: then this one replaces it.
            if !object.spans.is_empty() {
                let written = archive.write(&self.tag, object).await.map_err(of_archive)?;
                pass.events += written.rows;
                pass.bytes += written.bytes;
            }
            let end = async |moved: &Moved| {
                self.mark_archived(moved, &ticket).await?;
                self.drop_moved(moved).await
            };
            each(&mut failed, moved.iter().map(end)).await;
        }
        failed.map_or(Ok(pass), Err)
    }

    /// Notes from when on the archive has no gaps. From there on, each pass continues where the one before it has ended; a shard
    /// that has lost its data, or comes to an archive of an earlier version, begins later. `is_complete`: all shards have begun.
    async fn note_gapless(&self, archive: &Archive, begun: &[Begun], is_complete: bool) -> Result<(), Refusal> {
        let noted_ms = archive.gapless_from_ms(&self.tag).await.map_err(of_archive)?;
        // With `dropped_to_ms` 0: no archiver has dropped anything of it.
        let is_new = |begun: &&Begun| noted_ms.is_none() || begun.dropped_to_ms == 0;
        let from_ms = begun.iter().filter(is_new).map(|begun| begun.archived_to_ms).max();
        if from_ms > noted_ms && (is_complete || noted_ms.is_some()) {
            archive.begin(&self.tag, from_ms).await.map_err(of_archive)?;
        }
        Ok(())
    }

    /// The object of what a pass moves.
    fn object(&self, slice_ms: u64, written_ms: u64, moved: &[Moved]) -> Result<NewObject, Refusal> {
        // A shard begins within a window.
        let from_ms = |moved: &Moved| moved.from_ms - moved.from_ms % WINDOW_MS;
        let span = |moved: &Moved| ShardSpan { shard: moved.shard, from_ms: from_ms(moved), to_ms: moved.to_ms };
        let spans = moved.iter().map(span).collect();
        let events = moved.iter().map(archived_events).collect::<Result<Vec<_>, Refusal>>()?.concat();
        Ok(NewObject { slice_ms, slice_length_ms: self.slice_ms(), written_ms, spans, events })
    }

    /// Deletes the slices of the archive that are past their retention, by the store's time. Returns how many objects went.
    ///
    /// # Errors
    /// [`Refusal::ClockSkew`]: a clock of the store differs from this process's (X6). Nothing was deleted.
    pub async fn prune_archive(&self) -> Result<u64, Refusal> {
        let partitions = self.partitions.all().iter();
        let now_ms = earliest_ms(partitions.map(|partition| partition.clock.right_ms(partition.any_link()))).await?;
        let Some(before_ms) = now_ms.checked_sub(self.config.delete_after_ms) else { return Ok(0) };
        self.archive()?.delete_before(&self.tag, self.slice_ms(), before_ms).await.map_err(of_archive)
    }

    /// Merges objects of each slice once ([`Archive::merge`]). Returns how many objects were replaced. `merged` has the closed
    /// slices with nothing left to merge: the call skips them, and adds those that it finds.
    pub async fn merge_archive(&self, merged: &mut BTreeSet<u64>) -> Result<u64, Refusal> {
        let archive = self.archive()?;
        let reached = try_join_all((0..SHARDS).map(|shard| self.reached(shard))).await?;
        let archived_to_ms = reached.into_iter().map(|(_, archived_to_ms)| archived_to_ms).min().unwrap_or_default();
        let slices = archive.slices(&self.tag).await.map_err(of_archive)?;
        merged.retain(|slice_ms| slices.contains(slice_ms));
        let (mut replaced, mut failed) = (0, None);
        for slice_ms in slices {
            if merged.contains(&slice_ms) {
                continue;
            }
            let is_closed = slice_ms + self.slice_ms() <= archived_to_ms;
            match archive.merge(&self.tag, slice_ms, is_closed).await {
                Ok(0) if is_closed => drop(merged.insert(slice_ms)),
                Ok(objects) => replaced += objects,
                // A damaged object holds up the merges of one slice only.
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(replaced), |error| Err(of_archive(error)))
    }

    /// How often events are archived; `None`: this process has no archive.
    pub(crate) fn archive_interval(&self) -> Option<Duration> {
        self.archive.as_ref().map(|archive| Duration::from_millis(archive.interval_ms))
    }

    /// The archive of a namespace that is archived.
    ///
    /// # Errors
    /// [`Refusal::Unavailable`]: this process has none.
    pub(super) fn archive(&self) -> Result<&Archive, Refusal> {
        Ok(&self.event_archive()?.archive)
    }

    /// The same, with the bounds on reads of it.
    pub(super) fn event_archive(&self) -> Result<&EventArchive, Refusal> {
        self.archive.as_ref().ok_or_else(|| Refusal::Unavailable {
            applied: Applied::Unknown,
            why: "this process has no archive (archive.url)".to_owned(),
        })
    }

    pub(super) fn slice_ms(&self) -> u64 {
        self.config.seconds_per_slice * 1_000
    }

    /// When the slice of a time begins.
    fn slice_of(&self, time_ms: u64) -> u64 {
        tallystone_archive::slice_of(time_ms, self.slice_ms())
    }

    /// When the latest window that may have an event begins, and up to when events are archived (Unix ms).
    pub(super) async fn reached(&self, shard: u16) -> Result<(u64, u64), Refusal> {
        let [latest, archived_to_ms] = self.state(shard, [STATE_LATEST, STATE_PRUNED]).await?;
        Ok((latest * WINDOW_MS, archived_to_ms))
    }

    /// Whether an archiver has begun with any shard, ever.
    pub(crate) async fn has_begun(&self) -> Result<bool, Refusal> {
        let has_begun =
            async |shard| self.query::<bool>(shard, redis::cmd("EXISTS").arg(self.keys(shard).key(ARCHIVE))).await;
        let mut failed = None;
        let any = each(&mut failed, (0..SHARDS).map(has_begun)).await.contains(&true);
        if any { Ok(true) } else { failed.map_or(Ok(false), Err) }
    }

    /// What the archive has answered; `None`: it was never begun, so nothing is archived.
    pub(super) async fn unless_new<T>(&self, answered: Result<T, ArchiveError>) -> Result<Option<T>, Refusal> {
        match answered {
            Err(ArchiveError::NoMark { .. }) if !self.has_begun().await? => Ok(None),
            answered => answered.map(Some).map_err(of_archive),
        }
    }

    async fn begin(&self, shard: u16, ticket: &str) -> Result<Begun, Refusal> {
        let mut command = self.log_call(CounterScript::Archive, shard, &self.keys(shard).archive());
        command.arg(self.config.lag_ms()).arg(ticket);
        let mut reply = self.run(shard, &command).await?;
        let (now_ms, sealed_to_ms) = (reply.number()?, reply.number()?);
        let (archived_to_ms, dropped_to_ms) = (reply.number()?, reply.number()?);
        Ok(Begun { shard, now_ms, sealed_to_ms, archived_to_ms, dropped_to_ms })
    }

    /// Reads what can be moved out of a shard.
    async fn take(&self, begun: &Begun, now_ms: u64) -> Result<Moved, Refusal> {
        let Begun { shard, sealed_to_ms, archived_to_ms: from_ms, .. } = *begun;
        let keep_ms = self.archive.as_ref().map_or(0, |archive| archive.keep_ms);
        let old_ms = now_ms.saturating_sub(keep_ms);
        let limit_ms = sealed_to_ms.min(old_ms - old_ms % WINDOW_MS);
        let first_waiting = self.waiting(shard, limit_ms).await?.into_iter().next();
        let limit_ms = first_waiting.unwrap_or(limit_ms).max(from_ms);
        let mut moved = Moved {
            shard,
            from_ms,
            to_ms: limit_ms.min(self.slice_of(from_ms) + self.slice_ms()),
            is_behind: false,
            slots: Vec::new(),
            settled_to_ms: Vec::new(),
            names: HashMap::new(),
        };
        let per_bucket = self.config.seconds_per_bucket * 1_000 / WINDOW_MS;
        let buckets = from_ms / WINDOW_MS / per_bucket..moved.to_ms.div_ceil(WINDOW_MS * per_bucket);
        let buckets = buckets.start..buckets.end.min(buckets.start + BUCKETS_MAX);
        moved.to_ms = moved.to_ms.min(buckets.end * per_bucket * WINDOW_MS).max(from_ms);
        let log = self.shard(shard).await?.covering(self.lengths(shard, buckets.clone()).await?);
        let mut events = 0;
        'read: for (number, bucket) in buckets.enumerate() {
            let within = (bucket * per_bucket).max(from_ms / WINDOW_MS)
                ..((bucket + 1) * per_bucket).min(moved.to_ms / WINDOW_MS);
            for part in log.parts(bucket, number, within) {
                let end_ms = part.end() * WINDOW_MS;
                for (field, slot) in self.read_slots(&log, &part).await? {
                    events += record::count(&slot)?;
                    moved.slots.push((field, slot));
                }
                if events > EVENTS_MAX && end_ms < moved.to_ms {
                    moved.to_ms = end_ms;
                    break 'read;
                }
            }
        }
        moved.is_behind = moved.to_ms < limit_ms;
        if !moved.slots.is_empty() {
            self.read_names(&mut moved).await?;
        }
        Ok(moved)
    }

    /// The names of the counters with settled events: those of all that the pass moves are among them.
    async fn read_names(&self, moved: &mut Moved) -> Result<(), Refusal> {
        let key = self.keys(moved.shard).key(SETTLED_NAMES);
        let mut position = Some(ScanPosition::default());
        while let Some(from) = position {
            let (found, next) = self.scan::<Vec<(String, f64)>>(moved.shard, "ZSCAN", &key, from, FIELDS_MAX).await?;
            for (name, settled_to_ms) in found {
                moved.settled_to_ms.push(settled_to_ms as u64);
                moved.names.insert(Placement::of(&CounterName::parse(&*name)?).id(), name.into());
            }
            position = next;
        }
        Ok(())
    }

    /// What a pass has read, if no other archiver had begun with the shard by then: such a one may have dropped events before they
    /// were read.
    async fn still_ours(&self, moved: Moved, ticket: &str) -> Result<Moved, Refusal> {
        let mut command = redis::cmd("GETRANGE");
        command.arg(self.keys(moved.shard).key(ARCHIVE)).arg(DROPPED_TO_BYTES).arg(-1);
        let found: Vec<u8> = self.query(moved.shard, &command).await?;
        if found == ticket.as_bytes() { Ok(moved) } else { Err(not_ours()) }
    }

    async fn mark_archived(&self, moved: &Moved, ticket: &str) -> Result<(), Refusal> {
        let mut command = self.log_call(CounterScript::Archived, moved.shard, &self.keys(moved.shard).archive());
        command.arg(ticket).arg(moved.to_ms);
        match self.run_any(moved.shard, &command).await?.answer {
            CounterAnswer::Ok => Ok(()),
            CounterAnswer::Stale | CounterAnswer::NoShard => Err(Refusal::Stale),
            CounterAnswer::Lost => Err(not_ours()),
            other => Err(defect(&format!("{other:?} to an archiver"))),
        }
    }

    async fn drop_moved(&self, moved: &Moved) -> Result<(), Refusal> {
        let bucket_ms = self.config.seconds_per_bucket * 1_000;
        let mut by_bucket: HashMap<u64, Vec<Field>> = HashMap::new();
        for (field, _) in &moved.slots {
            by_bucket.entry(window_of(field) * WINDOW_MS / bucket_ms).or_default().push(*field);
        }
        for (bucket, fields) in &by_bucket {
            self.drop_fields(moved.shard, *bucket, fields).await?;
        }
        self.forget_names(moved).await?;
        self.confirm_dropped(moved.shard, moved.to_ms).await
    }

    /// Drops what an archiver has marked as archived and not dropped before it died.
    async fn drop_left(&self, begun: &Begun) -> Result<(), Refusal> {
        let Begun { shard, archived_to_ms, dropped_to_ms, .. } = *begun;
        // No pass covers more than a slice.
        let from_ms = dropped_to_ms.max(archived_to_ms.saturating_sub(self.slice_ms()));
        if from_ms >= archived_to_ms {
            return Ok(());
        }
        let bucket_ms = self.config.seconds_per_bucket * 1_000;
        let buckets = from_ms / bucket_ms..archived_to_ms.div_ceil(bucket_ms);
        for from in buckets.clone().step_by(BUCKETS_MAX as usize) {
            let some = from..buckets.end.min(from + BUCKETS_MAX);
            for (bucket, length) in some.clone().zip(self.lengths(shard, some).await?) {
                if length > 0 {
                    self.drop_left_in(shard, bucket, archived_to_ms).await?;
                }
            }
        }
        self.confirm_dropped(shard, archived_to_ms).await
    }

    async fn drop_left_in(&self, shard: u16, bucket: u64, before_ms: u64) -> Result<(), Refusal> {
        let key = self.keys(shard).events(self.config.seconds_per_bucket, bucket);
        let mut position = Some(ScanPosition::default());
        while let Some(from) = position {
            let (found, next) = self.scan::<Fields>(shard, "HSCAN", &key, from, FIELDS_MAX).await?;
            let fields = found.into_iter().map(|(field, _)| field.try_into().map_err(|_| defect("an unknown field")));
            let mut fields = fields.collect::<Result<Vec<Field>, Refusal>>()?;
            fields.retain(|field| (window_of(field) + 1) * WINDOW_MS <= before_ms);
            self.drop_fields(shard, bucket, &fields).await?;
            position = next;
        }
        Ok(())
    }

    async fn drop_fields(&self, shard: u16, bucket: u64, fields: &[Field]) -> Result<(), Refusal> {
        for fields in fields.chunks(FIELDS_MAX) {
            let mut command = self.drop_call(shard, bucket, 0);
            for field in fields {
                command.arg(&field[..]);
            }
            self.run(shard, &command).await?;
        }
        Ok(())
    }

    async fn confirm_dropped(&self, shard: u16, to_ms: u64) -> Result<(), Refusal> {
        self.run(shard, &self.drop_call(shard, 0, to_ms)).await.map(drop)
    }

    fn drop_call(&self, shard: u16, bucket: u64, dropped_to_ms: u64) -> redis::Cmd {
        let keys = self.keys(shard);
        let events = keys.events(self.config.seconds_per_bucket, bucket);
        let all: Vec<String> = keys.archive().into_iter().chain([events]).collect();
        let mut command = self.log_call(CounterScript::Drop, shard, &all);
        command.arg(dropped_to_ms);
        command
    }

    /// Forgets the names of counters whose settled events are all archived.
    async fn forget_names(&self, moved: &Moved) -> Result<(), Refusal> {
        let key = self.keys(moved.shard).key(SETTLED_NAMES);
        let mut done: Vec<u64> = moved.settled_to_ms.iter().copied().filter(|to_ms| *to_ms <= moved.to_ms).collect();
        done.sort_unstable();
        for some in done.chunks(FIELDS_MAX) {
            let mut command = redis::cmd("ZREMRANGEBYSCORE");
            command.arg(&key).arg("-inf").arg(some.last());
            self.link(moved.shard).call(&command).await.map_err(of_link)?;
        }
        Ok(())
    }
}

/// What these calls return, of those that succeed. `failed`: the first refusal of this or an earlier step.
async fn each<T>(
    failed: &mut Option<Refusal>,
    calls: impl Iterator<Item = impl Future<Output = Result<T, Refusal>>>,
) -> Vec<T> {
    let results = join_all(calls).await.into_iter();
    results.filter_map(|result| result.map_err(|refusal| failed.get_or_insert(refusal).clone()).ok()).collect()
}

/// A label in the archive; `None`: absent.
fn some(label: &str) -> Option<Box<str>> {
    (!label.is_empty()).then(|| label.into())
}

/// The events of the slots that a pass moves.
fn archived_events(moved: &Moved) -> Result<Vec<ArchivedEvent>, Refusal> {
    let mut events = Vec::new();
    for (field, slot) in &moved.slots {
        record::all_events(slot, window_of(field), |counter_id, Event { time_ms, token, change, labels }| {
            let delta = match change {
                Change::Add(delta) => Some(delta),
                Change::Clear => None,
            };
            let counter = moved.names.get(&counter_id).cloned();
            events.push(ArchivedEvent {
                shard: moved.shard,
                counter_id,
                counter,
                time_ms,
                token: token.as_str().into(),
                delta,
                source: some(labels.source()),
                event_item_key: some(labels.event_item_key()),
            });
        })?;
    }
    Ok(events)
}

impl Shard {
    /// With the number of fields of each time bucket that a call covers.
    pub(super) fn covering(mut self, lengths: Vec<u64>) -> Shard {
        self.lengths = lengths;
        self
    }
}
