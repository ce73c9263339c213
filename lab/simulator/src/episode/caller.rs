//! A caller of an episode: it draws calls, makes them through any server, repeats those whose outcome is unknown, and takes
//! note of every answer.

use super::call::{Call, CallAnswer};
use super::faults::SERVERS;
use super::plan::{Plan, another_number};
use super::servers::Servers;
use super::world::World;
use crate::judge::{EXCLUSIVITY_KEY, History, SeenLease, SeenRevision, SeenTransition};
use crate::scripting::locked;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tallystone_model::store::{
    Cancellation, DequeueRequest, Extension, LeaseRef, MessagePatch, Release, Ticket, Transition, Verdict,
};
use tallystone_model::{MessageId, Metadata, NewMessage, QueuePatch, Refusal};
use tokio::time::sleep;

/// Tries of one call.
const TRIES: usize = 4;
/// The share of calls about numbers of shards, where these change.
const CHANGES: f64 = 0.15;
/// Exclusivity values: few, so that they meet.
const VALUES: u32 = 4;

/// See the module.
pub(super) struct Caller {
    number: u64,
    chance: StdRng,
    world: Arc<World>,
    servers: Arc<Servers>,
    plan: Arc<Plan>,
    history: Arc<Mutex<History>>,
    held: Vec<(usize, LeaseRef)>,
    calls: u64,
    messages: u64,
}

impl Caller {
    pub(super) fn new(
        number: u64,
        seed: u64,
        world: &Arc<World>,
        servers: &Arc<Servers>,
        plan: &Arc<Plan>,
        history: &Arc<Mutex<History>>,
    ) -> Caller {
        Caller {
            number,
            chance: StdRng::seed_from_u64(seed.wrapping_mul(31).wrapping_add(number + 1)),
            world: world.clone(),
            servers: servers.clone(),
            plan: plan.clone(),
            history: history.clone(),
            held: Vec::new(),
            calls: 0,
            messages: 0,
        }
    }

    /// Makes calls until the episode has had its number of script calls.
    pub(super) async fn run(mut self) {
        while self.world.met().script_calls < self.plan.script_calls {
            let think_ms = match self.chance.random_range(0..100) {
                0..3 => self.chance.random_range(300..3_000),
                _ => self.chance.random_range(0..12) * u64::from(self.plan.calm),
            };
            sleep(Duration::from_millis(think_ms)).await;
            let at = self.chance.random_range(0..self.plan.queues.len());
            let (at, call) = self.draw(at);
            self.make(at, call).await;
        }
    }

    fn draw(&mut self, at: usize) -> (usize, Call) {
        if !self.plan.changing.is_empty() && self.chance.random_bool(CHANGES) {
            return self.draw_of_shards();
        }
        let draw = self.chance.random_range(0..100);
        if (52..80).contains(&draw) && !self.held.is_empty() {
            let held = self.chance.random_range(0..self.held.len());
            let (at, lease) = match self.chance.random_bool(0.8) {
                true => self.held.swap_remove(held),
                // The lease has ended, as far as this caller knows, when it is used again.
                false => self.held[held].clone(),
            };
            return (at, self.draw_of_lease(draw, lease));
        }
        let call = match draw {
            0..28 => Call::Enqueue((0..self.chance.random_range(1..4)).map(|_| self.new_message(at)).collect()),
            28..80 => self.dequeue(),
            80..84 => Call::Cancel(Cancellation {
                id: self.known_id(),
                fencing_token: 0,
                force: self.chance.random_bool(0.3),
                reason: "unwanted".to_owned(),
            }),
            84..87 => Call::Redrive(self.known_id()),
            87..91 => {
                let (leases_s, retained_ms) = self.plan.ranges();
                Call::Configure(QueuePatch {
                    lease_ms: Some(1_000 * self.chance.random_range(leases_s)),
                    terminal_retention_ms: self.chance.random_bool(0.3).then(|| self.chance.random_range(retained_ms)),
                    ..QueuePatch::default()
                })
            }
            91 => Call::Describe,
            92..94 => Call::Update(self.known_id(), self.patch()),
            94..96 => Call::Relay,
            96 if self.chance.random_bool(0.3) => Call::Purge { include_running: false },
            _ => Call::Sweep,
        };
        (at, call)
    }

    /// A change of the number of shards of a queue, or what completes and ends one.
    fn draw_of_shards(&mut self) -> (usize, Call) {
        let at = self.plan.changing[self.chance.random_range(0..self.plan.changing.len())];
        let call = match self.chance.random_range(0..10) {
            0..3 => {
                let shards = Some(another_number(&mut self.chance));
                Call::Configure(QueuePatch { shards, ..QueuePatch::default() })
            }
            3..5 => Call::Purge { include_running: self.chance.random_bool(0.6) },
            5 => Call::Sweep,
            _ => Call::CheckShards,
        };
        (at, call)
    }

    fn draw_of_lease(&mut self, draw: u32, lease: LeaseRef) -> Call {
        match draw {
            52..68 => Call::Complete(lease),
            68..72 => Call::Extend(Extension {
                lease,
                lease_ms: Some(self.chance.random_range(1_000..5_000)),
                request_id: self.request_id(),
            }),
            _ => Call::Release(Release {
                lease,
                delay_ms: [None, Some(0), Some(200)][self.chance.random_range(0..3)],
                reason: "again".to_owned(),
                verdict: [Verdict::Retry, Verdict::Undelivered, Verdict::Error][self.chance.random_range(0..3)],
            }),
        }
    }

