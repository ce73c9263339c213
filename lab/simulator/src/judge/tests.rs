//! Each rule on the smallest histories that break it, and on ones that only come close.

use super::*;
use tallystone_model::{Cause, Event, MessageId, Metadata, QueueName, Recorded, Shard, State};

fn queue() -> QueueName {
    QueueName::parse("queue", "q").expect("a name")
}

fn shard() -> Shard {
    Shard::first(&queue())
}

fn id(id: &str) -> MessageId {
    MessageId::parse("id", id).expect("an id")
}

/// An event of a message of the value "v".
fn event(message: &str, version: u32, from: Option<State>, to: Option<State>) -> Event {
    let metadata = Metadata::parse([(EXCLUSIVITY_KEY.to_owned(), "v".to_owned())].into()).expect("metadata");
    Event {
        id: id(message),
        version,
        from,
        to,
        by: Cause::Dequeue,
        at_ms: 1,
        from_since_ms: 0,
        since_ms: 1,
        sequence: u64::from(message.as_bytes()[0]),
        enqueued_at_ms: 1,
        priority: 0,
        metadata,
        attempts: 0,
        fencing_token: 0,
        worker: String::new(),
        due_ms: 0,
        reason: String::new(),
        last_reason: String::new(),
        coalesced: false,
        payload: None,
        result: bytes::Bytes::new(),
    }
}

fn granted(message: &str, version: u32, fencing_token: u64) -> Event {
    Event { fencing_token, ..event(message, version, Some(State::Pending), Some(State::Running)) }
}

fn accepted(message: &str) -> Event {
    event(message, 1, None, Some(State::Pending))
}

/// A history of these events; `lost`: the numbers of those that a failover lost.
fn history(events: Vec<Event>, lost: &[u64]) -> History {
    let written = (0..).zip(events).map(|(write, event)| Written {
        write,
        elapsed_ms: 0,
        redis_set_ms: 0,
        is_lost: lost.contains(&write),
        recorded: Recorded { shard: shard(), offset: write, event },
    });
    History { written: written.collect(), ..History::default() }
}

fn lease(message: &str, fencing_token: u64, call: u64) -> SeenLease {
    SeenLease { queue: queue(), id: id(message), fencing_token, call }
}

fn breaks(history: &History) -> Vec<Rule> {
    Rule::ALL.into_iter().filter(|rule| !rule.findings(history).is_empty()).collect()
}

#[test]
fn x8_two_messages_of_a_value_do_not_run_at_once() {
    let ended = event("a", 3, Some(State::Running), Some(State::Completed));
    for (events, lost, is_broken) in [
        (vec![granted("a", 2, 7), granted("b", 2, 8)], &[][..], true),
        (vec![granted("a", 2, 7), granted("b", 2, 8)], &[0], false),
        (vec![granted("a", 2, 7), ended.clone(), granted("b", 2, 8)], &[], false),
        (vec![granted("a", 2, 7), ended, granted("b", 2, 8)], &[1], true),
    ] {
        assert_eq!(!Rule::ExclusiveValues.findings(&history(events, lost)).is_empty(), is_broken, "{lost:?}");
    }
}

#[test]
fn x8_a_fencing_token_comes_once_and_rises() {
    let again = |token| history(vec![granted("a", 2, 7), granted("a", 2, token)], &[0]);
    let seen = |token, call| vec![lease("a", 7, 1), lease("a", token, call)];
    let same = History { leases: seen(7, 2), ..again(7) };
    assert!(breaks(&same).contains(&Rule::FencingTokensDiffer));
    let lower = History { leases: seen(6, 2), ..again(6) };
    assert!(breaks(&lower).contains(&Rule::FencingTokensRise) && !breaks(&lower).contains(&Rule::FencingTokensDiffer));
    let higher = History { leases: seen(8, 2), ..again(8) };
    let repeated = History { leases: seen(7, 1), ..history(vec![granted("a", 2, 7)], &[]) };
    for fine in [higher, repeated] {
        assert!(
            !breaks(&fine).contains(&Rule::FencingTokensDiffer) && !breaks(&fine).contains(&Rule::FencingTokensRise)
        );
    }
}

