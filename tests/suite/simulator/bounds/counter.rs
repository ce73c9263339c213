//! The cases of the scripts of counters. Each fills a shard, `size` times as much as one call can reach, and makes one call at
//! its limit.

use crate::simulator::bounds::budget::{Case, Scope};
use crate::simulator::bounds::space::*;
use tallystone_lua::counter::*;

/// Events of one call.
const EVENTS: usize = 512;
/// Time buckets of one call.
const BUCKETS: usize = 200;
/// Counters of one call: of a rollup batch, of a page, of those that fall due.
const COUNTERS: usize = 1_000;
/// Thresholds of a namespace.
const THRESHOLDS: usize = 32;
/// Windows that one counter has while rollups keep up, and a call about it reads.
const WINDOWS: u64 = 30;

pub(crate) async fn cases(script: CounterScript, size: usize) -> Vec<Case> {
    let alone =
        |what, items, calls| vec![Case::new(script.name(), what, size, Scope { items, ..Scope::default() }, calls)];
    let space = Space::new();
    let now = [digits(NOW_MS), digits(REVISION)];
    let with = |more: Vec<Vec<u8>>| [now.to_vec(), more].concat();
    let keys = space.keys.log();
    match script {
        CounterScript::PutNamespace | CounterScript::DeleteNamespace => {
            for number in 0..1_000 * size {
                space.raw("HSET", NAMESPACES, [format!("n{number}").into_bytes(), vec![1; 1_000]]);
            }
            let entry = [&be::<6>(1)[..], &[b'{'; 1_000]].concat();
            space.raw("HSET", NAMESPACES, [b"n1".to_vec(), entry]);
            let arguments = match script {
                CounterScript::PutNamespace => {
                    let head = [digits(NOW_MS), b"n1".to_vec(), digits(1), vec![b'{'; 2_000], digits(2), digits(0)];
                    head.into_iter().chain([b"n1".to_vec(), digits(3_600_000)]).collect()
                }
                _ => vec![digits(NOW_MS), b"n1".to_vec(), Vec::new()],
            };
            alone(
                "of many namespaces",
                1,
                space.metered(script, &[NAMESPACES.to_owned(), REGION_POSITIONS.to_owned()], &arguments),
            )
        }
        CounterScript::Configure => alone("there already", 1, space.metered(script, &keys, &now)),
        CounterScript::Tick => alone("one", 1, space.metered(script, &keys, &now)),
        CounterScript::Fence => {
            alone("to a later time", 1, space.metered(script, &keys, &with(vec![digits(NOW_MS), Vec::new()])))
        }
        CounterScript::Append => append(size),
        CounterScript::Close => {
            space.fill_pending(&counter(0), NOW_WINDOW - 10_000 * size as u64..NOW_WINDOW);
            let arguments = with(vec![digits(NOW_MS), digits(CLOSED_UP), counter(0)]);
            alone("unsettled windows", 1, space.metered(script, &keys, &arguments))
        }
        CounterScript::Seal | CounterScript::Settle | CounterScript::Touch => {
            [("all counters", COUNTERS, WINDOWS), ("unsettled windows", 100, 1_000 * size as u64)]
                .into_iter()
                .map(|(what, counters, windows)| rollup(script, what, size, counters, windows))
                .collect()
        }
        CounterScript::Due => {
            for number in 0..2 * COUNTERS * size {
                space.raw("ZADD", &space.keys.key("dirty"), [digits(NOW_MS - 1_000_000), counter(number)]);
            }
            let arguments = with(vec![digits(1_000), digits(COUNTERS), digits(60_000)]);
            alone("many are dirty", COUNTERS, space.metered(script, &keys, &arguments))
        }
        CounterScript::Defer => {
            for number in 0..COUNTERS * size {
                space.raw("ZADD", &space.keys.key("dirty"), [digits(NOW_MS - 1_000_000), counter(number)]);
            }
            let mut arguments = with(vec![digits(1_000), digits(60_000)]);
            arguments.extend((0..COUNTERS).map(counter));
            alone("many are dirty", COUNTERS, space.metered(script, &keys, &arguments))
        }
        CounterScript::Prune => {
            space.fill_layout(5_000 * size as u64);
            let mut arguments = with(vec![digits(NOW_MS - 1_000), digits(NOW_MS - 1_000)]);
            arguments.extend((0..COUNTERS).map(digits));
            let keys = [&keys[..], &[space.keys.key(KEPT)]].concat();
            alone("many layouts", COUNTERS, space.metered(script, &keys, &arguments))
        }
        CounterScript::Archive => {
            let arguments = with(vec![digits(1_000), b"ticket".to_vec()]);
            alone("one", 1, space.metered(script, &space.keys.archive(), &arguments))
        }
        CounterScript::Archived => {
            space.fill_layout(5_000 * size as u64);
            let ticket = [&be::<6>(0)[..], b"ticket"].concat();
            space.raw("SET", &space.keys.key(ARCHIVE), [ticket]);
            let arguments = with(vec![b"ticket".to_vec(), digits(NOW_MS - 1_000)]);
            alone("many layouts", 1, space.metered(script, &space.keys.archive(), &arguments))
        }
        CounterScript::Drop => {
            let field = |number: usize| [&be::<5>(1)[..], &be::<4>(number as u64)].concat();
            let events = space.keys.events(1, 0);
            for number in 0..2 * COUNTERS * size {
                space.raw("HSET", &events, [field(number), vec![1; 200]]);
            }
            let mut arguments = with(vec![digits(0)]);
            arguments.extend((0..COUNTERS).map(field));
            let keys = [&space.keys.archive()[..], &[events]].concat();
            alone("of many slots", COUNTERS, space.metered(script, &keys, &arguments))
        }
        CounterScript::Commit
        | CounterScript::Recount
        | CounterScript::Delete
        | CounterScript::Forget
        | CounterScript::Lower => home(script, &space, size),
        CounterScript::Merge | CounterScript::Attend => regions(script, &space, size),
        CounterScript::RegionTerm => {
            let key = REGION_LEASE.to_owned();
            alone("one", 1, space.metered(script, &[key], &[b"term".to_vec(), digits(10_000), digits(1)]))
        }
        CounterScript::Merged => {
            // The positions of some topics.
            let keys = [REGION_POSITIONS.to_owned(), REGION_LEASE.to_owned()];
            space.raw("SET", &keys[1], [b"term".to_vec()]);
            let position = |number: usize| [format!("topic/{number}").into_bytes(), digits(number)];
            (0..COUNTERS * size).for_each(|number| space.raw("HSET", &keys[0], position(number)));
            let head = [b"term".to_vec(), digits(0), digits(1), b"gone".to_vec()];
            let stored = |number: usize| {
                let [field, value] = position(number);
                [field, b"*".to_vec(), value]
            };
            let arguments: Vec<Vec<u8>> = head.into_iter().chain((0..COUNTERS).flat_map(stored)).collect();
            alone("of some positions", COUNTERS, space.metered(script, &keys, &arguments))
        }
    }
}

