//! Random programs: what a step is, and how one is drawn.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tallystone_model::store::{DequeueRequest, MessagePatch, Verdict};
use tallystone_model::*;
use tallystone_tests::{Clock, KEY, filter, id, index, tagged};

/// Steps of one program: long enough for stories, short enough to shrink.
pub(crate) const STEPS: usize = 250;
/// The queues of a program: at first an exclusive one, a simple one, and one that is not there.
pub(crate) const QUEUES: usize = 3;
/// Few ids, so that they meet often: short, long, beginning like each other, and two that are one UUID.
pub(crate) const IDS: [&str; 12] = [
    "a",
    "aa",
    "b",
    "c",
    "d/1",
    "d/2",
    "ü",
    " ",
    "0190163d-8694-739b-aea5-966c26f8ad91",
    "0190163D-8694-739B-AEA5-966C26F8AD91",
    "0190163d8694739baea5966c26f8ad91",
    "long-enough-that-redis-keeps-the-hashes-of-messages-as-tables-not-lists",
];
/// Values of the exclusivity key: of other lengths, beginning like each other.
const VALUES: [&str; 4] = ["a", "ab", "b", "öööööööööööööööööööööööööööööööööööööööö"];
/// Equal ones often, and the ends of the range.
const PRIORITIES: [i64; 10] = [i64::MIN, -1, 0, 1, 1, 1, 2, (1 << 53) + 1, (1 << 53) + 2, i64::MAX];

/// One call on one queue through one of two servers, or time passing.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// Which of [`QUEUES`].
    pub queue: usize,
    /// Through which server.
    pub server: usize,
    /// Called again at once, through the other server, where that must change nothing.
    pub repeat: bool,
    /// What.
    pub act: Act,
}

/// What a step does. Messages are named by their place in [`IDS`].
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// See the verb of that name in [`Store`]; likewise the others.
    Enqueue(Vec<NewMessage>),
    Dequeue {
        requests: Vec<DequeueRequest>,
        wait: bool,
        ticket: Option<TicketOf>,
    },
    Complete(Vec<(Held, &'static str)>),
    Extend(Vec<(Held, Option<u64>, String)>),
    Release(Vec<(Held, Option<u64>, String, Verdict)>),
    Cancel(Vec<(Held, bool, String)>),
    Redrive(Vec<usize>),
    /// The time from now, which may be past.
    Update {
        id: usize,
        priority: Option<i64>,
        visible_in_ms: Option<i64>,
    },
    /// All pages of this size.
    Change(ChangeRequest, usize),
    Purge {
        include_running: bool,
    },
    Create(QueueConfig),
    Configure(QueuePatch),
    /// The number of shards changes.
    Reshard(u16),
    /// The background job of a server removes earlier shards that are empty.
    Finish,
    Delete,
    Explain(usize),
    DepthOf(Filter),
    Sweep,
    /// The clock moves on.
    Pass {
        ms: u64,
    },
    /// The clock moves to the next due time of the queue, or this much past it.
    PassToDue {
        and_ms: u64,
    },
}

/// A ticket of a server's slot: a new one, or the last one again, perhaps with other requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TicketOf {
    /// Which server.
    pub server: u64,
    /// Which slot of it.
    pub slot: u8,
    /// The reply of the last try was lost.
    pub again: bool,
}

/// A message with a fencing token that the program was given, or none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// The message named.
    pub id: usize,
    /// Whose token; `None`: 0.
    pub token_of: Option<usize>,
    /// 0: the token of its last lease. Otherwise that of the lease this many before it.
    pub back: usize,
}

/// Draws a program.
pub(crate) fn draw(seed: u64) -> Vec<Step> {
    let mut rng = StdRng::seed_from_u64(seed);
    // One in a hundred meets the bounds of single calls.
    let is_bulk = rng.random_bool(0.01);
    let mut drawer = Drawer { rng, is_bulk };
    let mut create = |queue| {
        let config = drawer.config(queue == 0);
        Step { queue, server: 0, repeat: false, act: Act::Create(config) }
    };
    let mut steps = vec![create(0), create(1)];
    let count = if is_bulk { STEPS / 5 } else { STEPS };
    while steps.len() < count {
        match drawer.chance(0.005) {
            true => steps.extend(drawer.created_again()),
            false => steps.push(drawer.step()),
        }
    }
    steps
}

