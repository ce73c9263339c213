//! The rules of the judge, one function each. They know nothing of how an episode was made.

use super::history::{History, SeenTransition, is_seen_grant, lease_of, message_of};
use super::spread;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use tallystone_model::{Cause, State, fencing};

/// What a history must not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// At most one message of an exclusivity value runs in all shards of a queue, in the events that survive (Q4, Q17).
    ExclusiveValues,
    /// Live messages of an exclusivity value are in at most one shard of a queue, in the events that survive (Q17).
    ValuesInOneShard,
    /// The fencing tokens of an exclusivity value rise, whichever shard of the queue grants them, in the events that survive. Within a
    /// shard see `FencingTokensRise` (Q11, Q17).
    ValueTokensRise,
    /// A message is in at most one shard of its queue, in the events that survive: so it is accepted and completed once (Q3, Q17).
    MessagesInOneShard,
    /// No two calls get the same fencing token for a message (Q11, X1).
    FencingTokensDiffer,
    /// A fencing token is higher than that of every earlier lease of the message, unless two timelines of its shard have
    /// continued the same state (Q11, X1).
    FencingTokensRise,
    /// A lease is ended by a caller with its fencing token (Q11).
    LeasesEndedByHolders,
    /// No lease ends before its time, whatever the clocks of primaries in a row show (Q17).
    LeasesLast,
    /// No two events with one shard, sequence and version differ (Q19, X1).
    EventVersions,
    /// No two events with one offset of an outbox differ (Q19, X1).
    OutboxOffsets,
    /// No two configurations have one revision (Q2, X1).
    Revisions,
    /// What was acknowledged is there, or an event that survives says where it went (X2).
    AcknowledgedMessages,
    /// What a caller was answered, Redis wrote (Q10).
    AnsweredTransitions,
    /// The counts and structures of the state are those of its messages.
    SoundState,
    /// At the end, without faults, everything can be read.
    Readable,
}

impl Rule {
    /// All of them.
    pub const ALL: [Rule; 15] = [
        Rule::ExclusiveValues,
        Rule::ValuesInOneShard,
        Rule::ValueTokensRise,
        Rule::MessagesInOneShard,
        Rule::FencingTokensDiffer,
        Rule::FencingTokensRise,
        Rule::LeasesEndedByHolders,
        Rule::LeasesLast,
        Rule::EventVersions,
        Rule::OutboxOffsets,
        Rule::Revisions,
        Rule::AcknowledgedMessages,
        Rule::AnsweredTransitions,
        Rule::SoundState,
        Rule::Readable,
    ];

    /// How a history breaks the rule; empty: it does not.
    pub fn findings(self, history: &History) -> Vec<String> {
        match self {
            Rule::ExclusiveValues => spread::exclusive_values(history),
            Rule::ValuesInOneShard => spread::values_in_one_shard(history),
            Rule::ValueTokensRise => spread::value_tokens_rise(history),
            Rule::MessagesInOneShard => spread::messages_in_one_shard(history),
            Rule::FencingTokensDiffer => fencing_tokens_differ(history),
            Rule::FencingTokensRise => fencing_tokens_rise(history),
            Rule::LeasesEndedByHolders => leases_ended_by_holders(history),
            Rule::LeasesLast => leases_last(history),
            Rule::EventVersions => event_versions(history),
            Rule::OutboxOffsets => outbox_offsets(history),
            Rule::Revisions => revisions(history),
            Rule::AcknowledgedMessages => acknowledged_messages(history),
            Rule::AnsweredTransitions => answered_transitions(history),
            Rule::SoundState => history.violations.clone(),
            Rule::Readable => history.failures.clone(),
        }
    }
}

fn fencing_tokens_differ(history: &History) -> Vec<String> {
    let mut calls = HashMap::new();
    let differing = history.leases.iter().filter_map(|lease| {
        let first = *calls.entry((&lease.queue, &lease.id, lease.fencing_token)).or_insert(lease.call);
        (first != lease.call).then(|| format!("calls {first} and {} got the same lease: {lease:?}", lease.call))
    });
    differing.collect()
}

/// In the order in which Redis granted them, of those that a caller saw. A later timeline that continues the same state as an
/// earlier one may have lower numbers, while the clocks of their servers differ by more than the time between them
/// (docs/decisions/0076). No number has two meanings even then.
fn fencing_tokens_rise(history: &History) -> Vec<String> {
    let seen = history.seen_leases();
    let mut last = HashMap::new();
    let mut found = Vec::new();
    for written in &history.written {
        let event = &written.recorded.event;
        if history.forked.contains(&written.recorded.shard) || !is_seen_grant(&written.recorded, &seen) {
            continue;
        }
        let last = last.entry((&written.recorded.shard, &event.id)).or_insert(0);
        if event.fencing_token <= *last {
            found.push(format!("message '{}' got token {} after {last}", event.id, event.fencing_token));
        }
        *last = event.fencing_token.max(*last);
    }
    found
}

