//! The oracle and two servers on one Redis, side by side on one clock: every step on both, every answer compared.

use crate::property::call::{Call, CallReply, Tokens, shards};
use crate::property::compare::{Outcome, same};
use crate::property::program::{Act, QUEUES, Step};
use crate::property::sides::{WholeOracle, WholeRedis};
use crate::property::wakes::{Notifications, Wakes};
use crate::property::whole;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tallystone_model::oracle::Oracle;
use tallystone_model::store::{Depth, Queue, Swept};
use tallystone_model::{Cause, Message, MessageId, QueueConfig, Refusal, Shard, State, Store};
use tallystone_server::Sharded;
use tallystone_server::store;
use tallystone_tests::{Clock, SHARD_NUMBERS, TestRedis};

/// How long one server may take to learn of another: generous, for a loaded machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Where more are due, a Dequeue moves only some of them before it leases (`lib/due.lua`). On the oracle all of them move.
const DUE_MANY: u64 = 2_000;

/// Both sides of the comparison. Programs run on it one after the other.
pub(super) struct World {
    redis: Arc<TestRedis>,
    servers: [WholeRedis; 2],
    notified: [Arc<Notifications>; 2],
    clock: Arc<AtomicU64>,
    name: String,
    /// How many shards the queues of the programs have at first.
    shards: u16,
    runs: u64,
    /// What the programs so far have met.
    pub arrows: BTreeSet<(Option<State>, Option<State>, Cause)>,
}

/// How one run of a program went: the calls it made, and how it ended.
pub(super) struct Run {
    /// Begun.
    pub steps: usize,
    pub calls: Vec<String>,
    pub outcome: Outcome,
}

impl World {
    /// One on this Redis; `name` distinguishes it from others.
    pub(super) async fn new(redis: Arc<TestRedis>, name: String, shards: u16) -> Self {
        let clock = Clock::new().shared();
        let servers = [
            Sharded::new(Arc::new(redis.store(store::Clock::Test(clock.clone())).await)),
            Sharded::new(Arc::new(redis.store(store::Clock::Test(clock.clone())).await)),
        ];
        let notified = std::array::from_fn(|server| Notifications::by(servers[server].inner()));
        World { redis, servers, notified, clock, name, shards, runs: 0, arrows: BTreeSet::new() }
    }

    /// Fresh queues, at the same moment for every program. `patience` is how long one server may take to learn of
    /// another.
    pub(super) fn play(&mut self, patience: Duration) -> Play<'_> {
        self.runs += 1;
        self.clock.store(Clock::new().now_ms(), Ordering::SeqCst);
        let oracle = Arc::new(Oracle::new(self.clock.clone()));
        Play {
            oracles: std::array::from_fn(|_| Sharded::new(oracle.clone())),
            oracle,
            shards_each: self.shards,
            numbers: [self.shards; QUEUES],
            servers: &self.servers,
            redis: &self.redis,
            clock: &self.clock,
            shards: shards(&format!("{}/{}", self.name, self.runs)),
            tokens: Tokens::default(),
            wakes: Wakes::new(&self.notified, patience),
            steps: 0,
            calls: Vec::new(),
        }
    }

    /// Runs a program on fresh queues, all that can be seen compared every so many steps and at the end.
    pub(super) async fn run(&mut self, program: &[Step], steps_between_comparisons: usize, patience: Duration) -> Run {
        let mut play = self.play(patience);
        let outcome = play.all(program, steps_between_comparisons).await;
        let outcome = match outcome {
            Ok(()) => play.leaves_nothing().await,
            differs => differs,
        };
        let shards = play.shards.iter().flat_map(|first| (0..SHARD_NUMBERS).map(|number| first.sibling(number)));
        let events: Vec<_> = shards.flat_map(|shard| play.oracle.take_events(&shard)).collect();
        let Play { steps, calls, .. } = play;
        self.arrows.extend(events.into_iter().map(|event| (event.from, event.to, event.by)));
        Run { steps, calls, outcome }
    }
}