#[test]
fn x8_one_version_and_one_offset_have_one_event() {
    let mut broken = history(vec![accepted("a"), Event { priority: 5, ..accepted("a") }], &[0]);
    assert!(breaks(&broken).contains(&Rule::EventVersions) && !breaks(&broken).contains(&Rule::OutboxOffsets));
    broken.written[1].recorded.offset = 0;
    assert!(breaks(&broken).contains(&Rule::OutboxOffsets));
    broken.written[1].recorded.event = accepted("a");
    assert!(!breaks(&broken).contains(&Rule::EventVersions) && !breaks(&broken).contains(&Rule::OutboxOffsets));
}

#[test]
fn x8_one_revision_has_one_configuration() {
    let seen = |revision, config: &str| SeenRevision { queue: queue(), revision, config: config.to_owned() };
    let of = |revisions| History { revisions, ..History::default() };
    assert_eq!(breaks(&of(vec![seen(2, "a"), seen(2, "b")])), [Rule::Revisions]);
    assert_eq!(breaks(&of(vec![seen(2, "a"), seen(2, "a"), seen(3, "b")])), []);
}

#[test]
fn x8_what_was_acknowledged_is_not_lost() {
    let kept = |lost: &[u64], left: &[(&str, State)]| History {
        acknowledged: vec![(queue(), id("a"))],
        left: left.iter().map(|(message, state)| ((queue(), id(message), Some("v".to_owned())), *state)).collect(),
        ..history(vec![accepted("a"), event("a", 2, Some(State::Pending), Some(State::Canceled))], lost)
    };
    assert_eq!(breaks(&kept(&[], &[("a", State::Canceled)])), []);
    assert_eq!(breaks(&kept(&[1], &[("a", State::Pending)])), []);
    assert_eq!(breaks(&kept(&[0, 1], &[])), [], "a failover lost it");
    assert_eq!(breaks(&kept(&[], &[])), [Rule::AcknowledgedMessages]);
    assert_eq!(breaks(&kept(&[1], &[("a", State::Canceled)])), [Rule::AcknowledgedMessages]);
    let never = History { acknowledged: vec![(queue(), id("b"))], ..History::default() };
    assert_eq!(breaks(&never), [Rule::AcknowledgedMessages]);
}

#[test]
fn x8_no_lease_ends_before_its_time() {
    let granted = Event { at_ms: 10, due_ms: 110, ..granted("a", 2, 7) };
    let extended = Event { by: Cause::ExtendLease, at_ms: 60, due_ms: 160, ..granted.clone() };
    let lapsed = Event { by: Cause::LeaseExpired, ..event("a", 3, Some(State::Running), Some(State::Pending)) };
    let lasts = |events: &[(&Event, u64)], set_ms, lost: &[u64]| {
        let mut history = history(events.iter().map(|(event, _)| (*event).clone()).collect(), lost);
        for (written, (_, elapsed_ms)) in history.written.iter_mut().zip(events) {
            (written.elapsed_ms, written.redis_set_ms) = (*elapsed_ms, set_ms);
        }
        Rule::LeasesLast.findings(&history).is_empty()
    };
    assert!(lasts(&[(&granted, 1_000), (&lapsed, 1_100)], 0, &[]));
    assert!(!lasts(&[(&granted, 1_000), (&lapsed, 1_099)], 0, &[]));
    assert!(lasts(&[(&granted, 1_000), (&lapsed, 1_099)], 1, &[]), "a clock was set");
    assert!(!lasts(&[(&granted, 1_000), (&extended, 1_050), (&lapsed, 1_149)], 0, &[]));
    assert!(lasts(&[(&granted, 1_000), (&extended, 1_050), (&lapsed, 1_100)], 0, &[1]), "that was lost");
}

#[test]
fn x8_only_its_holder_ends_a_lease() {
    let seen = |lease| SeenTransition { queue: queue(), id: id("a"), state: State::Completed, version: 3, lease };
    let done = |token| Event { fencing_token: token, ..event("a", 3, Some(State::Running), Some(State::Completed)) };
    let ended = |lease, written: History| History { transitions: vec![seen(lease)], ..written };
    let is_broken = |history| breaks(&history).contains(&Rule::LeasesEndedByHolders);
    assert!(!is_broken(ended(Some(7), history(vec![done(7)], &[]))));
    assert!(!is_broken(ended(None, history(vec![done(8)], &[]))), "an operator's call");
    assert!(is_broken(ended(Some(7), history(vec![done(8)], &[]))));
    let again = history(vec![done(7), done(9)], &[0]);
    assert!(!is_broken(ended(Some(7), again)), "the version of the lost one is used again");
}

