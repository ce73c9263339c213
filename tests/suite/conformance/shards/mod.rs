//! Queues with several shards (Q17, X4): what all shards of a queue do together. Each shard alone is a queue of one, for which the other
//! files speak.

use super::named;
use std::collections::BTreeSet;
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_tests::queue::{no_lease, to};
use tallystone_tests::*;

/// Makes a test over each kind of store, in queues of 4 or 7 shards.
macro_rules! over_stores_of_shards {
    ($($test:ident),+ $(,)?) => {
        over_store!(on_oracle, |name| tallystone_tests::Stage::oracle_of_shards(name, 4), $($test),+);
        over_store!(on_redis, |name| {
            let redis = tallystone_tests::TestRedis::shared().await;
            tallystone_tests::Stage::redis_of_shards(&format!("shards-{name}"), redis, 7).await
        }, $($test),+);
        over_store!(on_cluster, |name| {
            let redis = tallystone_tests::TestRedis::shared_cluster().await;
            tallystone_tests::Stage::redis_of_shards(&format!("shards-{name}"), redis, 4).await
        }, $($test),+);
    };
}

mod layouts;
mod resharding;

over_stores_of_shards!(
    q17_messages_are_spread_and_seen_as_one_queue,
    q17_a_value_is_in_one_shard_and_runs_once_at_a_time,
    q17_a_dequeue_takes_from_all_shards_what_is_there,
    q17_urgency_holds_across_shards_within_its_bound,
    q17_a_message_that_another_server_has_sent_is_passed_over_only_so_often,
    q17_a_request_id_and_a_ticket_find_their_leases_in_any_shard,
    q17_requests_with_one_id_in_one_call_get_the_same_leases,
    q17_filters_and_selections_go_over_all_shards,
    q17_the_bounds_of_a_queue_are_shared_by_its_shards,
    q17_a_change_of_the_configuration_is_in_force_in_all_shards,
    q17_a_purge_and_a_deletion_reach_all_shards,
    q17_an_id_may_be_that_of_one_message_of_each_value,
);

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("m{n}")).collect()
}

async fn shards_of<S: Store>(queue: &TestQueue<S>) -> Vec<Shard> {
    let layout = queue.store.layout(&queue.shard).await.expect("a queue");
    layout.numbers().map(|number| queue.shard.sibling(number)).collect()
}

/// The number of the shard that has the message of this id; `None`: no message has it.
pub(super) async fn shard_of<S: Probe>(queue: &TestQueue<S>, name: &str) -> Option<u16> {
    let mut found = Vec::new();
    for shard in shards_of(queue).await {
        let holds = queue.store.holds(&shard, &[id(name)]).await.expect("a shard");
        found.extend(holds[0].then_some(shard.number));
    }
    assert!(found.len() <= 1, "{name} is in {found:?}");
    found.pop()
}

/// Through a server that does not know the shards of the queue, each of these new messages is found by this verb.
async fn finds_each<S: Probe>(
    late: &TestQueue<S>,
    current: &TestQueue<S>,
    verb: &str,
    new: Vec<NewMessage>,
    change: &str,
) {
    let ids: Vec<String> = new.iter().map(|message| message.id.to_string()).collect();
    current.put(new).await;
    let is_of_running = ["complete", "extend", "release"].contains(&verb);
    let leases = if is_of_running { current.take_all().await } else { Vec::new() };
    if verb == "redrive" {
        for id in &ids {
            current.cancel(no_lease(id), "").await.expect("a pending message");
        }
    }
    for (n, id) in ids.iter().enumerate() {
        let done = match (verb, leases.get(n).map(to)) {
            ("complete", Some(lease)) => late.complete(lease).await.map(drop),
            ("extend", Some(lease)) => late.extend(lease, None, "").await.map(drop),
            ("release", Some(lease)) => late.release(lease, Some(0), "").await.map(drop),
            ("cancel", _) => late.cancel(no_lease(id), "").await.map(drop),
            ("redrive", _) => late.redrive(id).await.map(drop),
            ("update", _) => late.reprioritize(id, 2).await.map(drop),
            ("get", _) => late.try_get(id).await.map(drop),
            _ => late.store.explain(&late.shard, &tallystone_tests::id(id)).await.map(drop),
        };
        assert_eq!(done, Ok(()), "{verb} of {id}, {change}");
    }
    let none = late.try_get("none").await;
    assert_eq!(none, Err(Refusal::MessageNotFound { id: "none".to_owned() }));
}

