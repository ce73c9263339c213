//! Everything around the servers of one episode: virtual time, the one Redis, the network, and what goes wrong.

use super::faults::{Fault, OF_MOVED_SLOTS, OF_MOVING_SLOTS, SERVERS, Trip};
use super::journal::Journal;
use super::plan::Plan;
use crate::node::{SimulatedRedis, refusal};
use crate::scripting::locked;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use redis::{Cmd, RedisResult, Value};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tallystone_link::{VirtualClocks, set_virtual_clocks};
use tallystone_model::limits::CLOCK_SKEW_MAX_MS;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

/// When an episode begins: a time in 2026, Unix ms.
const BEGIN_MS: i64 = 1_780_000_000_000;
/// The last steps that a report shows: an episode has some hundreds.
const TRACED: usize = 2_000;
/// Steps of a clock keep it within this distance of the right time, so that two clocks stay within the bound.
const OFFSET_MS_MAX: i64 = CLOCK_SKEW_MAX_MS as i64 / 3;

/// What an episode has met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// Failovers.
    pub failovers: u64,
    /// Writes that these lost.
    pub writes_lost: u64,
    /// Failovers that lost the first writes after an earlier one.
    pub timelines_lost: u64,
    /// Restarts of Redis.
    pub restarts: u64,
    /// Servers that died.
    pub crashes: u64,
    /// Steps of clocks.
    pub clock_steps: u64,
    /// Moves of the slot to another node.
    pub slots_moved: u64,
    /// Commands that were not executed because the slot moves or has moved.
    pub slot_refusals: u64,
    /// Requests and replies that did not arrive.
    pub messages_lost: u64,
    /// Calls of scripts.
    pub script_calls: u64,
    /// Shards that were created, the first ones of queues included.
    pub shards_created: u64,
    /// Shards that were deleted.
    pub shards_deleted: u64,
}

impl Met {
    /// Adds what another episode has met.
    pub fn add(&mut self, other: &Met) {
        self.failovers += other.failovers;
        self.writes_lost += other.writes_lost;
        self.timelines_lost += other.timelines_lost;
        self.restarts += other.restarts;
        self.crashes += other.crashes;
        self.clock_steps += other.clock_steps;
        self.slots_moved += other.slots_moved;
        self.slot_refusals += other.slot_refusals;
        self.messages_lost += other.messages_lost;
        self.script_calls += other.script_calls;
        self.shards_created += other.shards_created;
        self.shards_deleted += other.shards_deleted;
    }
}

/// A node that no longer has the slot. Its clock and its timeline are no others for that.
struct FormerNode {
    offset_ms: i64,
    timeline: u32,
}

struct State {
    chance: StdRng,
    has_faults: bool,
    redis_offset_ms: i64,
    server_offsets_ms: [i64; SERVERS],
    /// By how much Redis's clock was set in all, while it was the primary.
    redis_set_ms: u64,
    /// By how much Redis's clock is wrong beyond the bound, and until when (virtual ms).
    skew: Option<(i64, u64)>,
    /// How often each server has died.
    deaths: [u64; SERVERS],
    /// Raised when all connections break.
    generation: u64,
    /// The nodes that had the slot of the store, in order. Connections to them stay open.
    former: Vec<FormerNode>,
    /// Until when (virtual ms) the slot moves, and by how much the clock of the other node differs.
    moving: Option<(u64, i64)>,
    down_until_ms: u64,
    journal: Journal,
    met: Met,
    trace: Option<VecDeque<String>>,
}

impl State {
    /// The number of the node with the slot.
    fn node(&self) -> u64 {
        self.former.len() as u64
    }

    /// What a node answers about keys that it does not have, or not all of them; `None`: it executes the command.
    fn refusal_by(&mut self, node: u64) -> Option<&'static str> {
        if node != self.node() {
            return Some(OF_MOVED_SLOTS);
        }
        self.moving?;
        // Of a key that has not moved yet, the node still knows everything.
        OF_MOVING_SLOTS.get(self.chance.random_range(0..=OF_MOVING_SLOTS.len())).copied()
    }
}

/// A step of a clock, which stays near enough to the others.
fn moved(offset_ms: i64, step_ms: i64) -> i64 {
    (offset_ms + step_ms).clamp(-OFFSET_MS_MAX, OFFSET_MS_MAX)
}

