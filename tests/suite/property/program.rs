//! Random programs: what a step is, and how one is drawn.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tallystone_model::store::{DequeueRequest, MessagePatch};
use tallystone_model::*;
use tallystone_tests::{KEY, filter, id, index, tagged};

/// Steps of one program: long enough for stories, short enough to shrink.
pub const STEPS: usize = 250;
/// The queues of a program: at first an exclusive one, a simple one, and one that is not there.
pub const QUEUES: usize = 3;
/// Few ids, so that they meet often: short, long, beginning like each other, and two that are one UUID.
pub const IDS: [&str; 12] = [
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
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
];
/// Values of the exclusivity key: of other lengths, beginning like each other.
const VALUES: [&str; 4] = ["a", "ab", "b", "öööööööööööööööööööööööööööööööööööööööö"];
/// Equal ones often, and the ends of the range.
const PRIORITIES: [i64; 10] = [i64::MIN, -1, 0, 1, 1, 1, 2, (1 << 53) + 1, (1 << 53) + 2, i64::MAX];

/// One call on one queue through one of two servers, or time passing.
#[derive(Clone, Debug)]
pub struct Step {
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
pub enum Act {
    /// See the verb of that name in [`Store`]; likewise the others.
    Enqueue(Vec<NewMessage>),
    Dequeue { requests: Vec<DequeueRequest>, wait: bool },
    Complete(Vec<Held>),
    Extend(Vec<(Held, Option<u64>, String)>),
    Release(Vec<(Held, Option<u64>, String)>),
    Cancel(Vec<(Held, bool, String)>),
    Redrive(Vec<usize>),
    /// The time from now, which may be past.
    Update { id: usize, priority: Option<i64>, visible_in_ms: Option<i64> },
    Purge { include_running: bool },
    Create(QueueConfig),
    Configure(QueuePatch),
    Delete,
    Explain(usize),
    DepthOf(Filter),
    Sweep,
    /// The clock moves on.
    Pass { ms: u64 },
    /// The clock moves to the next due time of the queue, or so much past it.
    PassToDue { and_ms: u64 },
}

/// A message with a fencing token that the program was given, or none.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// The message named.
    pub id: usize,
    /// Whose token; `None`: 0.
    pub token_of: Option<usize>,
    /// Of its last lease, or so many before.
    pub back: usize,
}

/// Draws a program.
pub fn draw(seed: u64) -> Vec<Step> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut steps = vec![
        Step { queue: 0, server: 0, repeat: false, act: Act::Create(config(&mut rng, true)) },
        Step { queue: 1, server: 0, repeat: false, act: Act::Create(config(&mut rng, false)) },
    ];
    while steps.len() < STEPS {
        let queue = if rng.random_bool(0.02) { 2 } else { rng.random_range(0..2) };
        let (server, repeat) = (rng.random_range(0..2), rng.random_bool(0.3));
        steps.push(Step { queue, server, repeat, act: act(&mut rng) });
    }
    steps
}

fn act(rng: &mut StdRng) -> Act {
    match rng.random_range(0..1_000) {
        0..240 => Act::Enqueue(several(rng, new_message)),
        240..480 => Act::Dequeue { requests: several(rng, request), wait: rng.random() },
        480..570 => Act::Complete(several(rng, held)),
        570..620 => Act::Extend(several(rng, |rng| (held(rng), lease_ms(rng), request_id(rng)))),
        620..690 => Act::Release(several(rng, |rng| (held(rng), delay_ms(rng), reason(rng)))),
        690..740 => Act::Cancel(several(rng, |rng| (held(rng), rng.random_bool(0.3), reason(rng)))),
        740..780 => Act::Redrive(several(rng, any_id)),
        780..840 => Act::Update { id: any_id(rng), priority: maybe(rng, 0.6, priority), visible_in_ms: visible_in_ms(rng) },
        840..846 => Act::Purge { include_running: rng.random() },
        846..876 => Act::Configure(patch(rng)),
        876..880 => Act::Delete,
        880..886 => {
            let is_exclusive = rng.random();
            Act::Create(config(rng, is_exclusive))
        }
        886..910 => Act::Explain(any_id(rng)),
        910..940 => Act::DepthOf(any_filter(rng)),
        940..960 => Act::Sweep,
        960..985 => Act::Pass { ms: pick(rng, &[1, 10, 500, 1_000, 2_000, 60_000, 700_000]) },
        _ => Act::PassToDue { and_ms: pick(rng, &[0, 0, 1, 10]) },
    }
}

