//! Audits and recounts (N12): a count is replaced by the sum of its events or adjusted, whatever happens meanwhile.

use super::*;
use tallystone_counters::audit::{Audit, Groups, begin, go_on};
use tallystone_counters::checkpoints::Epoch;
use tallystone_counters::recount::{RECOUNTS_MAX, Recount, Recounts, recount};
use tallystone_counters::rollup::COUNT_SOFT_MAX;
use tallystone_counters::{CheckpointUpdate, Commit, Deletions, Recounted};

/// What recounts have added to counts, as a model: an adjustment stays until a clear is counted after it.
#[derive(Default)]
pub(super) struct Adjustments(Vec<(CounterName, u64, i64)>);

impl Adjustments {
    /// `exact_to_ms`: of the count that was adjusted.
    pub(super) fn note(&mut self, name: CounterName, exact_to_ms: u64, adjustment: i64) {
        self.0.push((name, exact_to_ms, adjustment));
    }

    /// What they add to the count of the events before a time. `expired_ms`: when the counter has expired.
    pub(super) fn sum(&self, oracle: &Oracle, name: &CounterName, expired_ms: u64, before_ms: u64) -> i128 {
        let events = oracle.events(name).into_values().flatten();
        let clears = events.filter(|event| event.change == Change::Clear && event.time_ms < before_ms);
        let cleared_ms = clears.map(|event| event.time_ms).max();
        let stays = |at_ms: u64| at_ms > expired_ms && cleared_ms.is_none_or(|cleared_ms| cleared_ms < at_ms);
        let of_counter = self.0.iter().filter(|(of, at_ms, _)| of == name && stays(*at_ms));
        of_counter.map(|(_, _, adjustment)| i128::from(*adjustment)).sum()
    }

    /// Whether a count that was exact to a later time was adjusted.
    pub(super) fn any_after(&self, name: &CounterName, time_ms: u64) -> bool {
        self.0.iter().any(|(of, at_ms, _)| of == name && *at_ms > time_ms)
    }
}

/// A finished audit.
pub(super) async fn audited(store: &Compared, name: &CounterName) -> Audit {
    let mut audit = begin(store, name, &mut Groups::default()).await.expect("an audit");
    while !audit.is_finished() {
        audit = go_on(store, name, audit, &mut Groups::default()).await.expect("a page");
    }
    audit
}

pub(super) fn of_count(text: &str, adjustment: i64) -> Recount {
    Recount { token: token(text), audit: None, adjustment, reason: "a test".to_owned() }
}

fn of_events(text: &str, audit: Audit, adjustment: i64) -> Recount {
    Recount { audit: Some(audit), ..of_count(text, adjustment) }
}

impl TestNamespace {
    async fn counted(&mut self, name: &str, adds: &[NewEvent]) {
        for add in adds {
            self.append_one(add.clone()).await.expect("an add");
        }
        self.settled(name).await;
    }

    async fn recount(&self, name: &str, request: &Recount) -> Result<Recounted, Refusal> {
        recount(&self.store, &counter(name), request, 0).await
    }

    /// The count is wrong from now on, as a defect would leave it.
    async fn damage(&self, name: &str, count: i64) {
        let before = self.checkpoint(name).await;
        let epoch = Epoch { number: before.epoch.number + 1, ..before.epoch };
        let after = Checkpoint { count, epoch, ..before };
        assert_eq!(self.store.replace(&counter(name), &before, &after, &[]).await, Ok(Commit::Done));
    }
}

async fn namespace(test: &str) -> TestNamespace {
    TestNamespace::new(test, NamespaceConfig { archived: true, ..NamespaceConfig::default() }).await
}

#[tokio::test]
async fn n12_a_recount_makes_a_count_the_sum_of_its_events() {
    let mut ns = namespace("recount").await;
    ns.counted("a", &[add("a", "t", NOON_MS, 5), add("a", "u", NOON_MS, -2)]).await;
    ns.pass(60_000);
    ns.archive_and_die(u64::MAX).await.expect("it ends").expect("a pass");
    let right = audited(&ns.store, &counter("a")).await;
    assert_eq!((right.count, right.recounted(), right.events), (3, 3, 2));
    ns.damage("a", 10).await;
    let wrong = audited(&ns.store, &counter("a")).await;
    assert_eq!((wrong.count, wrong.recounted(), wrong.events), (10, 3, 2));
    // More is counted before the recount.
    ns.counted("a", &[add("a", "v", ns.now_ms(), 100)]).await;
    assert_eq!(ns.count("a").await, 110);
    let recounted = ns.recount("a", &of_events("r", wrong, 0)).await.expect("a recount");
    assert_eq!((recounted.old_count, recounted.new_count, recounted.epoch), (110, 103, 2));
    assert_eq!(ns.count("a").await, 103);
    ns.counted("a", &[add("a", "w", ns.now_ms(), 1)]).await;
    assert_eq!(ns.count("a").await, 104);
    let after = audited(&ns.store, &counter("a")).await;
    assert_eq!((after.recounted(), after.epoch.number), (104, 2));
    assert_eq!(ns.store.recounts(&counter("a")).await, Ok(vec![recounted]));
}