/// A transition that was lost and the one that replaces it may have the same version: one of them has to be the caller's.
fn leases_ended_by_holders(history: &History) -> Vec<String> {
    let mut holders: HashMap<_, BTreeSet<u64>> = HashMap::new();
    for written in &history.written {
        let event = &written.recorded.event;
        let shard = &written.recorded.shard;
        let key = (&shard.queue, u64::from(shard.number), &event.id, event.version, event.to);
        holders.entry(key).or_default().insert(event.fencing_token);
    }
    let is_of_another = |seen: &&SeenTransition| {
        let Some(lease) = seen.lease else { return false };
        let key = (&seen.queue, fencing::shard_of(lease), &seen.id, seen.version, Some(seen.state));
        holders.get(&key).is_some_and(|holders| !holders.contains(&lease))
    };
    let ended = history.transitions.iter().filter(is_of_another);
    ended.map(|seen| format!("it has ended the lease of another: {seen:?}")).collect()
}

/// Of the leases that survive. A primary whose clock is set forward ends them early by the step, and one whose clock is set back was
/// measured before that.
fn leases_last(history: &History) -> Vec<String> {
    let mut begun = HashMap::new();
    let mut found = Vec::new();
    for written in history.written.iter().filter(|written| !written.is_lost) {
        let event = &written.recorded.event;
        let key = (&written.recorded.shard, event.sequence);
        if matches!(event.by, Cause::Dequeue | Cause::ExtendLease) {
            begun.insert(key, (written.elapsed_ms, event.due_ms.saturating_sub(event.at_ms)));
        } else if event.by == Cause::LeaseExpired
            && let Some((began_ms, length_ms)) = begun.remove(&key)
            && written.elapsed_ms + written.redis_set_ms < began_ms + length_ms
        {
            let lasted_ms = written.elapsed_ms - began_ms;
            found.push(format!("a lease of {length_ms} ms has lapsed after {lasted_ms} ms: {event:?}"));
        }
    }
    found
}

fn event_versions(history: &History) -> Vec<String> {
    let mut first = HashMap::new();
    let differing = history.written.iter().filter_map(|written| {
        let event = &written.recorded.event;
        // The version of a message that is collected is the one that it had, raised.
        let earlier = *first.entry((&written.recorded.shard, event.sequence, event.version)).or_insert(event);
        (earlier != event).then(|| format!("one sequence and version, two events:\n    {earlier:?}\n    {event:?}"))
    });
    differing.collect()
}

fn outbox_offsets(history: &History) -> Vec<String> {
    let mut first = HashMap::new();
    let differing = history.written.iter().filter_map(|written| {
        let recorded = &written.recorded;
        let earlier = *first.entry((&recorded.shard, recorded.offset)).or_insert(&recorded.event);
        (*earlier != recorded.event)
            .then(|| format!("offset {}, two events:\n    {earlier:?}\n    {:?}", recorded.offset, recorded.event))
    });
    differing.collect()
}

fn revisions(history: &History) -> Vec<String> {
    let mut first = HashMap::new();
    let differing = history.revisions.iter().filter_map(|seen| {
        let earlier = *first.entry((&seen.queue, seen.revision)).or_insert(&seen.config);
        (*earlier != seen.config)
            .then(|| format!("revision {}, two configurations:\n    {earlier}\n    {}", seen.revision, seen.config))
    });
    differing.collect()
}

fn acknowledged_messages(history: &History) -> Vec<String> {
    let accepted: BTreeSet<_> = history
        .written
        .iter()
        .filter(|written| written.recorded.event.from.is_none())
        .map(|written| (&written.recorded.shard.queue, &written.recorded.event.id))
        .collect();
    let never = history.acknowledged.iter().filter(|(queue, id)| !accepted.contains(&(queue, id)));
    let mut found: Vec<String> = never.map(|(_, id)| format!("'{id}' was acknowledged and never written")).collect();
    let mut last = BTreeMap::new();
    for recorded in history.surviving() {
        last.insert(message_of(recorded), (recorded.event.to, recorded.shard.number));
    }
    for (message, (state, number)) in last {
        let left = history.left.get(&message).copied();
        if left != state {
            let (queue, id, _) = message;
            found.push(format!("'{id}' of {queue} is {left:?}; its last event, of shard {number}, says {state:?}"));
        }
    }
    found
}

fn answered_transitions(history: &History) -> Vec<String> {
    let written: BTreeSet<_> = history
        .written
        .iter()
        .map(|written| {
            let event = &written.recorded.event;
            (&written.recorded.shard.queue, &event.id, event.version, event.to.map(State::name))
        })
        .collect();
    let granted: BTreeSet<_> = history
        .written
        .iter()
        .filter(|written| written.recorded.event.to == Some(State::Running))
        .map(|written| lease_of(&written.recorded))
        .collect();
    let transitions = history
        .transitions
        .iter()
        .filter(|seen| !written.contains(&(&seen.queue, &seen.id, seen.version, Some(seen.state.name()))));
    let leases =
        history.leases.iter().filter(|lease| !granted.contains(&(&lease.queue, &lease.id, lease.fencing_token)));
    transitions
        .map(|seen| format!("answered, never written: {seen:?}"))
        .chain(leases.map(|lease| format!("answered, never granted: {lease:?}")))
        .collect()
}
