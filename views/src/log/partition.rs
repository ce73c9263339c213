//! One partition of the log in Redis: every change is one script call, atomic, and durable before its reply.

use super::records::{Deltas, PairsRecord, read_deltas, write_deltas};
use crate::appends::AppendViews;
use crate::dedupe::Pair;
use futures::future::BoxFuture;
use redis::{Cmd, from_redis_value};
use std::sync::Arc;
use std::time::Duration;
use tallystone_link::{Clock, Link, Room, ScriptReply, StreamId};
use tallystone_lua::views::{NAMES, ViewAnswer, ViewScript, key};
use tallystone_model::Refusal;

/// One partition.
pub struct Partition {
    number: u16,
    /// Names the log in tokens.
    log_id: Arc<str>,
    /// Of callers that append.
    appending: Link,
    /// Of the owner: its large reads do not delay appends.
    owning: Link,
    /// This process's clock is the witness: a time that Redis writes while its clock is ahead cannot be corrected later.
    clock: Clock,
    room: Room,
}

/// The right to deduplicate the views of a partition. A later owner has a higher epoch.
#[derive(Clone, Copy, Debug)]
pub struct Ownership {
    epoch: u64,
    /// An owner that has not renewed its lease for this long may be replaced.
    lease: Duration,
    /// Views up to here are deduplicated.
    pub position: StreamId,
    /// Deltas up to here have their answers, the late ones by themselves.
    pub settled: Settled,
}

/// Up to where the records of both streams of deltas have their answers.
#[derive(Clone, Copy, Debug)]
pub struct Settled {
    /// In the stream that commits write.
    pub deltas: StreamId,
    /// In the stream of what came too late for its first token. It is sent first.
    pub late: StreamId,
}

/// Why an owner must stop.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// Another process owns the partition, or owned it since.
    #[error("another process owns the partition")]
    Fenced,
    /// The log does not answer, or has a defect.
    #[error(transparent)]
    Log(#[from] Refusal),
}

/// What acquiring found.
#[derive(Debug)]
pub enum Acquired {
    /// The caller owns the partition.
    Owned(Ownership),
    /// Another process has its lease for so long, unless it renews it.
    Held(Duration),
}

/// An entry of the log.
pub struct Entry {
    /// Its id, and so its time.
    pub position: StreamId,
    /// The views.
    pub views: Vec<u8>,
}

/// A record of deltas that waits for the counters.
pub struct WaitingDeltas {
    /// Its id, and so its time.
    pub at: StreamId,
    /// Whether an earlier token of these deltas came too late.
    pub is_late: bool,
    /// The token of its adds. No other record has it, also of another log that the same counters count.
    pub token: String,
    /// What to add.
    pub deltas: Deltas,
}

/// What a commit writes.
pub struct Commit {
    /// Where the owner has read from.
    pub from: StreamId,
    /// The last entry that it has read.
    pub to: StreamId,
    /// What to add.
    pub deltas: Deltas,
    /// Records of deltas that are dropped, because their deltas are among these. They were never sent to the counters.
    pub replaced: Vec<StreamId>,
    /// Of each kind with a window: the name of its pairs, from which time on they are needed (Unix ms), and new ones.
    pub pairs: Vec<(String, u64, PairsRecord)>,
}