/// A recount dies between any two replies of the store, is repeated with its token, and has taken effect once.
#[tokio::test]
async fn n12_a_recount_may_die_at_any_step() {
    let mut ns = namespace("deaths").await;
    // Past the oracle, which does not die.
    let store = ns.store.redis.clone();
    let name = counter("a");
    let (mut expected, mut died) = (0, 0);
    for steps in 0.. {
        expected += count_another(&mut ns, &format!("before {steps}")).await;
        let mut audit = begin(&store, &name, &mut Groups::default()).await.expect("an audit");
        while !audit.is_finished() {
            audit = go_on(&store, &name, audit, &mut Groups::default()).await.expect("a page");
        }
        let text = format!("recount {steps}");
        let request = if steps % 2 == 0 { of_events(&text, audit, 3) } else { of_count(&text, 3) };
        let done = die_after(steps, recount(&store, &name, &request, 0)).await;
        died += u64::from(done.is_none());
        if steps % 3 == 0 {
            expected += count_another(&mut ns, &format!("after {steps}")).await;
        }
        let again = recount(&store, &name, &request, 0).await.expect("a recount");
        assert_eq!(again.new_count - again.old_count, 3, "{steps}");
        expected += 3;
        let recounts = store.recounts(&name).await.expect("recounts");
        assert_eq!(recounts.iter().filter(|recounted| recounted.token == text).count(), 1, "{steps}");
        expected += count_another(&mut ns, &format!("last {steps}")).await;
        assert_eq!(store.read(std::slice::from_ref(&name)).await.expect("a checkpoint")[0].count, expected, "{steps}");
        if let Some(done) = done {
            assert_eq!(done, Ok(again));
            break;
        }
    }
    assert!(died >= 3, "{died}");
}

/// One more add of the counter "a", rolled up. Returns its delta.
async fn count_another(ns: &mut TestNamespace, text: &str) -> i64 {
    let store = ns.store.redis.clone();
    let now_ms = ns.now_ms();
    assert_eq!(store.append(&[add("a", text, now_ms, 5)]).await, [counted(now_ms)]);
    ns.pass(60_000);
    let jobs = [ns.job(&counter("a"))];
    assert!(roll_up(&store, &store, &jobs).await.remove(0).is_ok());
    5
}

#[tokio::test]
async fn n12_an_adjustment_stays_until_a_clear() {
    let mut ns = namespace("adjusted").await;
    ns.counted("a", &[add("a", "t", NOON_MS, 5)]).await;
    let recounted = ns.recount("a", &of_count("r", -7)).await.expect("a recount");
    assert_eq!((recounted.old_count, recounted.new_count, recounted.from_events), (5, -2, false));
    let audit = audited(&ns.store, &counter("a")).await;
    assert_eq!((audit.recounted(), audit.sum, audit.epoch), (-2, 5, Epoch { number: 1, adjusted: -7 }));
    // The sum of the events has it, too: a recount from events does not remove what an operator has decided.
    let again = ns.recount("a", &of_events("s", audit, 10)).await.expect("a recount");
    assert_eq!((again.old_count, again.new_count, again.epoch), (-2, 8, 2));
    let clear = event("a", "clear", ns.now_ms(), Change::Clear);
    let later = add("a", "u", ns.now_ms() + 1, 4);
    ns.counted("a", &[clear, later]).await;
    let checkpoint = ns.checkpoint("a").await;
    assert_eq!((checkpoint.count, checkpoint.epoch), (4, Epoch { number: 2, adjusted: 0 }));
    let audit = audited(&ns.store, &counter("a")).await;
    assert_eq!((audit.recounted(), audit.cleared_ms > 0), (4, true));
}

#[tokio::test]
async fn n12_a_clear_between_audit_and_recount_is_no_loss() {
    let mut ns = namespace("cleared").await;
    ns.counted("a", &[add("a", "t", NOON_MS, 5)]).await;
    ns.damage("a", 6).await;
    let audit = audited(&ns.store, &counter("a")).await;
    let (clear, later) = (event("a", "clear", ns.now_ms(), Change::Clear), add("a", "u", ns.now_ms() + 1, 4));
    ns.counted("a", &[clear, later]).await;
    let recounted = ns.recount("a", &of_events("r", audit, 1)).await.expect("a recount");
    assert_eq!((recounted.old_count, recounted.new_count), (4, 5));
}