/// Draws a program in which the numbers of shards of its queues change.
pub(crate) fn draw_with_changes(seed: u64) -> Vec<Step> {
    let mut drawer = Drawer { rng: StdRng::seed_from_u64(!seed), is_bulk: false };
    let mut steps = Vec::new();
    for step in draw(seed) {
        if drawer.chance(0.04) {
            steps.extend(drawer.change_of_shards());
        }
        steps.push(step);
    }
    steps
}

/// Draws steps without end of workers and senders on one queue of many messages, without filters.
pub(crate) fn draw_busy(seed: u64, queue: usize) -> impl Iterator<Item = Step> {
    let mut drawer = Drawer { rng: StdRng::seed_from_u64(seed), is_bulk: true };
    let drawn = std::iter::from_fn(move || Some(Step { queue, ..drawer.step() }));
    let fits = move |step: &Step| match &step.act {
        Act::Purge { .. } | Act::Create(_) | Act::Configure(_) | Act::Delete | Act::DepthOf(_) | Act::Change(..) => {
            false
        }
        Act::Dequeue { requests, .. } => requests.iter().all(|request| request.filters.is_empty()),
        _ => true,
    };
    drawn.filter(fits)
}

struct Drawer {
    rng: StdRng,
    /// Hundreds of messages, values and items instead of a few.
    is_bulk: bool,
}

impl Drawer {
    fn step(&mut self) -> Step {
        let queue = if self.chance(0.02) { 2 } else { self.pick(&[0, 1]) };
        Step { queue, server: self.pick(&[0, 1]), repeat: self.chance(0.3), act: self.act() }
    }

    /// A change of the number of shards, or the end of one.
    fn change_of_shards(&mut self) -> Vec<Step> {
        let acts = match self.rng.random_range(0..10) {
            0..5 => vec![Act::Reshard(self.pick(&[1, 2, 3, 5, 8]))],
            5..8 => vec![Act::Finish],
            _ => vec![Act::Purge { include_running: true }, Act::Finish],
        };
        let (queue, server) = (self.pick(&[0, 1, 1, 1]), self.pick(&[0, 1]));
        let step = |act| Step { queue, server, repeat: self.rng.random_bool(0.3), act };
        acts.into_iter().map(step).collect()
    }

    /// A queue that is deleted and created again with another configuration, without the knowledge of one server.
    fn created_again(&mut self) -> [Step; 3] {
        let (queue, server, is_exclusive) = (self.pick(&[0, 1]), self.pick(&[0, 1]), self.chance(0.5));
        let config = self.config(is_exclusive);
        [Act::Purge { include_running: true }, Act::Delete, Act::Create(config)].map(|act| Step {
            queue,
            server,
            repeat: false,
            act,
        })
    }

    fn act(&mut self) -> Act {
        match self.rng.random_range(0..1_000) {
            0..240 => Act::Enqueue(self.several(Self::new_message)),
            240..480 => {
                let ticket = self.maybe(0.7, |d| TicketOf {
                    server: d.pick(&[1, 1 << 60]),
                    slot: d.pick(&[0, 1]),
                    again: d.chance(0.4),
                });
                Act::Dequeue { requests: self.requests(), wait: self.chance(0.5), ticket }
            }
            480..570 => Act::Complete(self.several(|d| (d.held(), d.pick(&["", "", "done", "äh"])))),
            570..620 => Act::Extend(self.several(|d| (d.held(), d.lease_ms(), d.request_id()))),
            620..690 => Act::Release(self.several(|d| (d.held(), d.delay_ms(), d.reason(), d.verdict()))),
            690..740 => Act::Cancel(self.several(|d| (d.held(), d.chance(0.3), d.reason()))),
            740..770 => Act::Redrive(self.several(Self::id)),
            770..800 => {
                let change = self.change();
                Act::Change(change, if self.is_bulk { 1_000 } else { self.pick(&[1, 2, 1_000]) })
            }
            800..840 => {
                let priority = self.maybe(0.6, Self::priority);
                let visible_in_ms = self.pick(&[None, None, Some(-1), Some(0), Some(1), Some(1_500)]);
                Act::Update { id: self.id(), priority, visible_in_ms }
            }
            840..846 => Act::Purge { include_running: self.chance(0.5) },
            846..876 => Act::Configure(self.patch()),
            876..880 => Act::Delete,
            880..886 => {
                let is_exclusive = self.chance(0.5);
                Act::Create(self.config(is_exclusive))
            }
            886..910 => Act::Explain(self.id()),
            910..940 => Act::DepthOf(self.filter()),
            940..960 => Act::Sweep,
            960..985 => Act::Pass { ms: self.pick(&[1, 10, 500, 1_000, 2_000, 60_000, 700_000]) },
            _ => Act::PassToDue { and_ms: self.pick(&[0, 0, 1, 10]) },
        }
    }