async fn q17_messages_are_spread_and_seen_as_one_queue<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    let all = names(100);
    queue.put(all.iter().map(|name| message(name, 1))).await;
    let mut fewest = usize::MAX;
    for shard in shards_of(&queue).await.into_iter().skip(1) {
        let page = queue.store.list_messages(&shard, State::Pending, "", 1_000).await.expect("a shard");
        fewest = fewest.min(page.items.len());
    }
    assert!(fewest >= 5, "one of the shards has {fewest} of 100 messages");
    let listed: BTreeSet<String> = queue.list_by(State::Pending, 7).await.iter().map(|m| m.id.to_string()).collect();
    assert_eq!(listed, all.iter().cloned().collect());
    assert_eq!(queue.depth().await, Depth { pending: 100, ..Depth::default() });
    for name in &all {
        assert_eq!(queue.facts(name).await.message.id.as_str(), name);
        let again = queue.through(&stage.other).try_put(message(name, 1)).await.expect("the same message");
        assert_eq!(again.enqueued_at_ms, stage.clock.now_ms());
    }
    assert!(matches!(queue.try_put(message("m7", 2)).await, Err(Refusal::IdConflict { .. })));
    assert!(matches!(queue.try_get("none").await, Err(Refusal::MessageNotFound { .. })));
    queue.reprioritize("m3", -5).await.expect("a pending message");
    queue.cancel(no_lease("m4"), "").await.expect("a pending message");
    queue.redrive("m4").await.expect("a canceled message");
    assert_eq!((queue.get("m3").await.priority, queue.state("m4").await), (-5, State::Pending));
}

async fn q17_a_value_is_in_one_shard_and_runs_once_at_a_time<S: Probe>(stage: &Stage<S>) {
    const VALUES: usize = 13;
    let (here, mut done) = (stage.queue(exclusive()).await, 0);
    let there = here.through(&stage.other);
    here.put((0..130).map(|n| keyed(&format!("m{n}"), (n % 5) as i64, &format!("v{}", n % VALUES)))).await;
    while done < 130 {
        let mut running = BTreeSet::new();
        let mut leases = here.take(5).await;
        leases.extend(there.take(100).await);
        for lease in &leases {
            assert!(running.insert(lease.metadata.get(KEY).expect("a value")), "twice at once: {lease:?}");
        }
        assert_eq!(running.len(), VALUES, "every value has a message that can run");
        for lease in &leases {
            // Through the server that did not give it: the fencing token names the shard.
            there.complete(to(lease)).await.expect("a live lease");
        }
        done += leases.len();
    }
    assert_eq!(here.depth().await, Depth { completed: 130, ..Depth::default() });
}

async fn q17_a_dequeue_takes_from_all_shards_what_is_there<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    queue.put(names(60).iter().map(|name| message(name, 1))).await;
    let there = queue.through(&stage.other);
    // A server that has not seen a message of this queue yet.
    let mut found = there.take(50).await;
    found.extend(there.take(50).await);
    let ids: BTreeSet<&str> = found.iter().map(|lease| lease.id.as_str()).collect();
    assert_eq!((found.len(), ids.len()), (60, 60));
    assert!(found[..50].is_sorted_by_key(|lease| lease.priority));
    let shards: BTreeSet<u64> = found.iter().map(|lease| fencing::shard_of(lease.fencing_token)).collect();
    assert_eq!(shards.len(), shards_of(&queue).await.len(), "each has given some");
    assert_eq!(queue.take(1).await, []);
    // What falls due in any shard is found.
    for lease in &found {
        queue.release(to(lease), Some(1_000), "").await.expect("a live lease");
    }
    assert_eq!(there.take(1).await, []);
    stage.clock.advance(1_000);
    for _ in 0..60 {
        there.take_one().await;
    }
    assert_eq!(there.take(1).await, []);
}