/// Every counter has a record of every region, and lacks what the last one has.
fn regions(script: CounterScript, space: &Space, size: usize) -> Vec<Case> {
    /// Records or counters of one call.
    const CALL: usize = 500;
    /// Other regions of a namespace.
    const OTHERS: usize = 15;
    let at_ms = NOW_MS - 10_000;
    let record = |exact_to_ms: u64| {
        [&be::<6>(0)[..], &be::<6>(at_ms - 1), &be::<4>(0), &be::<6>(exact_to_ms), &be::<6>(NOW_MS), &be::<8>(7)]
            .concat()
    };
    let key = space.keys.key(REGIONS);
    for number in 0..CALL * size {
        space.fill_checkpoint(&counter(number), at_ms, false);
        space.raw("ZADD", &space.keys.key(BEHIND), [digits(0), counter(number)]);
        for region in 0..OTHERS {
            let field = [format!("r{region}/").as_bytes(), &counter(number)[..]].concat();
            space.raw("HSET", &key, [field, record(at_ms)]);
        }
    }
    let arguments: Vec<Vec<u8>> = match script {
        CounterScript::Merge => {
            let one = |number| [counter(number), b"r1".to_vec(), record(NOW_MS)];
            let incarnations = (0..OTHERS).flat_map(|region| [format!("r{region}").into_bytes(), digits(1)]);
            let head = [digits(NOW_MS), digits(REVISION), digits(OTHERS)];
            head.into_iter().chain(incarnations).chain((0..CALL).flat_map(one)).collect()
        }
        _ => {
            let names = (0..OTHERS).map(|region| format!("r{region}").into_bytes());
            let one = |number| [counter(number), digits(at_ms)];
            let head = [digits(NOW_MS), digits(REVISION), digits(1_000), digits(20_000), digits(OTHERS)];
            head.into_iter().chain(names).chain((0..CALL).flat_map(one)).collect()
        }
    };
    let calls = space.metered(script, &space.keys.regions(), &arguments);
    let items = CALL * if script == CounterScript::Merge { 1 } else { OTHERS };
    vec![Case::new(script.name(), "of many records", size, Scope { items, ..Scope::default() }, calls)]
}