/// The adjustment would be part of a count from before the clear.
#[tokio::test]
async fn n12_a_recount_waits_for_the_rollup_of_a_clear() {
    let mut ns = namespace("pending-clear").await;
    ns.counted("a", &[add("a", "t", NOON_MS, 5)]).await;
    ns.append_one(event("a", "clear", ns.now_ms(), Change::Clear)).await.expect("a clear");
    let refused = ns.recount("a", &of_count("r", 7)).await;
    assert!(matches!(refused, Err(Refusal::CounterChanged { .. })), "{refused:?}");
    assert_eq!(ns.settled("a").await, 0);
    ns.recount("a", &of_count("r", 7)).await.expect("a recount");
    assert_eq!((ns.count("a").await, ns.settled("a").await), (7, 7));
}

#[tokio::test]
async fn n12_a_recount_refuses_what_retention_may_have_dropped_unless_it_was_made_before() {
    let mut ns = namespace("dropped").await;
    ns.counted("a", &[add("a", "t", NOON_MS, 5)]).await;
    let (right, name) = (audited(&ns.store, &counter("a")).await, counter("a"));
    ns.damage("a", 6).await;
    let wrong = audited(&ns.store, &name).await;
    let kept_from_ms = NOON_MS + 1;
    let refused = Refusal::EventsDropped { kept_from_ms };
    let request = of_events("r", wrong, 0);
    assert_eq!(recount(&ns.store, &name, &request, kept_from_ms).await, Err(refused));
    let first = recount(&ns.store, &name, &request, NOON_MS - 1).await;
    assert!(matches!(first, Err(Refusal::EventsDropped { .. })), "it was never cleared: {first:?}");
    let first = recount(&ns.store, &name, &request, 0).await;
    assert_eq!(first.as_ref().map(|recounted| recounted.new_count), Ok(5));
    assert_eq!(recount(&ns.store, &name, &request, kept_from_ms).await, first, "a retry");
    // What was counted since an audit may be gone, whatever the audit has found.
    let late = right.exact_to_ms + 1;
    let refused = Refusal::EventsDropped { kept_from_ms: late };
    assert_eq!(recount(&ns.store, &name, &of_events("s", right, 0), late).await, Err(refused));
}

/// A rollup that read the checkpoint before a recount would write its count over the new one.
#[tokio::test]
async fn n12_a_rollup_that_began_before_a_recount_commits_nothing() {
    let mut ns = namespace("overtaken").await;
    ns.counted("a", &[add("a", "t", NOON_MS, 5)]).await;
    ns.append_one(add("a", "u", ns.now_ms(), 1)).await.expect("an add");
    ns.pass(60_000);
    let (before, lease) = (ns.checkpoint("a").await, ns.lease());
    ns.recount("a", &of_count("r", 10)).await.expect("a recount");
    let exact_to_ms = before.exact_to_ms + 60_000;
    let after = Checkpoint { count: 6, exact_to_ms, last_write_ms: exact_to_ms - 1, lease, ..before };
    let update = CheckpointUpdate { counter: counter("a"), before, after };
    assert_eq!(ns.store.commit(&[update]).await, Ok(vec![Commit::Lost]));
    assert_eq!(ns.settled("a").await, 16);
}

#[tokio::test]
async fn n12_a_repeated_recount_changes_nothing_and_another_one_with_its_token_is_refused() {
    let mut ns = namespace("repeated").await;
    ns.counted("a", &[add("a", "t", NOON_MS, 5)]).await;
    let first = ns.recount("a", &of_count("r", 10)).await;
    ns.pass(5_000);
    assert_eq!(ns.recount("a", &of_count("r", 10)).await, first);
    assert_eq!(ns.recount("a", &of_count("r", 11)).await, Err(Refusal::TokenConflict));
    let audit = audited(&ns.store, &counter("a")).await;
    assert_eq!(ns.recount("a", &of_events("r", audit, 10)).await, Err(Refusal::TokenConflict));
    let other = Recount { reason: "another".to_owned(), ..of_count("r", 10) };
    assert_eq!(ns.recount("a", &other).await, Err(Refusal::TokenConflict));
    assert_eq!(ns.count("a").await, 15);
    // What an earlier epoch's audit has found is not put in place of what an operator has decided since.
    let stale = audit;
    ns.recount("a", &of_count("s", 1)).await.expect("a recount");
    let refused = ns.recount("a", &of_events("q", stale, 0)).await;
    assert!(matches!(refused, Err(Refusal::CounterChanged { .. })), "{refused:?}");
    for number in 0..RECOUNTS_MAX {
        ns.recount("a", &of_count(&format!("n{number}"), 1)).await.expect("a recount");
    }
    let kept = ns.store.recounts(&counter("a")).await.expect("recounts");
    assert_eq!((kept.len(), kept[0].token.as_str(), kept[0].epoch), (RECOUNTS_MAX, "n0", 3));
}