    fn patch(&mut self) -> MessagePatch {
        let visible_at_ms = self.world.clocks_of(0).wall_ms + self.chance.random_range(0..400);
        MessagePatch {
            priority: self.chance.random_bool(0.5).then(|| self.chance.random_range(0..6)),
            visible_at_ms: self.chance.random_bool(0.5).then_some(visible_at_ms),
        }
    }

    fn request_id(&mut self) -> String {
        self.calls += 1;
        format!("{}-{}", self.number, self.calls)
    }

    fn dequeue(&mut self) -> Call {
        let (is_named, with_ticket) = (self.chance.random_bool(0.6), self.chance.random_bool(0.5));
        let request = DequeueRequest {
            worker: format!("w{}", self.number),
            limit: self.chance.random_range(1..4),
            lease_ms: self.chance.random_bool(0.5).then(|| self.chance.random_range(1_000..4_000)),
            filters: Vec::new(),
            request_id: if is_named { self.request_id() } else { String::new() },
        };
        self.calls += 1;
        // A ticket is of one caller: no other call of its slot is under way.
        let first = self.calls * TRIES as u64;
        let ticket = Ticket { server: self.number, slot: 0, first, number: first };
        Call::Dequeue(request, with_ticket.then_some(ticket))
    }

    fn known_id(&mut self) -> MessageId {
        let number = self.chance.random_range(0..=self.messages);
        self.id(number)
    }

    fn id(&self, number: u64) -> MessageId {
        MessageId::parse("id", format!("m{}-{number}", self.number)).expect("a valid id")
    }

    fn new_message(&mut self, at: usize) -> NewMessage {
        let is_new = self.chance.random_bool(0.93);
        self.messages += u64::from(is_new);
        let id = if is_new { self.id(self.messages) } else { self.known_id() };
        let value = format!("v{}", self.chance.random_range(0..VALUES));
        let pairs = if at == 0 { [(EXCLUSIVITY_KEY.to_owned(), value)].into() } else { Default::default() };
        NewMessage {
            metadata: Metadata::parse(pairs).expect("valid metadata"),
            payload: vec![b'p'; self.chance.random_range(0..20)].into(),
            invisibility_ms: self.chance.random_bool(0.1).then(|| self.chance.random_range(1..500)),
            max_attempts: self.chance.random_bool(0.2).then_some(2),
            coalesce: self.chance.random_bool(0.05),
            ..NewMessage::new(id, self.chance.random_range(0..6))
        }
    }

    /// Makes a call, and again while its outcome is unknown or Redis cannot be used.
    async fn make(&mut self, at: usize, mut call: Call) {
        self.calls += 1;
        let number = (self.number << 32) + self.calls;
        let mut server = self.chance.random_range(0..SERVERS);
        for _ in 0..TRIES {
            let shard = self.plan.first(at).clone();
            self.world.trace(|| format!("caller {} through server {server}: {call:?}", self.number));
            let made = call.clone();
            let answer = self.servers.call(server, async move |store| made.on(&store, &shard).await).await;
            self.world.trace(|| format!("caller {} got {answer:?}", self.number));
            match answer {
                Ok(answer) => {
                    let left = call.left_of(&answer);
                    self.note(at, number, answer);
                    match left {
                        Some(left) => call = left,
                        None => return,
                    }
                }
                Err(refusal) if refusal.is_unavailable() => {}
                Err(Refusal::Internal(why)) => {
                    return locked(&self.history).failures.push(format!("{call:?}: {why}"));
                }
                Err(_) => return,
            }
            sleep(Duration::from_millis(self.chance.random_range(1..400))).await;
            match &mut call {
                Call::Dequeue(_, Some(ticket)) => ticket.number += 1,
                _ => server = self.chance.random_range(0..SERVERS),
            }
        }
    }

    fn note(&mut self, at: usize, call: u64, answer: CallAnswer) {
        let queue = self.plan.first(at).queue.clone();
        let mut history = locked(&self.history);
        match answer {
            CallAnswer::Enqueued(items) => {
                let accepted = items.into_iter().flatten().map(|enqueued| (queue.clone(), enqueued.id));
                history.acknowledged.extend(accepted);
            }
            CallAnswer::Dequeued(dequeued) => {
                for lease in dequeued.leases.into_iter().flatten().flatten() {
                    let (id, fencing_token) = (lease.id, lease.fencing_token);
                    history.leases.push(SeenLease { queue: queue.clone(), id: id.clone(), fencing_token, call });
                    self.held.push((at, LeaseRef { id, fencing_token }));
                }
            }
            CallAnswer::Went(id, Ok(Transition { state, version })) => {
                history.transitions.push(SeenTransition { queue, id, state, version, lease: None });
            }
            CallAnswer::Ended(LeaseRef { id, fencing_token }, Ok(Transition { state, version })) => {
                history.transitions.push(SeenTransition { queue, id, state, version, lease: Some(fencing_token) });
            }
            CallAnswer::Queue(found) => {
                let config = format!("{:?}", found.config);
                history.revisions.push(SeenRevision { queue, revision: found.revision, config });
            }
            CallAnswer::Went(_, Err(_)) | CallAnswer::Ended(_, Err(_)) | CallAnswer::Done => {}
        }
    }
}