fn rollup(script: CounterScript, what: &'static str, size: usize, counters: usize, windows: u64) -> Case {
    let space = Space::new();
    for number in 0..counters {
        space.fill_pending(&counter(number), NOW_WINDOW - windows..NOW_WINDOW);
    }
    let mut arguments = vec![digits(NOW_MS), digits(REVISION)];
    let keys = match script {
        CounterScript::Settle => space.keys.settle().to_vec(),
        _ => space.keys.log().to_vec(),
    };
    match script {
        CounterScript::Seal => arguments.push(digits(1_000)),
        CounterScript::Settle => arguments.extend([digits(1_000), digits(1)]),
        _ => arguments.extend([digits(1_000_000_000), digits(1_000)]),
    }
    for number in 0..counters {
        arguments.push(counter(number));
        match script {
            CounterScript::Seal => {}
            CounterScript::Settle => {
                // Half of the windows.
                let to_ms = (NOW_WINDOW - windows / 2) * WINDOW_MS;
                arguments.extend([digits(to_ms), digits(0), digits(60_000)]);
            }
            _ => arguments.push(digits(1)),
        }
    }
    let calls = space.metered(script, &keys, &arguments);
    Case::new(script.name(), what, size, Scope { items: counters, ..Scope::default() }, calls)
}

fn home(script: CounterScript, space: &Space, size: usize) -> Vec<Case> {
    let at_ms = NOW_MS - 10_000;
    let is_deleted = matches!(script, CounterScript::Forget | CounterScript::Delete);
    for number in 0..2 * COUNTERS * size {
        space.fill_checkpoint(&counter(number), at_ms, is_deleted);
    }
    let arguments: Vec<Vec<u8>> = match script {
        CounterScript::Commit => {
            // Every counter passes every threshold.
            let passed = vec![1; 14 + 8 * THRESHOLDS];
            let update = |number| [counter(number), digits(at_ms), checkpoint(NOW_MS, NOW_MS), passed.clone()];
            [digits(NOW_MS), digits(REVISION)].into_iter().chain((0..COUNTERS).flat_map(update)).collect()
        }
        CounterScript::Recount => {
            // As many recounts as a counter keeps, with the longest reasons and tokens.
            let head = [digits(NOW_MS), digits(REVISION), counter(0), digits(at_ms)];
            let rest = [checkpoint(at_ms, at_ms), vec![b'x'; 32 * 512], vec![1; 14 + 8], digits(at_ms)];
            head.into_iter().chain(rest).collect()
        }
        CounterScript::Delete => vec![digits(NOW_MS), digits(REVISION), digits(1_000), counter(0), digits(NOW_MS)],
        CounterScript::Forget => {
            let head = [digits(NOW_MS), digits(REVISION), digits(NOW_MS)];
            head.into_iter().chain((0..COUNTERS).map(counter)).collect()
        }
        _ => {
            let head = [digits(NOW_MS), digits(REVISION), digits(at_ms), digits(at_ms - 1)];
            head.into_iter().chain((0..COUNTERS).map(counter)).collect()
        }
    };
    let items = if matches!(script, CounterScript::Delete | CounterScript::Recount) { 1 } else { COUNTERS };
    let keys = match script {
        CounterScript::Commit | CounterScript::Recount => space.keys.commit().to_vec(),
        _ => space.keys.home().to_vec(),
    };
    let calls = space.metered(script, &keys, &arguments);
    vec![Case::new(script.name(), "of many checkpoints", size, Scope { items, ..Scope::default() }, calls)]
}

