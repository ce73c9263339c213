//! What one server knows of the shards of a queue: about how many messages are runnable in each, and how urgent they are. It is only
//! a guess, which says where to request messages first; the shards decide (docs/decisions/0182).

use super::found::{AllFound, Lost, not_sent};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tallystone_model::store::{DequeueRequest, Dequeued, LeaseRef, Outlook};
use tallystone_model::{Lease, Refusal, Shard};
use tokio::time::Instant;

/// How long a shard that was unavailable is not requested.
const AWAY: Duration = Duration::from_millis(250);

/// No holder of the lock panics with what is known half changed.
pub(super) fn lock<T>(known: &Mutex<T>) -> MutexGuard<'_, T> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What this server estimates of the shards of one queue. Where it says `at`, that is the position of a shard among them.
#[derive(Default)]
pub(super) struct ShardEstimates {
    /// By their numbers, ascending.
    shards: Vec<One>,
    /// The shard from which the first of equally urgent ones is chosen.
    turn: usize,
    /// That of all layouts of the queue: a call and a background task may still have an earlier one in mind.
    silence: Arc<Mutex<Silence>>,
}

/// The shards that do not answer, and what they may have given.
#[derive(Default)]
struct Silence {
    /// By their numbers. The Dequeues that may have got leases there, in order; a background task repeats them.
    lost: BTreeMap<u16, VecDeque<Lost>>,
    /// Leases of shards that were silent, which no caller has got yet.
    found: AllFound,
}

/// One shard.
#[derive(Clone, Default)]
struct One {
    number: u16,
    ready: u64,
    /// Something may have become runnable since it was last requested.
    may_have_more: bool,
    /// The most urgent runnable message has no lower priority; `None`: unknown.
    head: Option<i64>,
    /// The mean difference of priorities between runnable messages that follow each other.
    gap: u64,
    /// The lowest priority of the messages that this server has sent since it last requested the shard.
    added: Option<i64>,
    /// Rises when something may have become runnable.
    changes: u64,
    /// Waiting callers of this server are notified of what becomes runnable there.
    is_marked: bool,
    /// The Dequeues since the last one that requested this shard.
    passed_over: usize,
    next_due_ms: Option<u64>,
    away: Option<(Instant, Refusal)>,
}

/// What was known of a shard when it was requested.
#[derive(Clone, Copy)]
pub(super) struct Sent {
    changes: u64,
    wait: bool,
}

impl ShardEstimates {
    /// Whether it is of the shards of these numbers.
    pub(super) fn is_of(&self, numbers: impl Iterator<Item = u16>) -> bool {
        self.shards.iter().map(|shard| shard.number).eq(numbers)
    }

    /// Of a queue with the shards of these numbers, which ascend.
    pub(super) fn of(numbers: impl Iterator<Item = u16>) -> ShardEstimates {
        // Nothing is known of them: each is requested soon.
        let one = |number| One { number, may_have_more: true, ..One::default() };
        ShardEstimates { shards: numbers.map(one).collect(), ..ShardEstimates::default() }
    }

    /// Of the same queue with the shards of these numbers, which ascend. What a shard has is not known: calls with the earlier layout,
    /// which are still under way, do not say here what they send. But a shard that does not answer is the same in each layout.
    pub(super) fn of_same_queue(&self, numbers: impl Iterator<Item = u16>) -> ShardEstimates {
        let mut later = ShardEstimates { silence: self.silence.clone(), ..ShardEstimates::of(numbers) };
        for shard in &mut later.shards {
            shard.away = self.of_number(shard.number).and_then(|earlier| earlier.away.clone());
        }
        later
    }