/// See the module.
pub(super) struct World {
    redis: Arc<SimulatedRedis>,
    began: Instant,
    /// Faults are rarer by this factor.
    calm: u32,
    state: Mutex<State>,
    /// Notified when a server dies, in the order of the waiters: a watch channel would wake them in a random one.
    died: [Notify; SERVERS],
}

impl World {
    pub(super) fn new(redis: Arc<SimulatedRedis>, seed: u64, plan: &Plan, is_traced: bool) -> World {
        let state = State {
            chance: StdRng::seed_from_u64(seed),
            has_faults: false,
            redis_offset_ms: 0,
            redis_set_ms: 0,
            server_offsets_ms: [0; SERVERS],
            skew: None,
            deaths: [0; SERVERS],
            generation: 0,
            former: Vec::new(),
            moving: None,
            down_until_ms: 0,
            journal: Journal::new(plan.queues.iter().map(|(first, _)| first.clone())),
            met: Met::default(),
            trace: is_traced.then(VecDeque::new),
        };
        let died = std::array::from_fn(|_| Notify::new());
        World { redis, began: Instant::now(), calm: plan.calm, state: Mutex::new(state), died }
    }

    /// Virtual ms since the start.
    fn elapsed_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// The clocks of a server.
    pub(super) fn clocks_of(&self, server: usize) -> VirtualClocks {
        let steady_ms = self.elapsed_ms();
        let wall_ms = BEGIN_MS + steady_ms as i64 + locked(&self.state).server_offsets_ms[server];
        VirtualClocks { wall_ms: wall_ms as u64, steady_ms }
    }

    /// The clocks of this thread are those of a server from now on.
    pub(super) fn set_clocks_of(&self, server: usize) {
        set_virtual_clocks(Some(self.clocks_of(server)));
    }

    /// How often a server has died.
    pub(super) fn deaths(&self, server: usize) -> u64 {
        locked(&self.state).deaths[server]
    }

