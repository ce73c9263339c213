//! The connections to one Redis: commands, scripts, and the wait for replicas.

use crate::LinkError;
use crate::condition::Condition;
use crate::connection::{Connection, time_of};
use crate::error::{MOVED, is_of_a_replica};
use crate::offset::Sight;
use crate::replicas::{self, ReplicaWait, first_key, write_behind};
use crate::scan::ScanPosition;
use crate::script_reply::refused_at;
use crate::slot::{Open, Slot};
use crate::source::Source;
use crate::state::StoreState;
use crate::timeline::{Lineage, Timeline};
use redis::{Cmd, ErrorKind, InfoDict, Pipeline, RedisResult, ServerErrorKind, Value};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A future that is compiled here. An `async fn` is compiled again in each crate that awaits it, with all that it awaits; these
/// functions took seven crates a minute. One allocation costs little where a command goes to Redis.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Makes the call that takes the place of another one.
pub(crate) type Again<'a> = &'a (dyn Fn() -> Cmd + Sync);

/// Connections for calls that wait for replicas. WAIT keeps back the replies behind it, so calls on different queues do not
/// share one; those on one queue do, and stay in order.
const WAITING_SLOTS: usize = 8;

/// The connections to one Redis. Many callers share them.
pub struct Link {
    source: Source,
    replicas: ReplicaWait,
    /// The texts of the scripts that [`Link::eval`] calls by their hashes.
    scripts: Vec<&'static str>,
    /// The first is for calls that do not wait for replicas.
    slots: Vec<Slot>,
    /// Nothing is sent while the store is not what it was.
    store: Option<Arc<StoreState>>,
    /// Nothing is sent to a Redis that does not meet it.
    condition: Option<Condition>,
}

impl Link {
    /// A link that connects with its first call. `scripts`: the texts of all scripts that [`Link::eval`] will call.
    pub fn new(
        source: impl Into<Source>,
        replicas: ReplicaWait,
        scripts: impl IntoIterator<Item = &'static str>,
    ) -> Self {
        let waiting = if replicas.replicas_min > 0 { WAITING_SLOTS } else { 0 };
        let slots = (0..=waiting).map(|_| Slot::default()).collect();
        let behind = (waiting > 0).then_some(replicas::WRITE);
        let scripts = scripts.into_iter().chain(behind).collect();
        Link { source: source.into(), replicas, scripts, slots, store: None, condition: None }
    }

    /// The same link, which refuses every call while the store is not what it was.
    #[must_use]
    pub fn guarded_by(self, store: Arc<StoreState>) -> Self {
        Link { store: Some(store), ..self }
    }

    /// The same link, which sends calls only to a Redis that meets this condition.
    #[must_use]
    pub fn on(self, condition: Condition) -> Self {
        Link { condition: Some(condition), ..self }
    }

    /// Called before anything is sent.
    fn check_store(&self, writes: bool) -> Result<(), LinkError> {
        let Some(store) = &self.store else { return Ok(()) };
        if writes {
            store.wrote();
        }
        store.check()
    }

    /// The replicas that a write waits for.
    pub(crate) fn replicas(&self) -> ReplicaWait {
        self.replicas
    }

    /// Whether it leads to a node of a Redis Cluster.
    pub(crate) fn is_on_cluster(&self) -> bool {
        matches!(&self.source, Source::Network(primary) if primary.is_of_cluster())
    }

    /// Where it leads, for another link.
    pub fn source(&self) -> &Source {
        &self.source
    }