/// The events of a call: their number and that of their time buckets, each event of another counter.
/// `bounds`: of each add, or nothing.
fn append_call(space: &Space, what: &'static str, size: usize, [buckets, slots]: [usize; 2], bounds: &[u8]) -> Case {
    const BOUNDED: u8 = 8;
    const TOKEN_BYTES: usize = 64;
    const BUCKET_S: u64 = 1;
    let windows_of_bucket = BUCKET_S * 1_000 / WINDOW_MS;
    let bucket_of = |event: usize| event % buckets;
    let window_of = |event: usize| NOW_WINDOW - 1 - bucket_of(event) as u64 * windows_of_bucket;
    let mut keys = space.keys.append().to_vec();
    keys.extend((0..buckets).map(|bucket| space.keys.events(BUCKET_S, bucket as u64)));
    let bound = be::<8>(1 << 60);
    let mut parameters =
        [&be::<6>(ACCEPT_MS_MAX)[..], &be::<6>(1_000), &be::<6>(ACCEPT_MS_MAX), &bound, &be::<2>(EVENTS as u64)]
            .concat();
    (0..buckets).for_each(|_| parameters.extend_from_slice(&be::<2>(slots as u64)));
    let (mut items, mut fields, mut ids) = (Vec::new(), Vec::new(), Vec::new());
    for bucket in 0..buckets {
        for slot in 0..slots {
            fields.push([&be::<5>(window_of(bucket))[..], &be::<4>(slot as u64)].concat());
        }
    }
    for event in 0..EVENTS {
        let field = bucket_of(event) * slots + event / buckets % slots + 1;
        let id = [&be::<2>(7)[..], &[event as u8; 12], format!("{event:t>TOKEN_BYTES$}").as_bytes()].concat();
        let record = [(1 + 1 + id.len()) as u8, 1, 1];
        for part in [field as u64, 0, event as u64 + 1] {
            items.extend_from_slice(&be::<2>(part));
        }
        items.extend_from_slice(&be::<6>(window_of(event) * WINDOW_MS + 7));
        items.push(if bounds.is_empty() { 0 } else { BOUNDED });
        items.extend_from_slice(&be::<8>(1));
        items.push(record.len() as u8);
        items.extend_from_slice(&record);
        items.extend_from_slice(bounds);
        ids.push(id);
    }
    let mut arguments = vec![digits(NOW_MS), digits(REVISION), digits(1), parameters, items];
    arguments.extend((0..EVENTS).map(counter));
    arguments.extend(fields);
    arguments.extend(ids);
    let calls = space.metered(CounterScript::Append, &keys, &arguments);
    Case::new("append", what, size, Scope { items: EVENTS + buckets, ..Scope::default() }, calls)
}

fn append(size: usize) -> Vec<Case> {
    let mut cases = Vec::new();
    let space = Space::new();
    (0..10_000 * size).for_each(|number| space.fill_pending(&counter(EVENTS + number), NOW_WINDOW - 2..NOW_WINDOW));
    cases.push(append_call(&space, "new counters", size, [BUCKETS, 2], &[]));
    let space = Space::new();
    space.fill_layout(5_000 * size as u64);
    cases.push(append_call(&space, "many layouts, the rate rises", size, [1, 16], &[]));
    let space = Space::new();
    (0..EVENTS).for_each(|number| space.fill_pending(&counter(number), NOW_WINDOW - 1 - WINDOWS..NOW_WINDOW - 1));
    cases.push(append_call(&space, "known counters", size, [1, 16], &[]));
    let space = Space::new();
    (0..EVENTS).for_each(|number| space.fill_pending(&counter(number), NOW_WINDOW - 1 - WINDOWS..NOW_WINDOW - 1));
    let bounds = [i64::MIN.to_be_bytes(), i64::MAX.to_be_bytes()].concat();
    cases.push(append_call(&space, "known counters, with bounds", size, [1, 16], &bounds));
    // The next window of each counter moves what stands before it into the field of older windows.
    let space = Space::new();
    (0..EVENTS).for_each(|number| {
        space.fill_pending(&counter(number), NOW_WINDOW - 100 * size as u64..NOW_WINDOW - 2);
    });
    cases.push(append_call(&space, "unsettled windows", size, [BUCKETS, 2], &[]));
    let space = Space::new();
    for slot in 0..16 {
        let field = [&be::<5>(NOW_WINDOW - 1)[..], &be::<4>(slot)].concat();
        let record = [&[80, 1, 1][..], &[b'x'; 78]].concat();
        space.raw("HSET", &space.keys.events(1, 0), [field, record.repeat(1_000 * size)]);
    }
    cases.push(append_call(&space, "a full window", size, [1, 16], &[]));
    cases
}