/// The bound on the average is the product of the messages of a Dequeue and the shards.
async fn q17_urgency_holds_across_shards_within_its_bound<S: Probe>(stage: &Stage<S>) {
    const MESSAGES: usize = 1_400;
    let queue = stage.queue(simple()).await;
    // 701 has no common divisor with it: every priority once, in no order.
    let message = |n: usize| message(&format!("m{n}"), (n * 701 % MESSAGES) as i64);
    for from in (0..MESSAGES).step_by(700) {
        queue.put((from..from + 700).map(message)).await;
    }
    let shards = shards_of(&queue).await.len();
    for limit in [1, 8, 32] {
        let (mut order, at_most) = (Vec::new(), MESSAGES / 4);
        while order.len() < at_most {
            order.extend(queue.take(limit).await.iter().map(|lease| lease.priority));
        }
        let mut sorted = order.clone();
        sorted.sort_unstable();
        let rank = |priority: i64| sorted.binary_search(&priority).expect("it is one of them") as i64;
        let errors = order.iter().zip(0_i64..).map(|(priority, at)| (rank(*priority) - at).unsigned_abs());
        let errors: Vec<u64> = errors.collect();
        let (worst, mean) = (errors.iter().max(), errors.iter().sum::<u64>() as f64 / errors.len() as f64);
        println!("limit {limit}: the mean error of the rank is {mean}, the worst {worst:?}");
        assert!(mean <= (limit * shards) as f64, "limit {limit}: {mean}");
        assert!(worst <= Some(&((limit * shards * shards) as u64)), "limit {limit}: {worst:?}");
    }
}

async fn q17_a_message_that_another_server_has_sent_is_passed_over_only_so_often<S: Probe>(stage: &Stage<S>) {
    let here = stage.queue(simple()).await;
    let shards = shards_of(&here).await.len();
    here.put(names(40 * shards).iter().map(|name| message(name, 100))).await;
    // Now it knows of every shard.
    here.take(2 * shards).await;
    let layout = here.store.layout(&here.shard).await.expect("a queue");
    for number in layout.numbers() {
        let of_shard = |name: &String| layout.current().number_of(None, &id(name)) == number;
        let name = (0..).map(|n| format!("urgent{number}-{n}")).find(of_shard).expect("one in some");
        here.through(&stage.other).put([message(&name, 1)]).await;
        let mut passes = 0;
        while here.take_ids(1).await != [name.clone()] {
            passes += 1;
            assert!(passes <= shards + 1, "{name} was passed over by {passes} Dequeues");
        }
    }
}

async fn q17_a_request_id_and_a_ticket_find_their_leases_in_any_shard<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    queue.put(names(40).iter().map(|name| message(name, 1))).await;
    let there = queue.through(&stage.other);
    for n in 0..12 {
        let request = || named(&format!("r{n}"), 2);
        let first = queue.try_take(request()).await.expect("an open queue");
        assert!(!first.is_empty());
        for again in [&queue, &there] {
            let repeated = again.try_take(request()).await.expect("an open queue");
            let tokens = |leases: &[Lease]| leases.iter().map(|lease| lease.fencing_token).collect::<Vec<_>>();
            assert_eq!(tokens(&repeated), tokens(&first));
        }
    }
    // The reply of a Dequeue without an id is lost: the next try gets what it gave, and no more.
    let requests = [request(5), request(1), request(3)];
    let ticket = |number| Ticket { server: 9, slot: 0, first: 1, number };
    let lost = there.take_with(ticket(1), &requests).await.expect("an open queue");
    assert_eq!(lost.iter().map(Vec::len).collect::<Vec<_>>(), [5, 1, 3]);
    let before = queue.depth().await;
    let found = there.take_with(ticket(2), &requests).await.expect("an open queue");
    assert_eq!((found, queue.depth().await), (lost, before));
    let gone: Vec<DequeueRequest> =
        requests.iter().map(|request| DequeueRequest { limit: 0, ..request.clone() }).collect();
    let collected = there.take_with(ticket(3), &gone).await.expect("an open queue");
    assert_eq!(collected.iter().map(Vec::len).sum::<usize>(), 9);
    let overtaken = there.take_with(ticket(2), &requests).await;
    assert!(overtaken.is_err(), "a late try: {overtaken:?}");
}