    async fn open(&self, slot: usize) -> Result<Open<'_>, LinkError> {
        self.open_for(false, slot).await
    }

    /// `writes`: for a call that writes.
    async fn open_for(&self, writes: bool, slot: usize) -> Result<Open<'_>, LinkError> {
        let blocked = if slot == 0 { Duration::ZERO } else { self.replicas.longest() };
        self.slots[slot].open(writes, || self.connect(blocked)).await.map_err(LinkError::before)
    }

    /// Whether a call waits for replicas.
    fn waits(&self, writes: bool) -> bool {
        writes && self.replicas.replicas_min > 0
    }

    fn connect(&self, blocked: Duration) -> Boxed<'_, RedisResult<Connection>> {
        Box::pin(async move {
            let connection = Connection::open(&self.source, blocked).await?;
            if let Some(condition) = &self.condition {
                condition.check(connection.lineage().current).await?;
            }
            Ok(connection)
        })
    }

    /// The slot for a call that writes, and waits for replicas if the link does. `key`: calls with the same key stay in
    /// order.
    fn slot_of(&self, writes: bool, key: &[u8]) -> usize {
        if !writes || self.slots.len() == 1 {
            return 0;
        }
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        1 + hasher.finish() as usize % WAITING_SLOTS
    }

    /// Sends one command. If no connection could be opened, the command certainly did not take effect.
    pub fn call<'a>(&'a self, command: &'a Cmd) -> Boxed<'a, Result<Value, LinkError>> {
        Box::pin(async move {
            self.check_store(false)?;
            match call_over(&self.open(0).await?, command).await {
                Err(error) if error.is_moved() => call_over(&self.open(0).await?, command).await,
                other => other,
            }
        })
    }

    /// One call of a walk (SCAN, SSCAN, HSCAN, ZSCAN): what it has found, and where the walk continues; `None`: this was the last
    /// call. The command's arguments are those `before` its cursor, and those `after` it.
    pub fn scan<'a>(
        &'a self,
        position: ScanPosition,
        before: &'a [&'a str],
        after: &'a [&'a str],
    ) -> Boxed<'a, Result<(Value, Option<ScanPosition>), LinkError>> {
        Box::pin(async move {
            self.check_store(false)?;
            match self.scan_once(position, before, after).await {
                Err(error) if error.is_moved() => self.scan_once(position, before, after).await,
                other => other,
            }
        })
    }

    async fn scan_once(
        &self,
        position: ScanPosition,
        before: &[&str],
        after: &[&str],
    ) -> Result<(Value, Option<ScanPosition>), LinkError> {
        let open = self.open(0).await?;
        let timeline = open.connection.lineage().current;
        let mut command = Cmd::new();
        command.arg(before).arg(position.cursor_on(timeline)).arg(after);
        let reply = call_over(&open, &command).await?;
        let (cursor, found) = redis::from_redis_value(reply).map_err(|error| LinkError::after(error.into()))?;
        Ok((found, ScanPosition::after(timeline, cursor)))
    }

    /// The lineage of the node that it is connected to.
    pub(crate) async fn lineage(&self) -> Result<Lineage, LinkError> {
        Ok(self.open(0).await?.connection.lineage())
    }

    /// Reads one section of `INFO`.
    pub async fn info(&self, section: &str) -> Result<InfoDict, LinkError> {
        let info = self.call(redis::cmd("INFO").arg(section)).await?;
        redis::from_redis_value(info).map_err(|error| LinkError::after(error.into()))
    }

    /// Redis's clock, in Unix ms.
    pub async fn time_ms(&self) -> Result<u64, LinkError> {
        Ok(self.time_on_timeline().await?.0)
    }

    /// Redis's clock, in Unix ms, and the timeline of the node that was read.
    pub(crate) async fn time_on_timeline(&self) -> Result<(u64, Timeline), LinkError> {
        self.check_store(false)?;
        let open = self.open(0).await?;
        let time = call_over(&open, &redis::cmd("TIME")).await?;
        let time_ms = time_of(time).map_err(|error| LinkError::after(error.into()))?;
        Ok((time_ms, open.connection.lineage().current))
    }

    /// Sends many commands in one pipeline. An answer may be a [`Value::ServerError`]: the error of that command alone.
    /// `writes`: wait for the replicas behind them.
    pub fn calls<'a>(&'a self, commands: &'a Pipeline, writes: bool) -> Boxed<'a, Result<Vec<Value>, LinkError>> {
        Box::pin(async move {
            if commands.is_empty() {
                return Ok(Vec::new());
            }
            self.check_store(writes)?;
            match self.calls_once(commands, writes).await {
                // No command was executed, and the next connection leads to the node that has the slot now.
                Ok(answers) if answers.iter().all(|answer| refusal_of(answer) == Some(MOVED)) => {
                    self.calls_once(commands, writes).await
                }
                other => other,
            }
        })
    }

    async fn calls_once(&self, commands: &Pipeline, writes: bool) -> Result<Vec<Value>, LinkError> {
        let open = self.open_for(writes, self.slot_of(writes, b"")).await?;
        let sent_at = Instant::now();
        if !self.waits(writes) {
            return self.calls_over(&open, commands, writes.then_some(sent_at)).await;
        }
        let mut commands = commands.clone();
        let behind = commands.cmd_iter().next().map(write_behind).unwrap_or_default();
        commands.add_command(behind.clone());
        let mut answers = self.calls_over(&open, &commands, Some(sent_at)).await?;
        let written = answers.pop().unwrap_or(Value::Nil);
        if answers.iter().any(|answer| refusal_of(answer).is_none()) {
            self.wait_for_replicas(&open, &behind, written).await?;
        }
        Ok(answers)
    }

    /// `sent_at`: of a pipeline that writes.
    async fn calls_over(
        &self,
        open: &Open<'_>,
        commands: &Pipeline,
        sent_at: Option<Instant>,
    ) -> Result<Vec<Value>, LinkError> {
        let answers = match open.connection.clone().calls(commands).await {
            Ok(answers) => answers,
            Err(error) => {
                let error = LinkError::after(error);
                open.failed(&error).await;
                return Err(error);
            }
        };
        let is_elsewhere = |code: Option<&str>| code == Some(MOVED) || is_of_a_replica(code);
        let refused = answers.iter().find_map(|answer| match answer {
            Value::ServerError(error) if is_elsewhere(Some(error.code())) => Some(error.clone()),
            _ => None,
        });
        match (refused, sent_at) {
            (Some(error), _) => open.failed(&error.into()).await,
            (None, Some(sent_at)) => open.connection.has_written(sent_at),
            (None, None) => {}
        }
        Ok(answers)
    }

    /// Calls a script by its hash (EVALSHA). Loads all scripts if Redis does not have it (after a restart or SCRIPT
    /// FLUSH). `writes`: wait for the replicas behind it.
    pub fn eval<'a>(&'a self, command: &'a Cmd, writes: bool) -> Boxed<'a, Result<Value, LinkError>> {
        self.eval_on(None, command, None, writes)
    }

    /// As [`eval`](Link::eval), for a call that was made for this timeline: where the connection leads to another one, the
    /// call is not sent. `again`: what to send instead where a node has refused the call unread.
    pub(crate) fn eval_on<'a>(
        &'a self,
        timeline: Option<Timeline>,
        command: &'a Cmd,
        again: Option<Again<'a>>,
        writes: bool,
    ) -> Boxed<'a, Result<Value, LinkError>> {
        Box::pin(async move {
            self.check_store(writes)?;
            match self.eval_once(timeline, command, again, writes).await {
                // The connection was dropped, and the next one leads to the node that has the slot now.
                Err(error) if error.is_moved() => {
                    let again = again.map(|again| again());
                    self.eval_once(timeline, again.as_ref().unwrap_or(command), None, writes).await
                }
                other => other,
            }
        })
    }

    /// The primary that a call for this timeline must not be sent to: of another timeline, by its own word of now. `None`: it is on this one.
    pub(crate) async fn elsewhere(
        &self,
        timeline: Timeline,
        command: &Cmd,
        writes: bool,
    ) -> Result<Option<Sight>, LinkError> {
        let slot = self.slot_of(writes, first_key(command));
        let found = self.open_confirmed(writes, slot, |current| current == timeline).await?.connection.sight();
        Ok((found.lineage.current != timeline).then_some(found))
    }

    /// The connection. If its timeline is in doubt, Redis has just confirmed it, or it is another connection.
    async fn open_confirmed(
        &self,
        writes: bool,
        slot: usize,
        is_in_doubt: impl FnOnce(Timeline) -> bool,
    ) -> Result<Open<'_>, LinkError> {
        let open = self.open_for(writes, slot).await?;
        let is_in_doubt = is_in_doubt(open.connection.lineage().current);
        if !is_in_doubt || open.connection.clone().is_on_its_timeline().await {
            return Ok(open);
        }
        open.abandon().await;
        self.open_for(writes, slot).await
    }

    async fn eval_once(
        &self,
        timeline: Option<Timeline>,
        command: &Cmd,
        again: Option<Again<'_>>,
        writes: bool,
    ) -> Result<Value, LinkError> {
        let slot = self.slot_of(writes, first_key(command));
        let is_for_another = |found| timeline.is_some_and(|timeline| timeline != found);
        // No call would find out that Redis has closed this connection, because none is sent over it; and what it says of
        // itself would keep calls from the connections to the Redis that runs now.
        let open = self.open_confirmed(writes, slot, is_for_another).await?;
        let found = open.connection.sight();
        if is_for_another(found.lineage.current) {
            return Err(LinkError::other_timeline(found));
        }
        let sent_at = Instant::now();
        let behind = self.waits(writes).then(|| write_behind(command));
        let (answer, written) = match self.eval_over(&open, command, behind.as_ref()).await {
            Err(error) if error.source.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.load_scripts_over(&open).await?;
                let again = again.map(|again| again());
                self.eval_over(&open, again.as_ref().unwrap_or(command), behind.as_ref()).await?
            }
            other => other?,
        };
        if writes {
            open.connection.has_written(sent_at);
        }
        // A script that refuses a call for its stamp has written nothing.
        if let Some(behind) = behind.as_ref().filter(|_| refused_at(&answer).is_none()) {
            self.wait_for_replicas(&open, behind, written).await?;
        }
        Ok(answer)
    }

    /// The answers to a script call and to the write `behind` it. They are sent together, so the write costs no further round trip;
    /// and WAIT is sent later, because it would keep back the calls of others that have been sent meanwhile.
    async fn eval_over(
        &self,
        open: &Open<'_>,
        command: &Cmd,
        behind: Option<&Cmd>,
    ) -> Result<(Value, Value), LinkError> {
        let Some(behind) = behind else { return Ok((call_over(open, command).await?, Value::Nil)) };
        let mut both = Pipeline::with_capacity(2);
        both.add_command(command.clone()).add_command(behind.clone());
        let mut answers = self.calls_over(open, &both, None).await?.into_iter();
        let mut next = || answers.next().unwrap_or(Value::Nil);
        let (answer, written) = (next(), next());
        Ok((answer.extract_error().map_err(LinkError::after)?, written))
    }

    /// Waits until enough replicas have what was written over this connection. `written`: the answer to the write `behind` the call,
    /// without which WAIT might wait for nothing.
    async fn wait_for_replicas(&self, open: &Open<'_>, behind: &Cmd, written: Value) -> Result<(), LinkError> {
        let waited = async {
            match written.extract_error() {
                // The scripts of the call were there already.
                Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                    self.load_scripts_over(open).await?;
                    call_over(open, behind).await?;
                }
                other => drop(other.map_err(LinkError::after)?),
            }
            call_over(open, &self.replicas.command()).await
        };
        let reached = match Box::pin(waited).await {
            Ok(reply) => ReplicaWait::reached(&reply),
            // An answer that is an error comes from a primary that has become a replica since the call, or refuses writes since.
            Err(error) => {
                open.abandon().await;
                return Err(LinkError::unconfirmed(true, error.source.to_string()));
            }
        };
        if reached >= i64::from(self.replicas.replicas_min) {
            return Ok(());
        }
        let how = if self.replicas.fsync { "have fsynced" } else { "have" };
        let why = format!("{reached} of {} replicas {how} the write", self.replicas.replicas_min);
        Err(LinkError::unconfirmed(false, why))
    }

    /// Loads all scripts into Redis.
    pub async fn load_scripts(&self) -> Result<(), LinkError> {
        self.load_scripts_over(&self.open(0).await?).await
    }

    async fn load_scripts_over(&self, open: &Open<'_>) -> Result<(), LinkError> {
        for script in &self.scripts {
            call_over(open, redis::cmd("SCRIPT").arg("LOAD").arg(*script)).await?;
        }
        Ok(())
    }
}