fn pick<T: Clone>(rng: &mut StdRng, of: &[T]) -> T {
    of.choose(rng).expect("something to pick from").clone()
}

fn maybe<T>(rng: &mut StdRng, probability: f64, draw: impl Fn(&mut StdRng) -> T) -> Option<T> {
    rng.random_bool(probability).then(|| draw(rng))
}

fn several<T>(rng: &mut StdRng, draw: impl Fn(&mut StdRng) -> T) -> Vec<T> {
    let items = pick(rng, &[1, 1, 1, 2, 2, 3, 6]);
    (0..items).map(|_| draw(rng)).collect()
}

fn any_id(rng: &mut StdRng) -> usize {
    rng.random_range(0..IDS.len())
}

fn priority(rng: &mut StdRng) -> i64 {
    pick(rng, &PRIORITIES)
}

fn lease_ms(rng: &mut StdRng) -> Option<u64> {
    pick(rng, &[None, None, None, Some(1_000), Some(2_000), Some(12 * 3_600_000)])
}

fn delay_ms(rng: &mut StdRng) -> Option<u64> {
    pick(rng, &[None, None, Some(0), Some(1), Some(1_000)])
}

fn request_id(rng: &mut StdRng) -> String {
    pick(rng, &["", "", "r1", "r2", "r3"]).to_owned()
}

fn reason(rng: &mut StdRng) -> String {
    pick(rng, &["", "it broke", "ß"]).to_owned()
}

fn visible_in_ms(rng: &mut StdRng) -> Option<i64> {
    pick(rng, &[None, None, Some(-1), Some(0), Some(1), Some(1_500)])
}

fn held(rng: &mut StdRng) -> Held {
    let id = any_id(rng);
    let token_of = match rng.random_range(0..20) {
        0..3 => None,
        3 => Some(any_id(rng)),
        _ => Some(id),
    };
    Held { id, token_of, back: pick(rng, &[0, 0, 0, 0, 0, 0, 1, 2]) }
}

/// One of three contents per id, so that the same message comes again.
fn new_message(rng: &mut StdRng) -> NewMessage {
    let (id, variant) = (any_id(rng), pick(rng, &[0, 0, 0, 1, 2]));
    let mut content = StdRng::seed_from_u64(id as u64 * 3 + variant);
    let rng_of_content = &mut content;
    let mut pairs = Vec::new();
    for (key, values, probability) in
        [(KEY, &VALUES[..], 0.95), ("org", &["x", "yy"][..], 0.6), ("car", &["1"][..], 0.6), ("z", &["x"][..], 0.1)]
    {
        if rng_of_content.random_bool(probability) {
            pairs.push((key, pick(rng_of_content, values)));
        }
    }
    let priority = self::priority(rng_of_content);
    NewMessage {
        payload: pick(rng_of_content, &[&b""[..], b"payload", b"\xff\x00\xfe"]).into(),
        lease_ms: maybe(rng_of_content, 0.2, |_| 1_500),
        invisibility_ms: maybe(rng_of_content, 0.2, |rng| pick(rng, &[0, 1, 1_000])),
        max_attempts: maybe(rng_of_content, 0.2, |rng| rng.random_range(1..3)),
        coalesce: rng.random_bool(0.3),
        ..tagged(IDS[id], priority, &pairs)
    }
}

fn any_filter(rng: &mut StdRng) -> Filter {
    let all = [(KEY, pick(rng, &VALUES)), ("org", pick(rng, &["x", "yy", "no"])), ("car", "1"), ("z", "x")];
    loop {
        let pairs: Vec<(&str, &str)> =
            all.iter().filter(|(key, _)| rng.random_bool(if *key == "z" { 0.03 } else { 0.35 })).copied().collect();
        if !pairs.is_empty() {
            return filter(&pairs);
        }
    }
}