/// One program on its queues.
pub(super) struct Play<'a> {
    pub oracle: Arc<Oracle>,
    /// The oracle as each server sees it.
    oracles: [WholeOracle; 2],
    shards_each: u16,
    /// Behind the numbers of all shards that each queue had.
    numbers: [u16; QUEUES],
    pub servers: &'a [WholeRedis; 2],
    redis: &'a TestRedis,
    clock: &'a AtomicU64,
    pub shards: [Shard; QUEUES],
    tokens: Tokens,
    wakes: Wakes<'a>,
    steps: usize,
    calls: Vec<String>,
}

impl Play<'_> {
    /// The steps of a program.
    async fn all(&mut self, program: &[Step], steps_between_comparisons: usize) -> Outcome {
        for step in program {
            self.steps += 1;
            self.step(step).await?;
            if self.steps.is_multiple_of(steps_between_comparisons) || self.steps == program.len() {
                self.compare_all(step.server).await?;
            }
        }
        Ok(())
    }

    /// All that can be seen of every queue.
    pub(super) async fn compare_all(&self, server: usize) -> Outcome {
        for (shard, numbers) in self.shards.iter().zip(self.numbers) {
            whole::compare(&self.oracles[server], &self.servers[server], shard, 0..numbers).await?;
        }
        Ok(())
    }

    /// One step on both sides, as [`step_alone`](Play::step_alone); before a Dequeue, a sweep where very many messages are due.
    pub(super) async fn step(&mut self, step: &Step) -> Outcome {
        if matches!(step.act, Act::Dequeue { .. }) && self.are_many_due(&self.shards[step.queue]).await {
            self.step_alone(&Step { act: Act::Sweep, ..step.clone() }).await?;
        }
        self.step_alone(step).await?;
        if let Ok(found) = self.oracle.get_queue(&self.shards[step.queue].queue).await {
            let behind = found.shards().map(|shard| shard.number + 1);
            self.numbers[step.queue] = behind.fold(self.numbers[step.queue], u16::max);
        }
        Ok(())
    }

    /// Equal results, equal effects, and every necessary notification.
    async fn step_alone(&mut self, step: &Step) -> Outcome {
        let shard = &self.shards[step.queue];
        let now_ms = self.clock.load(Ordering::SeqCst);
        let call = Call::of(&step.act, step.queue, &mut self.tokens, now_ms).map(|call| match call {
            Call::Create(config) => Call::Create(QueueConfig { shards: self.shards_each, ..config }),
            call => call,
        });
        if matches!(step.act, Act::Finish) {
            return self.finish(step.server).await;
        }
        let Some(call) = call else {
            let to_ms = match step.act {
                Act::Pass { ms } => now_ms + ms,
                Act::PassToDue { and_ms } => self.next_due_ms(shard).await.unwrap_or(now_ms).max(now_ms) + and_ms,
                _ => now_ms,
            };
            self.clock.store(to_ms, Ordering::SeqCst);
            self.calls.push(format!("the clock moves on by {} ms", to_ms - now_ms));
            return Ok(());
        };
        let (redis, again) = (&self.servers[step.server], &self.servers[1 - step.server]);
        let (oracle, oracle_again) = (&self.oracles[step.server], &self.oracles[1 - step.server]);
        self.calls.push(format!("queue {}, server {}: {call:?}", step.queue, step.server));
        let before = self.wakes.notified(step.server, shard);
        let is_due = self.next_due_ms(shard).await.is_some_and(|due_ms| due_ms <= now_ms);
        let answer = call.on(oracle, shard).await;
        let answer_of_redis = call.on(redis, shard).await;
        // Messages that fall due in this very call may cause a notification before its result arrives.
        let notified = if is_due { before } else { self.wakes.notified(step.server, shard) };
        let mut swept = None;
        if let (CallReply::Swept(Ok(oracle)), CallReply::Swept(Ok(redis))) = (&answer, &answer_of_redis) {
            sweeps_in_time(oracle, redis)?;
            swept = Some(*redis);
        }
        let (answer, answer_of_redis) = (answer.comparable(), answer_of_redis.comparable());
        same("the answer", &answer, &answer_of_redis)?;
        let place = (oracle, shard, now_ms);
        self.wakes.after((step.queue, step.server, notified), (&call, &answer), swept.as_ref(), place).await?;
        self.tokens.learn(step.queue, &answer);
        let ids = touched(&call, &answer);
        let seen = see(redis, shard, &ids).await;
        same("what is there then", &see(oracle, shard, &ids).await, &seen)?;
        if call.changes_shards() && self.shards_each > 1 {
            self.servers_know_the_shards_of(step.queue).await;
        }
        // The next try of a ticket collects what earlier calls gave, whatever refused the first one, and it moves what is due in
        // shards that the first one did not call.
        let was_refused = matches!(answer, CallReply::Dequeued(Err(_)));
        let repeats_alike = self.shards_each == 1 || !(was_refused || is_due);
        if step.repeat && call.is_repeatable() && repeats_alike {
            self.calls.push("    the same again through the other server".to_owned());
            let events = || -> usize {
                let shards = (0..self.numbers[step.queue]).map(|number| shard.sibling(number));
                shards.map(|shard| self.oracle.events(&shard).len()).sum()
            };
            let (before, answer) = (events(), answer.repeated());
            let (call, repeated_alike) = match self.shards_each {
                1 => (call.clone(), call.on(oracle_again, shard).await),
                // A call over several shards has steps, which a repetition finds only as the next try of its ticket.
                _ => (call.tried_again(), call.tried_again().on(oracle_again, shard).await),
            };
            let comparable = |reply: CallReply| if self.shards_each == 1 { reply } else { reply.without_outlook() };
            let (answer, repeated_alike) = (comparable(answer), comparable(repeated_alike));
            same("the answer of the repetition on the oracle", &answer, &repeated_alike)?;
            same("the number of events", &before, &events())?;
            let repeated = comparable(call.on(again, shard).await);
            same("the answer of the repetition", &answer, &repeated)?;
            same("what is there after the repetition", &seen, &see(again, shard, &ids).await)?;
        }
        if matches!(call, Call::Delete) {
            // No two queues of one name are made at one moment.
            self.clock.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Lets all servers and their oracles read the present layout of a queue, because `conformance::shards` tests servers that have cached
    /// an earlier one. Each layout resets a server's guess where messages are, so both sides must read each layout.
    async fn servers_know_the_shards_of(&self, queue: usize) {
        let first = &self.shards[queue];
        let found = self.oracle.get_queue(&first.queue).await;
        for (server, oracle) in self.servers.iter().zip(&self.oracles) {
            drop(server.get_queue(&first.queue).await);
            for shard in found.iter().flat_map(Queue::shards) {
                drop(server.mend(&shard).await);
            }
            drop((server.depth(first, None).await, oracle.depth(first, None).await));
        }
    }

    /// The background job of a server. What it finds empty on Redis is empty on the oracle. It may remove shards later than the oracle,
    /// because Redis keeps the records of some ids that count as none.
    async fn finish(&mut self, server: usize) -> Outcome {
        self.calls.push(format!("the check of server {server}"));
        same("the strays with messages", &Ok(0), &self.servers[server].inner().check_shards().await)?;
        for queue in 0..QUEUES {
            let name = self.shards[queue].queue.clone();
            let found = self.servers[server].get_queue(&name).await;
            if found != self.oracle.get_queue(&name).await {
                drop(self.oracle.finish(&name));
                same("the queue without earlier shards", &self.oracle.get_queue(&name).await, &found)?;
                self.servers_know_the_shards_of(queue).await;
            }
        }
        Ok(())
    }

    async fn are_many_due(&self, shard: &Shard) -> bool {
        let oracle = &self.oracles[0];
        let Ok(depth) = oracle.depth(shard, None).await else { return false };
        if depth.invisible + depth.running <= DUE_MANY {
            return false;
        }
        let (now_ms, mut due) = (self.clock.load(Ordering::SeqCst), 0);
        for state in [State::Invisible, State::Running] {
            let page = oracle.list_messages(shard, state, "", DUE_MANY as usize + 1).await;
            let messages = page.into_iter().flat_map(|page| page.items);
            due += messages.filter(|message| message.due_ms <= now_ms).count() as u64;
        }
        due > DUE_MANY
    }

    async fn next_due_ms(&self, shard: &Shard) -> Option<u64> {
        let mut next = None;
        for shard in self.oracle.get_queue(&shard.queue).await.ok()?.shards() {
            for state in [State::Invisible, State::Running] {
                let page = self.oracle.list_messages(&shard, state, "", 1).await.ok()?;
                next = page.items.first().map(|message| message.due_ms).into_iter().chain(next).min();
            }
        }
        next
    }

    /// Everything purged and forgotten, no key is left but the outbox, which then goes too.
    pub(super) async fn leaves_nothing(&mut self) -> Outcome {
        const YEAR_MS: u64 = 365 * 86_400_000;
        let mut connection = self.redis.connection().await;
        let failed = |error: &dyn Debug| format!("the end of the program: {error:?}");
        for shard in &self.shards {
            let store = &self.servers[0];
            match store.get_queue(&shard.queue).await {
                Err(Refusal::QueueNotFound { .. }) => {}
                queue => {
                    queue.map_err(|error| failed(&error))?;
                    let _ = Call::Purge(true).on(store, shard).await;
                    self.clock.fetch_add(2 * YEAR_MS, Ordering::SeqCst);
                    let _ = Call::Sweep.on(store, shard).await;
                }
            }
            let find = || redis::cmd("KEYS").arg(format!("ts:{{{}/*}}:*", shard.queue)).take();
            let kept = |keys: Vec<String>| -> Vec<String> {
                let name = |key: &String| key.rsplit(':').next().unwrap_or_default().to_owned();
                let mut names: Vec<String> = keys.iter().map(name).collect();
                names.retain(|name| !["state", "config", "outbox", "deleted"].contains(&name.as_str()));
                names
            };
            let keys = find().query_async(&mut connection).await.map_err(|error| failed(&error))?;
            same("what an empty queue keeps", &Vec::new(), &kept(keys))?;
            let _ = store.delete_queue(&shard.queue).await;
            let keys: Vec<String> = find().query_async(&mut connection).await.map_err(|error| failed(&error))?;
            if keys.iter().any(|key| !key.ends_with(":outbox") && !key.ends_with(":deleted")) {
                return Err(format!("a deleted queue keeps {keys:?}"));
            }
            for key in keys {
                redis::cmd("UNLINK")
                    .arg(key)
                    .query_async::<()>(&mut connection)
                    .await
                    .map_err(|error| failed(&error))?;
            }
        }
        Ok(())
    }
}

/// Redis must not sweep later than the oracle.
fn sweeps_in_time(oracle: &Swept, redis: &Swept) -> Outcome {
    match (oracle.next_ms, redis.next_ms) {
        (None, _) => Ok(()),
        (Some(wanted), Some(planned)) if planned <= wanted => Ok(()),
        (wanted, planned) => Err(format!("the next sweep comes too late: {planned:?} instead of {wanted:?}")),
    }
}

fn touched(call: &Call, answer: &CallReply) -> Vec<MessageId> {
    match answer {
        CallReply::Dequeued(Ok(dequeued)) => {
            dequeued.leases.iter().flatten().flatten().map(|lease| lease.id.clone()).collect()
        }
        _ => call.ids(),
    }
}

type Seen = (Result<Depth, Refusal>, Result<Vec<Result<Message, Refusal>>, Refusal>);

async fn see<S: Store>(store: &S, shard: &Shard, ids: &[MessageId]) -> Seen {
    let messages = match ids {
        [] => Ok(Vec::new()),
        ids => store.get_messages(shard, ids.to_vec()).await,
    };
    (store.depth(shard, None).await, messages)
}