impl Partition {
    /// `links`: of callers that append, and of the owner.
    pub(super) fn new(number: u16, log_id: Arc<str>, links: [Link; 2], clock: Clock, room: Room) -> Partition {
        let [appending, owning] = links;
        Partition { number, log_id, appending, owning, clock, room }
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Appends an entry of views.
    async fn append_entry(&self, views: &[u8]) -> Result<bool, Refusal> {
        self.room.check()?;
        let mut command = self.call(ViewScript::Append, &[]);
        command.arg(views);
        Ok(self.run(&self.appending, &command).await?.answer != ViewAnswer::Full)
    }

    /// Appends an entry without views, also if Redis is full: only the time of the log advances.
    pub async fn advance(&self) -> Result<(), Refusal> {
        self.run(&self.owning, &self.call(ViewScript::Advance, &[])).await.map(drop)
    }

    /// Takes the partition over with this lease, unless another process holds its own. `holder` names this process.
    pub async fn acquire(&self, holder: &str, lease: Duration) -> Result<Acquired, Refusal> {
        let mut command = self.call(ViewScript::Acquire, &[]);
        command.arg(holder).arg(lease.as_millis() as u64);
        let mut reply = self.run(&self.owning, &command).await?;
        if reply.answer == ViewAnswer::Held {
            return Ok(Acquired::Held(Duration::from_millis(reply.number()?)));
        }
        let epoch = reply.number()?;
        let mut position = || StreamId::parse(&reply.text()?).ok_or_else(|| defect("no position"));
        let (position, settled) = (position()?, Settled { deltas: position()?, late: position()? });
        Ok(Acquired::Owned(Ownership { epoch, lease, position, settled }))
    }

    /// Commits, and renews the lease. The same commit may be sent again until its answer comes. `is_full`: no more views are
    /// accepted, until a commit says otherwise. Returns the record of the deltas; `None`: there are none, or an earlier call has
    /// written it.
    pub async fn commit(
        &self,
        owner: &Ownership,
        commit: &Commit,
        is_full: bool,
    ) -> Result<Option<StreamId>, OwnerError> {
        self.commit_for(owner, commit, owner.lease, if is_full { "1" } else { "0" }).await
    }

    /// Renews the lease.
    pub async fn renew(&self, owner: &Ownership) -> Result<(), OwnerError> {
        self.commit_nothing(owner, owner.lease).await.map(drop)
    }

    /// Gives the partition back: the next owner need not wait for the lease.
    pub async fn release(&self, owner: &Ownership) -> Result<(), OwnerError> {
        self.commit_nothing(owner, Duration::ZERO).await.map(drop)
    }

    async fn commit_nothing(&self, owner: &Ownership, lease: Duration) -> Result<Option<StreamId>, OwnerError> {
        let Ownership { position, .. } = *owner;
        let nothing =
            Commit { from: position, to: position, deltas: Deltas::new(), replaced: Vec::new(), pairs: Vec::new() };
        self.commit_for(owner, &nothing, lease, "").await
    }

    /// `full`: 1, 0, or as before.
    async fn commit_for(
        &self,
        owner: &Ownership,
        commit: &Commit,
        lease: Duration,
        full: &str,
    ) -> Result<Option<StreamId>, OwnerError> {
        let Commit { from, to, deltas, replaced, pairs } = commit;
        let keys: Vec<&str> = pairs.iter().map(|(name, _, _)| name.as_str()).collect();
        let mut command = self.call(ViewScript::Commit, &keys);
        command.arg(lease.as_millis() as u64).arg(owner.epoch).arg(from.to_string()).arg(to.to_string());
        let replaced: Vec<String> = replaced.iter().map(StreamId::to_string).collect();
        command.arg(to.next().to_string()).arg(write_deltas(deltas)).arg(full).arg(replaced.join(" "));
        for (_, needed_from_ms, pairs) in pairs {
            command.arg(StreamId { ms: *needed_from_ms, number: 0 }.to_string()).arg(pairs.bytes());
        }
        let mut reply = self.owned(&command).await?;
        match reply.is_at_end() {
            true => Ok(None),
            false => Ok(Some(StreamId::parse(&reply.text()?).ok_or_else(|| defect("no position"))?)),
        }
    }

    /// Drops a record of deltas, which follows what is settled; `again` are those of its deltas that came too late: they become
    /// the late record. The same call may be sent again until its answer comes.
    pub async fn settle(
        &self,
        owner: &Ownership,
        settled: Settled,
        (is_late, at): (bool, StreamId),
        again: &Deltas,
    ) -> Result<(), OwnerError> {
        let from = if is_late { settled.late } else { settled.deltas };
        let mut command = self.call(ViewScript::Settle, &[]);
        command.arg(owner.epoch).arg(u8::from(is_late)).arg(from.to_string()).arg(at.to_string());
        command.arg(at.next().to_string()).arg(write_deltas(again));
        self.owned(&command).await.map(drop)
    }

    async fn owned(&self, command: &Cmd) -> Result<ScriptReply<ViewAnswer>, OwnerError> {
        let reply = self.run(&self.owning, command).await?;
        match reply.answer {
            ViewAnswer::Fenced => Err(OwnerError::Fenced),
            ViewAnswer::Ok | ViewAnswer::Held | ViewAnswer::Full => Ok(reply),
        }
    }

    /// The entries after a position, at most so many.
    pub async fn read(&self, after: StreamId, entries_max: usize) -> Result<Vec<Entry>, OwnerError> {
        let entries = self.range(NAMES[0], &format!("({after}"), entries_max).await?;
        Ok(entries.into_iter().map(|(position, views)| Entry { position, views }).collect())
    }

    /// The next record of deltas after a position.
    pub async fn next_deltas(&self, after: StreamId) -> Result<Option<WaitingDeltas>, OwnerError> {
        self.next_of(NAMES[2], after).await
    }

    /// The late record, if there is one after this position.
    pub async fn late_deltas(&self, after: StreamId) -> Result<Option<WaitingDeltas>, OwnerError> {
        self.next_of(NAMES[3], after).await
    }

    async fn next_of(&self, stream: &str, after: StreamId) -> Result<Option<WaitingDeltas>, OwnerError> {
        let is_late = stream == NAMES[3];
        let found = self.range(stream, &format!("({after}"), 1).await?.pop();
        let read = |(at, bytes): (StreamId, Vec<u8>)| {
            let (deltas, is_named) = read_deltas(&bytes).ok_or_else(|| defect("deltas that cannot be read"))?;
            let Partition { number, log_id, .. } = self;
            // A record of an earlier version may have counted with its token.
            let token = match (is_late, is_named) {
                // Both streams may have the same id.
                (true, _) => format!("v{log_id}/{number}/late/{at}"),
                (false, true) => format!("v{log_id}/{number}/{at}"),
                (false, false) => format!("v{number}/{at}"),
            };
            Ok(WaitingDeltas { at, is_late, token, deltas })
        };
        found.map(read).transpose()
    }

    /// All pairs of one kind, in the order of their times.
    pub async fn pairs(&self, name: &str, mut pair: impl FnMut(&Pair, u64)) -> Result<(), Refusal> {
        /// Entries that are read at once.
        const PAGE_MAX: usize = 64;
        /// About so many bytes are read at once, if entries are as large as those of the page before: between two pages the owner renews
        /// its lease.
        const PAGE_BYTES: usize = 1_048_576;
        let (mut after, mut entries_max) = (StreamId::default(), 1);
        loop {
            let page = self.range(name, &format!("({after}"), entries_max).await?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = *last;
            let bytes: usize = page.iter().map(|(_, bytes)| bytes.len()).sum();
            entries_max = (PAGE_BYTES * page.len() / bytes.max(1)).clamp(1, PAGE_MAX);
            page.iter().for_each(|(_, bytes)| PairsRecord::read(bytes, &mut pair));
        }
    }

    async fn range(&self, name: &str, from: &str, entries_max: usize) -> Result<Vec<(StreamId, Vec<u8>)>, Refusal> {
        let mut command = redis::cmd("XRANGE");
        command.arg(key(self.number, name)).arg(from).arg("+").arg("COUNT").arg(entries_max);
        let value = self.owning.call(&command).await?;
        let entries: Vec<(String, Vec<Vec<u8>>)> = from_redis_value(value).map_err(|_| defect("no entries"))?;
        let entry = |(id, mut fields): (String, Vec<Vec<u8>>)| {
            let position = StreamId::parse(&id).ok_or_else(|| defect("no position"))?;
            Ok((position, fields.pop().unwrap_or_default()))
        };
        entries.into_iter().map(entry).collect()
    }

    /// Runs a script.
    ///
    /// # Errors
    /// [`Refusal::ClockSkew`]: Redis's clock and this process's differ, and nothing has changed (X6).
    async fn run(&self, link: &Link, command: &Cmd) -> Result<ScriptReply<ViewAnswer>, Refusal> {
        ScriptReply::read(self.clock.eval(link, command, true).await?, ViewAnswer::from_code)
    }

    /// A script call with the keys of this partition, then those of the named pairs, and its clock argument.
    fn call(&self, script: ViewScript, pairs: &[&str]) -> Cmd {
        let keys: Vec<String> = NAMES.iter().chain(pairs).map(|name| key(self.number, name)).collect();
        let mut command = redis::cmd("EVALSHA");
        command.arg(script.sha1()).arg(keys.len()).arg(keys);
        self.clock.stamp(&mut command);
        command
    }
}

/// Durable as far as Redis's `appendfsync` says.
impl AppendViews for Partition {
    fn append<'a>(&'a self, views: &'a [u8]) -> BoxFuture<'a, Result<bool, crate::Refusal>> {
        Box::pin(async move { Ok(self.append_entry(views).await?) })
    }
}

fn defect(what: &str) -> Refusal {
    ScriptReply::<ViewAnswer>::defect(what)
}
