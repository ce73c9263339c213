//! An exclusive queue as one object that carries out one call after the other, and two checkers that look for such an order in what
//! clients have heard (Q13): ours, and the `LinearizabilityTester` of `stateright`. The object knows no time: leases are longer than a
//! history.

use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use tallystone_client::State;

/// What a client calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Enqueue { id: u8, key: u8, priority: i64 },
    Dequeue { limit: usize },
    Complete { id: u8, fencing_token: u64 },
    Release { id: u8, fencing_token: u64 },
    Cancel { id: u8 },
    Get { id: u8 },
    Depth,
}

/// What it hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// When the message was accepted first.
    Enqueued(u64),
    /// Id, fencing token and version of each lease.
    Leased(Vec<(u8, u64, u32)>),
    /// The state and the version of a message.
    At(State, u32),
    LeaseLost,
    WrongState,
    NotFound,
    /// Messages by state: pending, running, completed, canceled.
    Counts([u64; 4]),
    /// An error that says that nothing was written.
    NotApplied,
    /// What the object does in a call whose reply no client has heard.
    Unheard,
}

/// The queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Queue {
    messages: BTreeMap<u8, Message>,
    accepted: u64,
    /// The greatest fencing token that a client knows.
    fencing_token: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Message {
    key: u8,
    urgency: (i64, u64),
    /// As the first reply said it.
    enqueued_at_ms: Option<u64>,
    state: State,
    version: u32,
    /// Of the current or last lease; `None`: no client knows it.
    fencing_token: Option<u64>,
    /// The last lease that was ended, by which call, and the result.
    ended: Option<(u64, Verb, State, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Verb {
    Complete,
    Release,
}

impl Message {
    fn step(&mut self, to: State) -> Reply {
        self.state = to;
        self.version += 1;
        Reply::At(to, self.version)
    }
}

impl Queue {
    fn runnable(&self) -> Option<u8> {
        let running = self.messages.values().filter(|message| message.state == State::Running);
        let locked: BTreeSet<u8> = running.map(|message| message.key).collect();
        let pending = self.messages.iter().filter(|(_, message)| message.state == State::Pending);
        let free = pending.filter(|(_, message)| !locked.contains(&message.key));
        free.min_by_key(|(_, message)| message.urgency).map(|(id, _)| *id)
    }

    /// `tokens`: those that the client heard.
    fn dequeue(&mut self, limit: usize, tokens: &[u64]) -> Reply {
        let mut leased = Vec::new();
        while leased.len() < limit
            && let Some(id) = self.runnable()
        {
            let message = self.messages.get_mut(&id).expect("it is runnable");
            message.fencing_token = tokens.get(leased.len()).copied();
            message.step(State::Running);
            leased.push((id, message.fencing_token.unwrap_or_default(), message.version));
        }
        Reply::Leased(leased)
    }

    fn end(&mut self, id: u8, fencing_token: u64, verb: Verb) -> Reply {
        let Some(message) = self.messages.get_mut(&id) else { return Reply::NotFound };
        if message.state != State::Running || message.fencing_token != Some(fencing_token) {
            return match message.ended {
                Some((ended, by, state, version)) if (ended, by) == (fencing_token, verb) => Reply::At(state, version),
                _ => Reply::LeaseLost,
            };
        }
        let to = if verb == Verb::Complete { State::Completed } else { State::Pending };
        let reply = message.step(to);
        message.ended = Some((fencing_token, verb, to, message.version));
        reply
    }

    fn count(&self, state: State) -> u64 {
        self.messages.values().filter(|message| message.state == state).count() as u64
    }
}

impl SequentialSpec for Queue {
    type Op = Call;
    type Ret = Reply;

    fn invoke(&mut self, call: &Call) -> Reply {
        self.carry_out(call, &Reply::Unheard)
    }

    fn is_valid_step(&mut self, call: &Call, heard: &Reply) -> bool {
        if *heard == Reply::NotApplied {
            return true;
        }
        if let Reply::Leased(leased) = heard {
            // Among those that clients know, tokens rise.
            for (_, fencing_token, _) in leased {
                if *fencing_token <= self.fencing_token {
                    return false;
                }
                self.fencing_token = *fencing_token;
            }
        }
        self.carry_out(call, heard) == *heard
    }
}

impl Queue {
    /// Carries out a call. What only the store can know is taken from the reply that the client heard.
    fn carry_out(&mut self, call: &Call, heard: &Reply) -> Reply {
        match *call {
            Call::Enqueue { id, key, priority } => {
                let heard = if let Reply::Enqueued(at_ms) = heard { Some(*at_ms) } else { None };
                self.accepted += 1;
                let message = self.messages.entry(id).or_insert(Message {
                    key,
                    urgency: (priority, self.accepted),
                    enqueued_at_ms: None,
                    state: State::Pending,
                    version: 1,
                    fencing_token: None,
                    ended: None,
                });
                message.enqueued_at_ms = message.enqueued_at_ms.or(heard);
                Reply::Enqueued(message.enqueued_at_ms.unwrap_or_default())
            }
            Call::Dequeue { limit } => {
                let leased = if let Reply::Leased(leased) = heard { leased.as_slice() } else { &[] };
                let tokens: Vec<u64> = leased.iter().map(|(_, fencing_token, _)| *fencing_token).collect();
                self.dequeue(limit, &tokens)
            }
            Call::Complete { id, fencing_token } => self.end(id, fencing_token, Verb::Complete),
            Call::Release { id, fencing_token } => self.end(id, fencing_token, Verb::Release),
            Call::Cancel { id } => match self.messages.get_mut(&id) {
                None => Reply::NotFound,
                Some(message) => match message.state {
                    State::Pending => message.step(State::Canceled),
                    State::Canceled => Reply::At(message.state, message.version),
                    _ => Reply::WrongState,
                },
            },
            Call::Get { id } => match self.messages.get(&id) {
                None => Reply::NotFound,
                Some(message) => Reply::At(message.state, message.version),
            },
            Call::Depth => Reply::Counts(
                [State::Pending, State::Running, State::Completed, State::Canceled].map(|state| self.count(state)),
            ),
        }
    }
}

/// Calls of several clients, in real time.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    calls: Vec<Made>,
    now: usize,
}

/// A call.
#[derive(Clone, Debug)]
struct Made {
    call: Call,
    begin: usize,
    /// When it ended, and with what; `None`: no client has heard the reply.
    end: Option<(usize, Reply)>,
}

impl History {
    /// A call begins. Returns its number.
    pub(crate) fn begin(&mut self, call: Call) -> usize {
        self.now += 1;
        self.calls.push(Made { call, begin: self.now, end: None });
        self.calls.len() - 1
    }

    /// The reply of a call has come.
    pub(crate) fn end(&mut self, number: usize, reply: Reply) {
        self.now += 1;
        self.calls[number].end = Some((self.now, reply));
    }

    /// The number of calls without a reply.
    pub(crate) fn unheard(&self) -> usize {
        self.calls.iter().filter(|made| made.end.is_none()).count()
    }

    /// Whether one order of the calls explains all replies: the search of Wing and Gong, that comes to no state twice (Lowe).
    pub(crate) fn is_linearizable(&self) -> bool {
        assert!(self.calls.len() <= 128, "a bit for each call");
        let (mut seen, mut open) = (HashSet::new(), vec![(0_u128, Queue::default())]);
        while let Some((done, queue)) = open.pop() {
            let left = || self.calls.iter().enumerate().filter(move |(number, _)| done & (1 << number) == 0);
            // What ended first must come before all that began later.
            let Some(first_end) = left().filter_map(|(_, made)| made.end.as_ref().map(|(end, _)| *end)).min() else {
                return true;
            };
            for (number, made) in left().filter(|(_, made)| made.begin < first_end) {
                let mut after = queue.clone();
                let is_explained = match &made.end {
                    Some((_, reply)) => after.is_valid_step(&made.call, reply),
                    None => {
                        after.invoke(&made.call);
                        true
                    }
                };
                let next = (done | 1 << number, after);
                if is_explained && seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
        false
    }

    /// The same, judged by `stateright`. It may come to a state many times, so only short histories can be judged.
    pub(crate) fn is_consistent(&self) -> bool {
        let begins = self.calls.iter().enumerate().map(|(number, made)| (made.begin, number, None));
        let ends = self.calls.iter().enumerate().filter_map(|(number, made)| {
            let (end, reply) = made.end.as_ref()?;
            Some((*end, number, Some(reply)))
        });
        let mut events: Vec<_> = begins.chain(ends).collect();
        events.sort_unstable_by_key(|(at, ..)| *at);
        let mut tester = LinearizabilityTester::new(Queue::default());
        for (_, number, reply) in events {
            // Each call has its own thread: their order follows from their times.
            let event = match reply {
                None => tester.on_invoke(number, self.calls[number].call.clone()),
                Some(reply) => tester.on_return(number, reply.clone()),
            };
            event.expect("a call begins, then it ends");
        }
        tester.is_consistent()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enqueue(id: u8, key: u8, priority: i64) -> Call {
        Call::Enqueue { id, key, priority }
    }

    fn leased(leases: &[(u8, u64)]) -> Reply {
        Reply::Leased(leases.iter().map(|(id, fencing_token)| (*id, *fencing_token, 2)).collect())
    }

    /// Calls that follow each other.
    fn sequence(calls: &[(Call, Reply)]) -> History {
        let mut history = History::default();
        for (call, reply) in calls {
            let number = history.begin(call.clone());
            history.end(number, reply.clone());
        }
        history
    }

    /// What both checkers say.
    fn is_good(history: &History) -> bool {
        let found = [history.is_linearizable(), history.is_consistent()];
        assert_eq!(found[0], found[1], "{history:?}");
        found[0]
    }

    const ONE: Call = Call::Dequeue { limit: 1 };

    #[test]
    fn q13_good_histories_are_linearizable() {
        let both = [(enqueue(0, 0, 5), Reply::Enqueued(1)), (enqueue(1, 0, 3), Reply::Enqueued(2))];
        let rest = [
            (ONE, leased(&[(1, 10)])),
            (ONE, leased(&[])),
            (enqueue(0, 0, 5), Reply::Enqueued(1)),
            (Call::Cancel { id: 1 }, Reply::WrongState),
            (Call::Depth, Reply::Counts([1, 1, 0, 0])),
            (Call::Release { id: 1, fencing_token: 10 }, Reply::At(State::Pending, 3)),
            (Call::Complete { id: 1, fencing_token: 10 }, Reply::LeaseLost),
            (Call::Release { id: 1, fencing_token: 10 }, Reply::At(State::Pending, 3)),
            (Call::Cancel { id: 1 }, Reply::At(State::Canceled, 4)),
            (ONE, leased(&[(0, 11)])),
            (Call::Complete { id: 0, fencing_token: 11 }, Reply::At(State::Completed, 3)),
            (Call::Get { id: 2 }, Reply::NotFound),
        ];
        assert!(is_good(&sequence(&[both.as_slice(), &rest].concat())));
        // A Dequeue without a reply has leased the message, or has not.
        for seen in [State::Pending, State::Running] {
            let mut history = sequence(&both[..1]);
            history.begin(ONE);
            let get = history.begin(Call::Get { id: 0 });
            history.end(get, Reply::At(seen, if seen == State::Running { 2 } else { 1 }));
            assert!(is_good(&history), "{seen:?}");
        }
    }

    #[test]
    fn q13_bad_histories_are_not() {
        let begin = [
            (enqueue(0, 0, 5), Reply::Enqueued(1)),
            (enqueue(1, 0, 3), Reply::Enqueued(2)),
            (enqueue(2, 1, 4), Reply::Enqueued(3)),
        ];
        let bad: [&[(Call, Reply)]; 11] = [
            &[(ONE, leased(&[(2, 10)]))],
            &[(ONE, leased(&[]))],
            &[(Call::Dequeue { limit: 2 }, leased(&[(1, 10)]))],
            &[(Call::Dequeue { limit: 3 }, leased(&[(1, 10), (2, 11), (0, 12)]))],
            &[(ONE, leased(&[(1, 10)])), (ONE, leased(&[(0, 11)]))],
            &[(ONE, leased(&[(1, 10)])), (ONE, leased(&[(2, 10)]))],
            &[(ONE, leased(&[(1, 10)])), (Call::Complete { id: 1, fencing_token: 10 }, Reply::LeaseLost)],
            &[(ONE, leased(&[(1, 10)])), (Call::Complete { id: 1, fencing_token: 9 }, Reply::At(State::Completed, 3))],
            &[(enqueue(0, 0, 5), Reply::Enqueued(4))],
            &[(Call::Get { id: 0 }, Reply::NotFound)],
            &[(Call::Cancel { id: 0 }, Reply::NotApplied), (Call::Get { id: 0 }, Reply::At(State::Canceled, 2))],
        ];
        assert!(is_good(&sequence(&begin)));
        for calls in bad {
            assert!(!is_good(&sequence(&[&begin, calls].concat())), "{calls:?}");
        }
        // Real time counts: a call that ended before another began came first; one that overlaps it may have come later.
        let canceled = Reply::At(State::Canceled, 2);
        for (overlaps, expected) in [(false, false), (true, true)] {
            let mut history = sequence(&begin);
            let early = overlaps.then(|| history.begin(Call::Get { id: 1 }));
            let cancel = history.begin(Call::Cancel { id: 1 });
            history.end(cancel, canceled.clone());
            let get = early.unwrap_or_else(|| history.begin(Call::Get { id: 1 }));
            history.end(get, Reply::At(State::Pending, 1));
            assert_eq!(is_good(&history), expected);
        }
    }
}