    fn chance(&mut self, probability: f64) -> bool {
        self.rng.random_bool(probability)
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of.choose(&mut self.rng).expect("something to pick from").clone()
    }

    fn maybe<T>(&mut self, probability: f64, draw: impl Fn(&mut Self) -> T) -> Option<T> {
        self.chance(probability).then(|| draw(self))
    }

    fn several<T>(&mut self, draw: impl Fn(&mut Self) -> T) -> Vec<T> {
        let items = if self.is_bulk { self.pick(&[1, 50, 400, 1_000]) } else { self.pick(&[1, 1, 1, 2, 2, 3, 6]) };
        (0..items).map(|_| draw(self)).collect()
    }

    fn id(&mut self) -> usize {
        let ids = if self.is_bulk { 1_000 } else { IDS.len() };
        self.rng.random_range(0..ids)
    }

    fn priority(&mut self) -> i64 {
        self.pick(&PRIORITIES)
    }

    fn lease_ms(&mut self) -> Option<u64> {
        self.pick(&[None, None, None, Some(1_000), Some(2_000), Some(12 * 3_600_000)])
    }

    fn delay_ms(&mut self) -> Option<u64> {
        self.pick(&[None, None, Some(0), Some(1), Some(1_000)])
    }

    fn verdict(&mut self) -> Verdict {
        use Verdict::{Cancel, Error, Retry, Undelivered};
        self.pick(&[Retry, Retry, Retry, Undelivered, Error, Cancel])
    }

    fn request_id(&mut self) -> String {
        self.pick(&["", "", "r1", "r2", "r3"]).to_owned()
    }

    fn reason(&mut self) -> String {
        self.pick(&["", "it broke", "ß"]).to_owned()
    }

    fn held(&mut self) -> Held {
        let id = self.id();
        let token_of = match self.rng.random_range(0..20) {
            0..3 => None,
            3 => Some(self.id()),
            _ => Some(id),
        };
        Held { id, token_of, back: self.pick(&[0, 0, 0, 0, 0, 0, 1, 2]) }
    }

    /// One of three contents per id, so that the same message is sent again.
    fn new_message(&mut self) -> NewMessage {
        let (id, variant) = (self.id(), self.pick(&[0, 0, 0, 1, 2]));
        let mut content = Drawer { rng: StdRng::seed_from_u64(id as u64 * 3 + variant), is_bulk: self.is_bulk };
        let mut pairs = Vec::new();
        for (key, values, probability) in
            [(KEY, &VALUES[..], 0.95), ("org", &["x", "yy"][..], 0.6), ("car", &["1"][..], 0.6), ("z", &["x"][..], 0.1)]
        {
            if content.chance(probability) {
                pairs.push((key, content.pick(values)));
            }
        }
        let many = format!("v{}", content.rng.random_range(0..400));
        if self.is_bulk && content.chance(0.8) {
            pairs.iter_mut().filter(|(key, _)| *key == KEY).for_each(|(_, value)| *value = &many);
        }
        // The same message may be sent again in another trace (O2).
        if pairs.len() < limits::METADATA_PAIRS_MAX && self.chance(0.2) {
            pairs.push(("traceparent", self.pick(&["a", "b"])));
        }
        NewMessage {
            payload: content.pick(&[&b""[..], b"payload", b"\xff\x00\xfe"]).into(),
            lease_ms: content.maybe(0.2, |_| 1_500),
            invisibility_ms: content.maybe(0.2, |d| d.pick(&[0, 1, 1_000])),
            max_attempts: content.maybe(0.2, |d| d.pick(&[1, 2])),
            coalesce: self.chance(0.3),
            priority_class: content.maybe(0.2, |d| d.pick(&["now", "early", "unknown"]).to_owned()),
            ..tagged(id_of(id).as_str(), content.priority(), &pairs)
        }
    }