/// A retry may come in one call with its original: they must not go to different shards.
async fn q17_requests_with_one_id_in_one_call_get_the_same_leases<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    queue.put(names(80).iter().map(|name| message(name, 1))).await;
    for n in 0..8 {
        let id = format!("r{n}");
        let requests = vec![named(&id, 2), request(1), named(&id, 2), named(&id, 2)];
        let answer = queue.dequeue(requests).await.expect("an open queue");
        let of = |at: usize| answer.leases[at].as_ref().expect("an open queue").iter();
        let tokens: Vec<BTreeSet<u64>> =
            [0, 2, 3].map(|at| of(at).map(|lease| lease.fencing_token).collect()).into_iter().collect();
        assert!(tokens[0].len() == 2 && tokens.iter().all(|other| *other == tokens[0]), "{tokens:?}");
        assert_eq!(queue.depth().await.running, 3 * (n + 1));
    }
}

async fn q17_filters_and_selections_go_over_all_shards<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    queue.put((0..60).map(|n| tagged(&format!("m{n}"), 1, &[("org", ["a", "b", "c"][n % 3])]))).await;
    let of_b = filter(&[("org", "b")]);
    assert_eq!(queue.depth_of(&of_b).await, Depth { pending: 20, ..Depth::default() });
    let filters = std::slice::from_ref(&of_b);
    let mut leased = BTreeSet::new();
    loop {
        let found = queue.take_where(7, filters).await;
        if found.is_empty() {
            break;
        }
        leased.extend(found);
    }
    assert_eq!(leased, (0..60).filter(|n| n % 3 == 1).map(|n| format!("m{n}")).collect());
    let selection =
        Selection { states: [State::Pending].into(), filter: Some(filter(&[("org", "c")])), ..Selection::default() };
    let change = Change::Cancel { reason: "unwanted".to_owned() };
    for (dry_run, left) in [(true, 40), (false, 20)] {
        let request = ChangeRequest { selection: selection.clone(), change: change.clone(), dry_run };
        let matched = queue.change_all(&request, 5).await;
        assert_eq!((matched, queue.depth().await.pending), (20, left));
    }
    for foreign in ["9/", "x"] {
        let page = queue.store.list_messages(&queue.shard, State::Pending, foreign, 5).await;
        assert!(matches!(page, Err(Refusal::Invalid { .. })), "{foreign}: {page:?}");
    }
}

async fn q17_the_bounds_of_a_queue_are_shared_by_its_shards<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(QueueConfig { max_depth: 70, ..simple() }).await;
    let mut accepted = 0;
    for name in names(400) {
        match queue.try_put(message(&name, 1)).await {
            Ok(_) => accepted += 1,
            Err(refusal) => assert_eq!(refusal, Refusal::QueueFull { queue: queue.name().to_string(), max_depth: 70 }),
        }
    }
    // Each has a share, which is rounded up.
    let shards = shards_of(&queue).await.len() as u64;
    assert_eq!(accepted, 70_u64.div_ceil(shards) * shards);
}

async fn q17_a_change_of_the_configuration_is_in_force_in_all_shards<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    let there = queue.through(&stage.other);
    queue.put(names(20).iter().map(|name| message(name, 1))).await;
    there.take_one().await;
    let pause = |dequeue_blocked| QueuePatch { dequeue_blocked: Some(dequeue_blocked), ..QueuePatch::default() };
    let before = queue.describe().await.expect("a queue");
    let changed = queue.reconfigure(pause(true)).await;
    assert_eq!((changed.revision, changed.created_at_ms), (before.revision + 1, before.created_at_ms));
    let blocked = there.try_take(request(20)).await;
    assert!(matches!(blocked, Err(Refusal::DequeueBlocked { .. })), "{blocked:?}");
    there.reconfigure(pause(false)).await;
    assert_eq!(queue.take(20).await.len(), 19);
    let lease_ms = 77_000;
    queue.reconfigure(QueuePatch { lease_ms: Some(lease_ms), ..QueuePatch::default() }).await;
    there.put(names(40)[20..].iter().map(|name| message(name, 1))).await;
    for lease in there.take(20).await {
        assert_eq!(lease.expires_at_ms - lease.leased_at_ms, lease_ms, "{lease:?}");
    }
}