#[test]
fn x8_fencing_tokens_may_fall_in_a_forked_shard_only() {
    let events = || history(vec![granted("a", 2, 9), granted("a", 4, 8)], &[0]);
    let leases = || vec![lease("a", 9, 1), lease("a", 8, 2)];
    let kept = History { leases: leases(), ..events() };
    assert!(breaks(&kept).contains(&Rule::FencingTokensRise));
    let forked = History { leases: leases(), forked: [shard()].into(), ..events() };
    assert!(!breaks(&forked).contains(&Rule::FencingTokensRise));
}

#[test]
fn x8_what_was_answered_was_written() {
    let seen = SeenTransition { queue: queue(), id: id("a"), state: State::Completed, version: 3, lease: None };
    let mut answered = History { transitions: vec![seen], ..History::default() };
    assert_eq!(breaks(&answered), [Rule::AnsweredTransitions]);
    let done = event("a", 3, Some(State::Running), Some(State::Completed));
    answered.written = history(vec![done], &[0]).written;
    assert_eq!(breaks(&answered), [], "lost, but written");
    assert_eq!(breaks(&History { leases: vec![lease("a", 7, 1)], ..History::default() }), [Rule::AnsweredTransitions]);
}

#[test]
fn x8_what_the_scrubber_finds_is_found() {
    let found = || vec!["I3: a".to_owned()];
    assert_eq!(breaks(&History { violations: found(), ..History::default() }), [Rule::SoundState]);
    assert_eq!(breaks(&History { failures: found(), ..History::default() }), [Rule::Readable]);
}

/// The same events, each in the shard of this number; its fencing tokens are of that shard.
fn in_shards(mut history: History, numbers: &[u16]) -> History {
    for (written, number) in history.written.iter_mut().zip(numbers) {
        let recorded = &mut written.recorded;
        recorded.shard.number = *number;
        recorded.event.fencing_token = recorded.shard.token(recorded.event.fencing_token);
    }
    history
}

/// Whether the events break a rule of all shards of a queue; `lost` and `numbers`: as above.
fn is_broken(rule: Rule, events: &[Event], lost: &[u64], numbers: &[u16]) -> bool {
    !rule.findings(&in_shards(history(events.to_vec(), lost), numbers)).is_empty()
}

#[test]
fn x4_two_messages_of_a_value_do_not_run_at_once_in_two_shards() {
    let ended = event("a", 3, Some(State::Running), Some(State::Completed));
    let rule = Rule::ExclusiveValues;
    assert!(is_broken(rule, &[granted("a", 2, 7), granted("b", 2, 8)], &[], &[0, 3]));
    // Of one id, too: each shard of an exclusive queue may have it.
    assert!(is_broken(rule, &[granted("a", 2, 7), granted("a", 2, 8)], &[], &[0, 3]));
    assert!(!is_broken(rule, &[granted("a", 2, 7), ended, granted("b", 2, 8)], &[], &[0, 0, 3]));
}

#[test]
fn x4_the_live_messages_of_a_value_are_in_one_shard() {
    let rule = Rule::ValuesInOneShard;
    for live in [State::Pending, State::Invisible, State::Running] {
        let first = event("a", 2, Some(State::Pending), Some(live));
        assert!(is_broken(rule, &[first.clone(), accepted("b")], &[], &[0, 3]), "{live:?}");
        assert!(!is_broken(rule, &[first.clone(), accepted("b")], &[], &[0, 0]), "{live:?}");
        assert!(!is_broken(rule, &[first, accepted("b")], &[0], &[0, 3]), "{live:?}: a failover lost it");
    }
    for ended in [Some(State::Completed), Some(State::Errored), None] {
        let events = [accepted("a"), event("a", 2, Some(State::Pending), ended), accepted("b")];
        assert!(!is_broken(rule, &events, &[], &[0, 0, 3]), "{ended:?}");
        let again = event("a", 3, Some(State::Errored), Some(State::Pending));
        assert!(is_broken(rule, &[&events[..], &[again]].concat(), &[], &[0, 0, 3, 0]), "a redrive");
    }
}