    fn filter(&mut self) -> Filter {
        let all = [(KEY, self.pick(&VALUES)), ("org", self.pick(&["x", "yy", "no"])), ("car", "1"), ("z", "x")];
        loop {
            let likely = |key: &str| if key == "z" { 0.03 } else { 0.35 };
            let pairs: Vec<(&str, &str)> = all.iter().filter(|(key, _)| self.chance(likely(key))).copied().collect();
            if !pairs.is_empty() {
                return filter(&pairs);
            }
        }
    }

    fn change(&mut self) -> ChangeRequest {
        let (reason, is_hidden) = (self.reason(), self.chance(0.2));
        let patch = MessagePatch {
            priority: self.maybe(0.8, Self::priority),
            visible_at_ms: is_hidden.then(|| Clock::new().now_ms() + 1_000_000),
        };
        let change = self.pick(&[Change::Redrive, Change::Cancel { reason }, Change::Update(patch)]);
        // Which of the canceled messages find room is open: those of one moment have no order.
        let fits =
            |state: &State| change.applies_to(*state) && !(change == Change::Redrive && *state == State::Canceled);
        let states = State::ALL.into_iter().filter(|state| fits(state) && self.chance(0.5)).collect();
        let filter = self.maybe(0.4, Self::filter);
        let reason_contains = self.pick(&["", "", "BROKE", "ß"]).to_owned();
        let selection = Selection { states, filter, reason_contains, ..Selection::default() };
        ChangeRequest { selection, change, dry_run: self.chance(0.3) }
    }

    fn requests(&mut self) -> Vec<DequeueRequest> {
        let requests = self.pick(&[1, 1, 1, 2, 2, 3, 6]);
        (0..requests).map(|_| self.request()).collect()
    }

    fn request(&mut self) -> DequeueRequest {
        let filters = self.pick(&[0, 0, 0, 1, 1, 2, 3]);
        DequeueRequest {
            worker: self.pick(&["w1", "w2", ""]).to_owned(),
            limit: if self.is_bulk { self.pick(&[1, 100, 1_000]) } else { self.pick(&[1, 1, 2, 3, 10]) },
            lease_ms: self.lease_ms(),
            filters: (0..filters).map(|_| self.filter()).collect(),
            request_id: self.request_id(),
        }
    }

    fn indexes(&mut self) -> Vec<IndexKeys> {
        let sets = [&["org"][..], &["car"], &[KEY], &[KEY, "org"], &["car", "org"]];
        sets.into_iter().filter(|_| self.chance(0.2)).map(index).collect()
    }

    fn priority_classes(&mut self) -> PriorityClasses {
        let offsets_ms = [("now", 0), ("early", self.pick(&[-5, -7_000])), ("yy", 1_000)];
        let offsets_ms = offsets_ms.into_iter().filter(|_| self.chance(0.8));
        PriorityClasses {
            offsets_ms: offsets_ms.map(|(name, offset_ms)| (name.to_owned(), offset_ms)).collect(),
            override_key: self.pick(&["", "org"]).to_owned(),
        }
    }

    fn config(&mut self, is_exclusive: bool) -> QueueConfig {
        let queue_type = if is_exclusive { QueueType::Exclusive { key: KEY.to_owned() } } else { QueueType::Simple };
        let (indexes, retry_backoff) = (self.indexes(), Backoff::default());
        let start = QueueConfig { queue_type, indexes, retry_backoff, ..QueueConfig::default() };
        let patch = QueuePatch { enqueue_blocked: None, dequeue_blocked: None, lease_ms: None, ..self.patch() };
        start.patched(&patch).expect("only a lease is ever refused")
    }