fn request(rng: &mut StdRng) -> DequeueRequest {
    let filters = pick(rng, &[0, 0, 0, 1, 1, 2, 3]);
    DequeueRequest {
        worker: pick(rng, &["w1", "w2", ""]).to_owned(),
        limit: pick(rng, &[1, 1, 2, 3, 10]),
        lease_ms: lease_ms(rng),
        filters: (0..filters).map(|_| any_filter(rng)).collect(),
        request_id: request_id(rng),
    }
}

fn indexes(rng: &mut StdRng) -> Vec<IndexKeys> {
    let sets = [&["org"][..], &["car"], &[KEY], &[KEY, "org"], &["car", "org"]];
    sets.into_iter().filter(|_| rng.random_bool(0.2)).map(index).collect()
}

fn config(rng: &mut StdRng, is_exclusive: bool) -> QueueConfig {
    let queue_type = if is_exclusive { QueueType::Exclusive { key: KEY.to_owned() } } else { QueueType::Simple };
    let start = QueueConfig { queue_type, indexes: indexes(rng), ..QueueConfig::default() };
    let patch = QueuePatch { enqueue_blocked: None, dequeue_blocked: None, lease_ms: None, ..patch(rng) };
    start.patched(&patch).expect("only a lease is ever refused")
}

fn patch(rng: &mut StdRng) -> QueuePatch {
    let backoff = |rng: &mut StdRng| Backoff {
        kind: pick(rng, &[BackoffKind::None, BackoffKind::Fixed, BackoffKind::Exponential]),
        base_ms: pick(rng, &[1, 100, 1_000]),
        max_ms: pick(rng, &[1_000, 3_000, 365 * 86_400_000]),
        jitter_percent: pick(rng, &[0, 33, 100]),
    };
    QueuePatch {
        // 1 is refused: the patch then changes nothing.
        lease_ms: maybe(rng, 0.2, |rng| pick(rng, &[1, 1_000, 5_000, 30_000])),
        invisibility_ms: maybe(rng, 0.1, |rng| pick(rng, &[0, 0, 700])),
        max_attempts: maybe(rng, 0.3, |rng| pick(rng, &[1, 2, 5])),
        // Said with every patch, so that no queue stays blocked for long.
        enqueue_blocked: Some(rng.random_bool(0.1)),
        dequeue_blocked: Some(rng.random_bool(0.1)),
        terminal_retention_ms: maybe(rng, 0.3, |rng| pick(rng, &[0, 1_000, 600_000])),
        retry_backoff: maybe(rng, 0.3, backoff),
        max_depth: maybe(rng, 0.3, |rng| pick(rng, &[0, 0, 4, 8])),
        indexes: maybe(rng, 0.3, indexes),
    }
}

/// Simpler steps that may fail in the same way: batches without one of their items, no repetition.
pub fn simpler(step: &Step) -> Vec<Step> {
    fn without<T: Clone>(items: &[T], act: impl Fn(Vec<T>) -> Act) -> Vec<Act> {
        let fewer = |at| items.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, item)| item.clone()).collect();
        if items.len() < 2 { Vec::new() } else { (0..items.len()).map(|at| act(fewer(at))).collect() }
    }
    let acts = match &step.act {
        Act::Enqueue(items) => without(items, Act::Enqueue),
        Act::Dequeue { requests, wait } => without(requests, |requests| Act::Dequeue { requests, wait: *wait }),
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

/// The id of a place in [`IDS`].
pub fn id_of(at: usize) -> MessageId {
    id(IDS[at])
}

/// The patch of an update, its time counted from now.
pub fn message_patch(priority: Option<i64>, visible_in_ms: Option<i64>, now_ms: u64) -> MessagePatch {
    MessagePatch { priority, visible_at_ms: visible_in_ms.map(|in_ms| now_ms.saturating_add_signed(in_ms)) }
}