    /// Ends when the server dies.
    pub(super) fn died(&self, server: usize) -> Notified<'_> {
        self.died[server].notified()
    }

    /// From now on things go wrong, or no longer do.
    pub(super) fn set_faults(&self, has_faults: bool) {
        let mut state = locked(&self.state);
        state.has_faults = has_faults;
        (state.skew, state.moving) = (None, None);
        // What was written before is on every replica.
        self.redis.keyspace().forget_writes();
    }

    pub(super) fn met(&self) -> Met {
        let state = locked(&self.state);
        let (shards_created, shards_deleted) = (state.journal.created, state.journal.deleted);
        Met { shards_created, shards_deleted, ..state.met }
    }

    /// Which connections there are: others are broken.
    pub(super) fn generation(&self) -> u64 {
        locked(&self.state).generation
    }

    /// The node to which a new connection leads.
    pub(super) fn node(&self) -> u64 {
        locked(&self.state).node()
    }

    pub(super) fn is_down(&self) -> bool {
        self.elapsed_ms() < locked(&self.state).down_until_ms
    }

    pub(super) fn draw_trip(&self) -> Trip {
        let mut state = locked(&self.state);
        if !state.has_faults {
            return Trip::QUIET;
        }
        let trip = Trip::draw(&mut state.chance, self.calm);
        state.met.messages_lost += u64::from(trip.loses_request || trip.loses_reply);
        trip
    }

    /// Takes what the judge and a report need.
    pub(super) fn take_journal(&self) -> Journal {
        std::mem::replace(&mut locked(&self.state).journal, Journal::new([]))
    }

    pub(super) fn take_trace(&self) -> Vec<String> {
        locked(&self.state).trace.take().into_iter().flatten().collect()
    }

    /// Adds a line to the trace, if there is one.
    pub(super) fn trace(&self, line: impl FnOnce() -> String) {
        self.add_line(&mut locked(&self.state), line);
    }

    fn add_line(&self, state: &mut State, line: impl FnOnce() -> String) {
        let at_ms = self.elapsed_ms();
        if let Some(trace) = &mut state.trace {
            if trace.len() == TRACED {
                trace.pop_front();
            }
            trace.push_back(format!("{at_ms:>7} ms  {}", line()));
        }
    }

    /// Executes a command that a server has sent to this node. Afterwards something may go wrong.
    pub(super) fn execute(&self, server: usize, node: u64, command: &Cmd) -> RedisResult<Value> {
        let elapsed_ms = self.elapsed_ms();
        let mut state = locked(&self.state);
        let state = &mut *state;
        self.move_slot(state, elapsed_ms);
        if super::names::has_keys(command)
            && let Some(code) = state.refusal_by(node)
        {
            state.met.slot_refusals += 1;
            self.add_line(state, || format!("server {server}: {} → {code}", super::names::shown(command)));
            return refusal(code);
        }
        state.skew = state.skew.filter(|(_, until_ms)| elapsed_ms < *until_ms);
        let former = state.former.get(node as usize);
        let offset_ms = former.map_or_else(
            || state.redis_offset_ms + state.skew.map_or(0, |(by_ms, _)| by_ms),
            |former| former.offset_ms,
        );
        let now_ms = BEGIN_MS + elapsed_ms as i64 + offset_ms;
        let now_us = now_ms as u64 * 1_000 + state.met.script_calls % 1_000;
        self.redis.keyspace().set_time(now_us);
        let is_script = super::names::is_script(command);
        let timeline = former.map(|former| self.redis.show_timeline(former.timeline));
        let (reply, has_changed) = self.redis.execute(command);
        if let Some(timeline) = timeline {
            self.redis.show_timeline(timeline);
        }
        state.met.script_calls += u64::from(is_script);
        let mut keyspace = self.redis.keyspace();
        // No caller waits on a server of an episode.
        drop(keyspace.take_published());
        if has_changed {
            state.journal.wrote(&mut keyspace, elapsed_ms, state.redis_set_ms);
        }
        drop(keyspace);
        if state.trace.is_some() {
            self.add_line(state, || {
                format!("server {server}: {} → {}", super::names::shown(command), super::names::reply(&reply))
            });
        }
        if state.has_faults
            && let Some(fault) = Fault::draw(&mut state.chance, self.calm)
        {
            self.add_line(state, || format!("** {fault:?}"));
            self.suffer(state, fault, elapsed_ms);
        }
        reply
    }

    /// If the time of its move is over, the slot is on another node: with all keys, and another timeline.
    fn move_slot(&self, state: &mut State, elapsed_ms: u64) {
        let Some((_, clock_step_ms)) = state.moving.filter(|(until_ms, _)| *until_ms <= elapsed_ms) else { return };
        state.moving = None;
        state.met.slots_moved += 1;
        let timeline = self.redis.begin_timeline();
        state.former.push(FormerNode { offset_ms: state.redis_offset_ms, timeline });
        state.redis_offset_ms = moved(state.redis_offset_ms, clock_step_ms);
        self.add_line(state, || "** the slot is on another node".to_owned());
    }

    fn suffer(&self, state: &mut State, fault: Fault, elapsed_ms: u64) {
        match fault {
            Fault::Failover { writes, clock_step_ms, down_ms } => {
                let mut keyspace = self.redis.keyspace();
                let lost = keyspace.lose_writes(writes);
                state.met.timelines_lost += u64::from(state.journal.lost(lost, &mut keyspace));
                drop(keyspace);
                self.redis.begin_timeline();
                state.generation += 1;
                state.redis_offset_ms = moved(state.redis_offset_ms, clock_step_ms);
                state.down_until_ms = elapsed_ms + down_ms;
                state.met.failovers += 1;
                state.met.writes_lost += lost as u64;
            }
            Fault::Restart { down_ms } => {
                self.redis.begin_timeline();
                state.generation += 1;
                state.down_until_ms = elapsed_ms + down_ms + 1;
                state.met.restarts += 1;
            }
            Fault::Crash { server } => {
                state.deaths[server] += 1;
                self.died[server].notify_waiters();
                state.met.crashes += 1;
            }
            Fault::RedisClock { step_ms } => {
                state.redis_offset_ms = moved(state.redis_offset_ms, step_ms);
                state.redis_set_ms += step_ms.unsigned_abs();
                state.met.clock_steps += 1;
            }
            Fault::ServerClock { server, step_ms } => {
                state.server_offsets_ms[server] = moved(state.server_offsets_ms[server], step_ms);
                state.met.clock_steps += 1;
            }
            Fault::Skew { step_ms, lasts_ms } => {
                state.skew = Some((step_ms, elapsed_ms + lasts_ms));
                state.met.clock_steps += 1;
            }
            Fault::SlotMoves { lasts_ms, clock_step_ms } => {
                state.moving.get_or_insert((elapsed_ms + lasts_ms, clock_step_ms));
            }
        }
    }
}