    fn patch(&mut self) -> QueuePatch {
        QueuePatch {
            // 1 is refused: the patch then changes nothing.
            lease_ms: self.maybe(0.2, |d| d.pick(&[1, 1_000, 5_000, 30_000])),
            invisibility_ms: self.maybe(0.1, |d| d.pick(&[0, 0, 700])),
            max_attempts: self.maybe(0.3, |d| d.pick(&[1, 2, 5])),
            // Said with every patch, so that no queue stays blocked for long.
            enqueue_blocked: Some(self.chance(0.1)),
            dequeue_blocked: Some(self.chance(0.1)),
            terminal_retention_ms: self.maybe(0.3, |d| d.pick(&[0, 1_000, 600_000])),
            errored_retention_ms: self.maybe(0.3, |d| d.pick(&[0, 1_000, 600_000])),
            max_errored: self.maybe(0.3, |d| d.pick(&[1, 2, 100_000])),
            id_window_ms: self.maybe(0.3, |d| d.pick(&[0, 1_500, 700_000])),
            max_errored_bytes: self.maybe(0.3, |d| d.pick(&[1, 7, 10, 1 << 30])),
            retry_backoff: self.maybe(0.3, |d| Backoff {
                kind: d.pick(&[BackoffKind::None, BackoffKind::Fixed, BackoffKind::Exponential]),
                base_ms: d.pick(&[1, 100, 1_000]),
                max_ms: d.pick(&[1_000, 3_000, 365 * 86_400_000]),
                jitter_percent: d.pick(&[0, 33, 100]),
            }),
            max_depth: self.maybe(0.3, |d| d.pick(&[0, 0, 4, 8])),
            indexes: self.maybe(0.3, Self::indexes),
            priority_classes: self.maybe(0.5, Self::priority_classes),
            shards: None,
        }
    }
}

/// Simpler steps that may fail in the same way: batches without one of their items, no repetition.
pub(crate) fn simpler(step: &Step) -> Vec<Step> {
    fn without<T: Clone>(items: &[T], act: impl Fn(Vec<T>) -> Act) -> Vec<Act> {
        let fewer = |at| items.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, item)| item.clone()).collect();
        match items.len() {
            0..2 => Vec::new(),
            2..9 => (0..items.len()).map(|at| act(fewer(at))).collect(),
            many => vec![act(items[..many / 2].to_vec()), act(items[many / 2..].to_vec())],
        }
    }
    let acts = match &step.act {
        Act::Enqueue(items) => without(items, Act::Enqueue),
        Act::Dequeue { requests, wait, ticket } => {
            let (wait, ticket) = (*wait, *ticket);
            let mut acts = without(requests, |requests| Act::Dequeue { requests, wait, ticket });
            if ticket.is_some() {
                acts.push(Act::Dequeue { requests: requests.clone(), wait, ticket: None });
            }
            for (at, request) in requests.iter().enumerate() {
                for filter in 0..request.filters.len() {
                    let mut requests = requests.clone();
                    requests[at].filters.remove(filter);
                    acts.push(Act::Dequeue { requests, wait, ticket });
                }
            }
            acts
        }
        Act::Complete(items) => without(items, Act::Complete),
        Act::Extend(items) => without(items, Act::Extend),
        Act::Release(items) => without(items, Act::Release),
        Act::Cancel(items) => without(items, Act::Cancel),
        Act::Redrive(items) => without(items, Act::Redrive),
        _ => Vec::new(),
    };
    let once = step.repeat.then(|| Step { repeat: false, ..step.clone() });
    once.into_iter().chain(acts.into_iter().map(|act| Step { act, ..step.clone() })).collect()
}

/// The id of a place in [`IDS`], or past its end.
pub(crate) fn id_of(at: usize) -> MessageId {
    IDS.get(at).map_or_else(|| id(&format!("m{at}")), |text| id(text))
}

/// The patch of an update, its time counted from now.
pub(crate) fn message_patch(priority: Option<i64>, visible_in_ms: Option<i64>, now_ms: u64) -> MessagePatch {
    MessagePatch { priority, visible_at_ms: visible_in_ms.map(|in_ms| now_ms.saturating_add_signed(in_ms)) }
}