    fn silence(&self) -> MutexGuard<'_, Silence> {
        lock(&self.silence)
    }

    pub(super) fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// The number of the shard at a position.
    pub(super) fn number(&self, at: usize) -> u16 {
        self.shards[at].number
    }

    /// The position of the shard of a number.
    pub(super) fn at(&self, number: u16) -> Option<usize> {
        self.shards.binary_search_by_key(&number, |shard| shard.number).ok()
    }

    fn of_number(&self, number: u16) -> Option<&One> {
        self.at(number).map(|at| &self.shards[at])
    }

    fn of_number_mut(&mut self, number: u16) -> Option<&mut One> {
        self.at(number).map(|at| &mut self.shards[at])
    }

    /// New messages are being sent to a shard. `head`: the lowest priority; `None`: the store decides that of one of them.
    /// `runnable`: how many of them.
    pub(super) fn adds(&mut self, number: u16, runnable: u64, head: Option<i64>) {
        let Some(shard) = self.of_number_mut(number) else { return };
        shard.head = match (shard.capacity() == 0, shard.head, head) {
            (true, _, head) => head,
            (false, Some(known), Some(head)) => Some(known.min(head)),
            (false, ..) => None,
        };
        shard.added = shard.added.into_iter().chain(head).min();
        shard.ready += runnable;
        shard.may_have_more |= runnable == 0;
        shard.changes += 1;
    }

    /// A message of a shard may become runnable.
    pub(super) fn changes(&mut self, number: u16) {
        if let Some(shard) = self.of_number_mut(number) {
            if shard.capacity() == 0 {
                shard.head = None;
            }
            // Else the guess stays until the next answer: a shard that is busy must not be the most urgent one all the time.
            shard.may_have_more = true;
            // The notification of a change has used the mark up.
            shard.is_marked = false;
            shard.changes += 1;
        }
    }

    /// A shard is being requested. `wait`: the call leaves the mark of this server.
    pub(super) fn sends(&mut self, at: usize, limit: usize, wait: bool) -> Sent {
        let shard = &mut self.shards[at];
        (shard.passed_over, shard.added) = (0, None);
        // Another call must not expect the same messages.
        shard.ready = shard.ready.saturating_sub(limit as u64);
        Sent { changes: shard.changes, wait }
    }

    /// A shard has answered. `leases`: what it gave.
    pub(super) fn answers<'a>(
        &mut self,
        at: usize,
        sent: Sent,
        outlook: &Outlook,
        leases: impl Iterator<Item = &'a Lease>,
    ) {
        let shard = &mut self.shards[at];
        let (mut count, mut lowest, mut highest) = (0, i64::MAX, i64::MIN);
        for lease in leases {
            (count, lowest, highest) = (count + 1, lowest.min(lease.priority), highest.max(lease.priority));
        }
        if count > 1 {
            shard.gap = highest.abs_diff(lowest) / (count - 1);
        }
        shard.ready = outlook.ready;
        shard.may_have_more = shard.changes != sent.changes;
        shard.is_marked = (shard.is_marked || sent.wait) && !shard.may_have_more;
        // What was sent since may be more urgent.
        shard.head = outlook.head.into_iter().chain(shard.added).min();
        shard.next_due_ms = outlook.next_due_ms;
        shard.away = None;
        for shard in &mut self.shards {
            if shard.next_due_ms.is_some_and(|due_ms| due_ms <= outlook.now_ms) {
                shard.next_due_ms = None;
                shard.may_have_more = true;
            }
        }
    }

    /// A shard is unavailable. What it has is not known.
    pub(super) fn is_away(&mut self, at: usize, refusal: &Refusal, now: Instant) {
        let shard = &mut self.shards[at];
        shard.may_have_more = true;
        shard.away = Some((now + AWAY, refusal.clone()));
    }

    /// Why a shard is not requested now.
    pub(super) fn why_away(&self, at: usize, now: Instant) -> Option<Refusal> {
        let shard = &self.shards[at];
        let away = shard.away.as_ref().filter(|(until, _)| *until > now);
        self.why_silent(shard.number).or_else(|| away.map(|(_, refusal)| refusal.clone()))
    }

    /// The refusal of a call on a shard that does not answer.
    pub(super) fn why_silent(&self, number: u16) -> Option<Refusal> {
        self.silence().lost.get(&number).map(|lost| not_sent(!lost.is_empty()))
    }

    /// A shard does not answer. `lost`: a Dequeue that may have got leases there. Returns whether that is new: then a task has to
    /// find out when it answers.
    pub(super) fn falls_silent(&mut self, number: u16, lost: Option<Lost>) -> bool {
        if self.at(number).is_none() {
            return false;
        }
        let mut silence = self.silence();
        let is_new = !silence.lost.contains_key(&number);
        silence.lost.entry(number).or_default().extend(lost);
        is_new
    }

    /// The first of the Dequeues that may have got leases of a silent shard.
    pub(super) fn lost(&self, number: u16) -> Option<Lost> {
        self.silence().lost.get(&number)?.front().cloned()
    }

    /// A silent shard has answered the repetition of the first of these Dequeues, which was sent at `repeated_at`. `answer`: `None` if
    /// it refuses it.
    pub(super) fn finds(&mut self, number: u16, answer: Option<Dequeued>, repeated_at: Instant) {
        let mut silence = self.silence();
        let lost = silence.lost.get_mut(&number).and_then(VecDeque::pop_front);
        if let (Some(lost), Some(answer)) = (lost, answer) {
            silence.found.add(&lost, answer, repeated_at);
        }
    }

    /// A silent shard has answered: calls go there again, unless more is to be found first.
    pub(super) fn ends_silence(&mut self, number: u16) -> bool {
        let mut silence = self.silence();
        let is_over = silence.lost.get(&number).is_none_or(VecDeque::is_empty);
        if is_over {
            silence.lost.remove(&number);
        }
        drop(silence);
        if is_over {
            self.is_back(number);
        }
        is_over
    }

    /// A shard that was silent answers again.
    pub(super) fn is_back(&mut self, number: u16) {
        if let Some(shard) = self.of_number_mut(number) {
            shard.away = None;
        }
        self.changes(number);
    }

    /// A lease of one of them has been revoked.
    pub(super) fn revokes(&mut self, lease: &LeaseRef) {
        let mut silence = self.silence();
        let is_settled = silence.found.is_empty() && silence.lost.is_empty();
        silence.found.revoke(lease, is_settled, Instant::now());
    }

    /// Gives a request what was found in shards that were silent for one like it.
    pub(super) fn take_found(&mut self, request: &DequeueRequest, limit: usize, now: Instant) -> Vec<Lease> {
        self.silence().found.take(request, limit, now)
    }

    /// Takes out what was found in a shard that was silent, and no request has taken.
    pub(super) fn rest_of_found(&mut self, shard: &Shard) -> Vec<LeaseRef> {
        self.silence().found.rest(shard)
    }

    /// A Dequeue is over that has requested these shards, as a set of bits by position.
    pub(super) fn ends(&mut self, requested: u128) {
        for (at, shard) in self.shards.iter_mut().enumerate() {
            if requested & (1 << at) == 0 {
                shard.passed_over += 1;
            }
        }
        self.turn = (self.turn + 1) % self.shards.len().max(1);
    }

    /// About how many messages a shard may give.
    pub(super) fn capacity(&self, at: usize) -> u64 {
        self.shards[at].capacity()
    }

    /// Whether a shard may give more than that.
    pub(super) fn may_have_more(&self, at: usize) -> bool {
        self.shards[at].may_have_more
    }

    /// Whether waiting callers are notified of what becomes runnable in a shard.
    pub(super) fn is_marked(&self, at: usize) -> bool {
        self.shards[at].is_marked
    }

    /// Whether a shard was passed over by as many Dequeues as there are shards: it is to say what it has.
    pub(super) fn is_overdue(&self, at: usize) -> bool {
        self.shards[at].passed_over >= self.shards.len()
    }

    /// The order in which shards are requested, the first one first. `given`: how many messages it is to give already.
    pub(super) fn urgency(&self, at: usize, given: u64) -> (i128, u64, usize) {
        let shard = &self.shards[at];
        let head = match shard.head {
            None => i128::from(i64::MIN),
            Some(head) => i128::from(head) + i128::from(shard.gap) * i128::from(given),
        };
        (head, given, (at + self.shards.len() - self.turn) % self.shards.len())
    }

    /// What a lane needs to know of the queue.
    pub(super) fn outlook(&self, now_ms: u64) -> Outlook {
        let silence = self.silence();
        let answering = self.shards.iter().filter(|shard| !silence.lost.contains_key(&shard.number));
        let ready = answering.map(One::capacity).sum();
        let next_due_ms = self.shards.iter().filter_map(|shard| shard.next_due_ms).min();
        Outlook { ready, next_due_ms, now_ms, head: None }
    }
}