#[tokio::test]
async fn n12_a_counter_without_a_count_is_not_recounted() {
    let mut ns = namespace("none").await;
    let refused = Refusal::CounterNotFound { counter: "a".to_owned() };
    assert_eq!(ns.recount("a", &of_count("r", 1)).await, Err(refused.clone()));
    ns.append_one(add("a", "t", NOON_MS, 5)).await.expect("an add");
    assert_eq!(ns.recount("a", &of_count("r", 1)).await, Err(refused.clone()));
    let nothing = audited(&ns.store, &counter("a")).await;
    assert_eq!((nothing.count, nothing.recounted(), nothing.events), (0, 0, 0));
    ns.settled("a").await;
    ns.recount("a", &of_count("r", 1)).await.expect("a recount");
    let audit = begin(&ns.store, &counter("a"), &mut Groups::default()).await.expect("an audit");
    let cleared = ns.append_one(event("a", "clear", ns.now_ms(), Change::Clear)).await.expect("a clear");
    ns.store.delete(&counter("a"), cleared.time_ms).await.expect("a deletion");
    assert_eq!(ns.recount("a", &of_count("s", 1)).await, Err(refused));
    assert_eq!(ns.store.recounts(&counter("a")).await, Ok(Vec::new()), "they are gone with the counter");
    let changed = go_on(&ns.store, &counter("a"), audit, &mut Groups::default()).await;
    assert!(matches!(changed, Err(Refusal::CounterChanged { .. })), "{changed:?}");
    // It lives again, in no epoch.
    ns.pass(1);
    ns.counted("a", &[add("a", "u", ns.now_ms(), 2)]).await;
    assert_eq!((ns.count("a").await, ns.checkpoint("a").await.epoch), (2, Epoch::default()));
}

#[tokio::test]
async fn n12_a_recount_stays_within_the_range_of_counts() {
    let mut ns = namespace("range").await;
    ns.counted("a", &[add("a", "t", NOON_MS, 5)]).await;
    for adjustment in [i64::MAX, COUNT_SOFT_MAX - 5, i64::MIN, -COUNT_SOFT_MAX - 5] {
        assert_eq!(ns.recount("a", &of_count("r", adjustment)).await, Err(Refusal::Overflow), "{adjustment}");
    }
    assert_eq!(ns.checkpoint("a").await.epoch, Epoch::default());
    let recounted = ns.recount("a", &of_count("r", COUNT_SOFT_MAX - 6)).await.expect("a recount");
    assert_eq!(recounted.new_count, COUNT_SOFT_MAX - 1);
    // The next rollup closes the counter where the sum is too large.
    ns.counted("a", &[add("a", "u", ns.now_ms(), 1)]).await;
    assert_eq!(ns.append_one(add("a", "v", ns.now_ms(), 1)).await, Err(Refusal::Overflow));
    ns.recount("a", &of_count("s", -100)).await.expect("a recount");
    assert_eq!(ns.settled("a").await, COUNT_SOFT_MAX - 100);
    ns.append_one(add("a", "w", ns.now_ms(), 1)).await.expect("it is open again");
}

/// The home shard holds bounded adds against the checkpoint (N18).
#[tokio::test]
async fn n12_n18_bounds_are_held_against_the_new_count() {
    let config = NamespaceConfig {
        counter_type: tallystone_counters::namespace::CounterType::Accurate,
        buckets_per_id: 1,
        ..NamespaceConfig::default()
    };
    let mut ns = TestNamespace::new("bounded-recount", config).await;
    ns.counted("stock", &[add("stock", "t", NOON_MS, 5)]).await;
    ns.recount("stock", &of_count("r", -4)).await.expect("a recount");
    let take = |text, time_ms| {
        let bounds = Bounds { min: Some(0), max: None };
        NewEvent { bounds, ..add("stock", text, time_ms, -1) }
    };
    ns.append_one(take("first", ns.now_ms())).await.expect("the last one");
    assert_eq!(ns.append_one(take("second", ns.now_ms())).await, Err(Refusal::BoundReached { count: 0 }));
}