async fn q17_a_purge_and_a_deletion_reach_all_shards<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    let there = queue.through(&stage.other);
    let message = |n: u64| {
        let invisibility_ms = Some(60_000).filter(|_| n >= 25);
        NewMessage { invisibility_ms, ..keyed(&format!("m{n}"), 1, &format!("v{n}")) }
    };
    queue.put((0..30).map(message)).await;
    let mut leases = Vec::new();
    while leases.len() < 10 {
        leases.extend(queue.take(1).await);
    }
    for lease in &leases[..5] {
        there.complete(to(lease)).await.expect("a live lease");
    }
    assert!(matches!(there.store.delete_queue(queue.name()).await, Err(Refusal::QueueNotEmpty { .. })));
    assert_eq!(there.purge(false).await, 25);
    assert_eq!(queue.depth().await, Depth { running: 5, ..Depth::default() });
    assert!(matches!(there.store.delete_queue(queue.name()).await, Err(Refusal::QueueNotEmpty { .. })));
    assert_eq!(there.purge(true).await, 5);
    for _ in 0..2 {
        there.store.delete_queue(queue.name()).await.expect("an empty queue, or a repeated call");
    }
    assert!(matches!(queue.try_put(keyed("m", 1, "v")).await, Err(Refusal::QueueNotFound { .. })));
    assert!(matches!(queue.dequeue(vec![request(1)]).await, Err(Refusal::QueueNotFound { .. })));
    // Another queue of the name, with another number of shards: servers that knew the first one find its messages.
    stage.clock.advance(1);
    for shards in [2, 1, 6] {
        let config = QueueConfig { shards, ..exclusive() };
        there.store.create_queue(queue.name(), config).await.expect("a new queue");
        let all = (0..20).map(|n| keyed(&format!("n{n}"), 1, &format!("v{n}")));
        for message in all {
            // A server that has the earlier layout in mind may refuse the first message, certainly without effect.
            let first = queue.try_put(message.clone()).await;
            if let Err(refusal) = first {
                assert!(matches!(refusal, Refusal::Unavailable { applied: Applied::No, .. }), "{refusal:?}");
                queue.try_put(message).await.expect("the current layout");
            }
        }
        assert_eq!(there.take(50).await.len(), 20, "{shards} shards");
        assert_eq!(queue.purge(true).await, 20);
        there.store.delete_queue(queue.name()).await.expect("an empty queue");
        stage.clock.advance(1);
    }
}

async fn q17_an_id_may_be_that_of_one_message_of_each_value<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    let layout = queue.store.layout(&queue.shard).await.expect("a queue");
    let value_in = |number: u16| {
        let values = (0..).map(|n| format!("v{n}"));
        values
            .into_iter()
            .find(|value| layout.current().number_of(Some(value), &id("a")) == number)
            .expect("one in some")
    };
    let (first, second) = (value_in(0), value_in(2));
    queue.put([keyed("a", 1, &first), keyed("a", 2, &second)]).await;
    let leases = queue.take(9).await;
    assert_eq!(leases.len(), 2);
    // A lease is of one of them; what names only the id finds the one in the first shard that has it.
    queue.complete(to(&leases[1])).await.expect("a live lease");
    assert_eq!(queue.get("a").await.metadata.get(KEY), Some(first.as_str()));
    assert_eq!(queue.state("a").await, State::Running);
    queue.complete(to(&leases[0])).await.expect("a live lease");
    queue.purge(true).await;
}