#[test]
fn x4_the_tokens_of_a_value_rise_over_changes() {
    let runs = |numbers: &[u16], seen: &[usize], forked: &[u16], lost: &[u64]| {
        let history = in_shards(history(vec![granted("a", 2, 7), granted("b", 2, 6)], lost), numbers);
        let event = |at: &usize| &history.written[*at].recorded.event;
        let leases = seen.iter().map(|at| lease(event(at).id.as_str(), event(at).fencing_token, *at as u64)).collect();
        let forked = forked.iter().map(|number| shard().sibling(*number)).collect();
        Rule::ValueTokensRise.findings(&History { leases, forked, ..history }).is_empty()
    };
    assert!(runs(&[0, 3], &[0, 1], &[], &[]));
    assert!(!runs(&[3, 0], &[0, 1], &[], &[]), "an earlier shard");
    assert!(!runs(&[3, 3], &[0, 1], &[], &[]));
    assert!(!runs(&[3, 0], &[0, 1], &[0, 3], &[]), "no two timelines of a shard explain that");
    assert!(runs(&[3, 3], &[0, 1], &[3], &[]), "two timelines continue the same state");
    assert!(runs(&[3, 0], &[0], &[], &[]), "no caller saw the second");
    assert!(runs(&[3, 0], &[0, 1], &[], &[0]), "a failover lost the change");
}

#[test]
fn x4_a_message_is_in_one_shard() {
    let gone = event("a", 3, Some(State::Completed), None);
    let rule = Rule::MessagesInOneShard;
    assert!(is_broken(rule, &[accepted("a"), accepted("a")], &[], &[0, 3]));
    let done = event("a", 2, Some(State::Running), Some(State::Completed));
    assert!(
        is_broken(rule, &[accepted("a"), done.clone(), accepted("a")], &[], &[0, 0, 3]),
        "it is known while it is retained"
    );
    assert!(!is_broken(rule, &[accepted("a"), done, gone, accepted("a")], &[], &[0, 0, 0, 3]));
    assert!(!is_broken(rule, &[accepted("a"), accepted("a")], &[0], &[0, 3]), "a failover lost the first one");
    assert!(!is_broken(rule, &[accepted("a"), accepted("b")], &[], &[0, 3]));
    let mut of_another = accepted("a");
    of_another.metadata = Metadata::parse([(EXCLUSIVITY_KEY.to_owned(), "w".to_owned())].into()).expect("metadata");
    assert!(!is_broken(rule, &[accepted("a"), of_another], &[], &[0, 3]), "ids are unique for each value");
}

#[test]
fn x4_what_a_failover_brings_back_to_an_earlier_shard_is_excused() {
    let done = event("a", 3, Some(State::Running), Some(State::Completed));
    let gone = event("a", 4, Some(State::Completed), None);
    let events = [granted("a", 2, 7), done, gone, granted("b", 2, 8)];
    for rule in [Rule::ExclusiveValues, Rule::ValuesInOneShard] {
        assert!(is_broken(rule, &[events[0].clone(), events[3].clone()], &[], &[0, 3]), "{rule:?}");
        assert!(
            !is_broken(rule, &events, &[1, 2], &[0, 0, 0, 3]),
            "{rule:?}: the lost events had emptied the first shard"
        );
        assert!(is_broken(rule, &events, &[1, 2], &[0, 5, 5, 3]), "{rule:?}: of another shard");
        assert!(
            is_broken(rule, &events, &[1, 2], &[0, 0, 0, 0]) == (rule == Rule::ExclusiveValues),
            "{rule:?}: within one"
        );
    }
    let twice = [accepted("a"), events[2].clone(), accepted("a")];
    assert!(!is_broken(Rule::MessagesInOneShard, &twice, &[1], &[0, 0, 3]));
    assert!(is_broken(Rule::MessagesInOneShard, &twice, &[1], &[0, 5, 3]));
}