async fn call_over(open: &Open<'_>, command: &Cmd) -> Result<Value, LinkError> {
    match open.connection.clone().call(command).await.and_then(Value::extract_error) {
        Ok(value) => Ok(value),
        Err(error) => {
            let error = LinkError::after(error);
            open.failed(&error).await;
            Err(error)
        }
    }
}

/// The code of an answer that is an error.
fn refusal_of(answer: &Value) -> Option<&str> {
    match answer {
        Value::ServerError(error) => Some(error.code()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::Client;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tallystone_model::Applied;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn q16_callers_of_a_redis_that_hangs_fail_together() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("redis://{}", listener.local_addr().expect("a bound port"));
        let attempts = Arc::new(AtomicUsize::new(0));
        let counted = attempts.clone();
        tokio::spawn(async move {
            let mut silent = Vec::new();
            while let Ok((connection, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                silent.push(connection);
            }
        });
        let link = Arc::new(Link::new(Client::open(url).expect("a good address"), ReplicaWait::default(), []));
        let call = |_| {
            let link = link.clone();
            tokio::spawn(async move { link.call(&redis::cmd("PING")).await })
        };
        for answer in (0..20).map(call).collect::<Vec<_>>() {
            assert!(answer.await.expect("no panic").is_err_and(|error| error.applied == Applied::No));
        }
        assert_eq!(attempts.load(Ordering::Relaxed), 1, "they wait for one attempt");
    }
}