impl One {
    fn capacity(&self) -> u64 {
        self.ready.max(u64::from(self.may_have_more))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outlook(ready: u64) -> Outlook {
        Outlook { ready, next_due_ms: None, now_ms: 1, head: Some(7).filter(|_| ready > 0) }
    }

    #[test]
    fn q17_what_is_sent_after_a_request_is_not_forgotten_with_its_answer() {
        let mut known = ShardEstimates::of(0..2);
        let sent = known.sends(0, 1, false);
        known.adds(0, 1, Some(5));
        known.answers(0, sent, &outlook(0), [].iter());
        assert_eq!(known.capacity(0), 1, "the answer may be older than the message");
        let sent = known.sends(0, 1, false);
        known.answers(0, sent, &outlook(0), [].iter());
        assert_eq!(known.capacity(0), 0);
    }

    #[test]
    fn q17_a_due_message_counts_when_another_shard_says_the_time() {
        let mut known = ShardEstimates::of(0..2);
        let sent = known.sends(0, 0, false);
        known.answers(0, sent, &Outlook { next_due_ms: Some(50), ..outlook(0) }, [].iter());
        assert_eq!((known.capacity(0), known.outlook(1).next_due_ms), (0, Some(50)));
        let sent = known.sends(1, 0, false);
        known.answers(1, sent, &Outlook { now_ms: 50, ..outlook(0) }, [].iter());
        assert_eq!((known.capacity(0), known.outlook(50).next_due_ms), (1, None));
    }

    #[test]
    fn q17_a_busy_shard_is_not_the_most_urgent_one() {
        let mut known = ShardEstimates::of(0..2);
        for (number, head) in [(0, 100), (1, 1)] {
            let sent = known.sends(number, 0, false);
            known.answers(number, sent, &Outlook { head: Some(head), ..outlook(9) }, [].iter());
        }
        for _ in 0..3 {
            // A Dequeue of the first shard, whose worker completes a message before the answer is there and after it.
            let sent = known.sends(0, 1, false);
            known.changes(0);
            known.answers(0, sent, &Outlook { head: Some(100), ..outlook(8) }, [].iter());
            known.changes(0);
            assert!(known.urgency(1, 0) < known.urgency(0, 0));
        }
        known.adds(0, 1, Some(0));
        assert!(known.urgency(0, 0) < known.urgency(1, 0), "what was sent is known");
    }

    #[test]
    fn q17_a_shard_is_known_by_its_number_wherever_it_stands() {
        let mut known = ShardEstimates::of([0, 900, 901].into_iter());
        for at in 0..3 {
            let sent = known.sends(at, 0, false);
            known.answers(at, sent, &outlook(0), [].iter());
        }
        known.changes(901);
        known.changes(1);
        assert_eq!([0, 1, 2].map(|at| (known.number(at), known.capacity(at))), [(0, 0), (900, 0), (901, 1)]);
        assert!(known.falls_silent(900, None) && known.why_away(1, Instant::now()).is_some());
        assert!(known.ends_silence(900) && known.why_silent(900).is_none());
        known.ends(0b101);
        assert_eq!(known.shards.iter().map(|shard| shard.passed_over).collect::<Vec<_>>(), [0, 1, 0]);
    }

    #[test]
    fn x4_a_silent_shard_is_silent_in_each_layout_of_its_queue() {
        let now = Instant::now();
        let mut earlier = ShardEstimates::of(0..2);
        assert!(earlier.falls_silent(1, None));
        earlier.is_away(0, &not_sent(false), now);
        let mut later = earlier.of_same_queue([0, 1, 4].into_iter());
        assert_eq!([0, 1, 2].map(|at| later.why_away(at, now).is_some()), [true, true, false]);
        assert!(!later.falls_silent(1, None), "its task is there");
        assert_eq!((later.capacity(2), later.outlook(1).ready), (1, 2));
        // The task began with the earlier layout.
        assert!(earlier.ends_silence(1));
        assert!(later.why_silent(1).is_none() && later.falls_silent(1, None));
        // As does a call that is still under way.
        assert!(!earlier.falls_silent(1, None) && earlier.falls_silent(0, None));
        assert!(later.why_silent(0).is_some());
        later.is_away(0, &not_sent(false), now);
        assert!(earlier.ends_silence(0) && later.why_away(0, now).is_some());
        later.is_back(0);
        assert!(later.why_away(0, now).is_none());
    }

    #[test]
    fn q17_no_shard_is_passed_over_for_ever() {
        let mut known = ShardEstimates::of(0..3);
        for number in 0..3 {
            let sent = known.sends(number, 0, false);
            known.answers(number, sent, &outlook(9), [].iter());
        }
        for _ in 0..3 {
            assert!(!known.is_overdue(2));
            known.ends(0b011);
        }
        assert!(known.is_overdue(2));
        known.sends(2, 0, false);
        assert!(!known.is_overdue(2));
    }

    #[test]
    fn q17_a_shard_has_the_mark_of_a_waiting_server_until_it_changes() {
        let mut known = ShardEstimates::of(0..1);
        let answered = |known: &mut ShardEstimates, wait| {
            let sent = known.sends(0, 0, wait);
            known.answers(0, sent, &outlook(0), [].iter());
            known.is_marked(0)
        };
        assert!(!answered(&mut known, false));
        assert!(answered(&mut known, true) && answered(&mut known, false), "it stays");
        known.changes(0);
        assert!(!answered(&mut known, false));
        let sent = known.sends(0, 0, true);
        known.changes(0);
        known.answers(0, sent, &outlook(0), [].iter());
        assert!(!known.is_marked(0), "the change may have been notified");
    }
}
