//! What the words of a counter table stand for.

use tallystone_counters::log::WINDOW_MS;
use tallystone_counters::regions::RegionRecord;
use tallystone_counters::*;

/// 2026-11-20, 12:00 UTC: a table begins at its time 0.
pub(super) const START_MS: u64 = 1_795_176_000_000;

pub(super) fn stored(is_stored: bool) -> String {
    if is_stored { "stored" } else { "not stored" }.to_owned()
}

pub(super) fn number(word: &str) -> u64 {
    word.parse().unwrap_or_else(|_| panic!("{word} is no number"))
}

pub(super) fn counter(word: &str) -> CounterName {
    CounterName::parse(word).expect("a counter")
}

pub(super) fn since_start(ms: u64) -> String {
    if ms == 0 { "never".to_owned() } else { (ms as i64 - START_MS as i64).to_string() }
}

pub(super) fn at(word: &str) -> u64 {
    START_MS.saturating_add_signed(word.parse().unwrap_or_else(|_| panic!("{word} is no time")))
}

/// What is in front of `[min,max]`, and that.
fn bounds(word: &str) -> (&str, Bounds) {
    let Some((word, bounds)) = word.split_once('[') else { return (word, Bounds::default()) };
    let (min, max) = bounds.trim_end_matches(']').split_once(',').expect("[min,max]");
    let [min, max] = [min, max].map(|bound| (!bound.is_empty()).then(|| bound.parse().expect("a bound")));
    (word, Bounds { min, max })
}

/// What is in front of `{source,item key}`, and that.
fn labels(word: &str) -> (&str, Labels) {
    let Some((word, labels)) = word.split_once('{') else { return (word, Labels::default()) };
    let (source, event_item_key) = labels.trim_end_matches('}').split_once(',').expect("{source,item key}");
    (word, Labels::parse(source, event_item_key).expect("labels"))
}

/// `token/counter+delta[min,max]{source,item key}[@time]`, either bound or both with their brackets absent, and so are labels;
/// `token/counter!` for a clear; without a time it happens when it is counted.
pub(super) fn event(word: &str) -> NewEvent {
    let (word, time_ms) = word.split_once('@').map_or((word, None), |(word, time)| (word, Some(at(time))));
    let (token, rest) = word.split_once('/').expect("token/counter");
    let (rest, labels) = labels(rest);
    let (rest, bounds) = bounds(rest);
    let sign = rest.find(['+', '-', '!']).expect("a change");
    let change = match &rest[sign..] {
        "!" => Change::Clear,
        delta => Change::Add(delta.parse().unwrap_or_else(|_| panic!("{delta} is no delta"))),
    };
    let (counter, token) = (counter(&rest[..sign]), Token::parse(token).expect("a token"));
    NewEvent { counter, token, time_ms, change, bounds, labels }
}

/// `counter time [up|down]`.
pub(super) fn settlement(words: &[&str]) -> Settlement {
    let is_deleted = words.get(2) == Some(&"deleted");
    let closed = match words.get(2) {
        None | Some(&"deleted") => Closed::No,
        Some(&"up") => Closed::Up,
        Some(_) => Closed::Down,
    };
    let to_ms = at(words[1]);
    let (last_write_ms, idle_shards) = (to_ms, Vec::new());
    Settlement { counter: counter(words[0]), to_ms, closed, last_write_ms, is_deleted, idle_shards }
}

/// A recount of which only the reason matters.
pub(super) fn recounted(reason: &str) -> Recounted {
    let (exact_to_ms, from_events, token) = (0, false, String::new());
    let (epoch, recounted_ms, old_count, new_count, adjustment) = (1, 0, 0, 0, 0);
    let reason = reason.to_owned();
    Recounted { epoch, recounted_ms, exact_to_ms, old_count, new_count, adjustment, from_events, reason, token }
}

/// `[epoch[.adjusted]]`, behind a point.
fn epoch(word: &str) -> (&str, Epoch) {
    let mut parts = word.split('.');
    let front = parts.next().unwrap_or_default();
    let number = parts.next().map_or(0, |epoch| epoch.parse().expect("an epoch"));
    let adjusted = parts.next().map_or(0, |adjusted| adjusted.parse().expect("a number"));
    (front, Epoch { number, adjusted })
}

/// `counter:from[.epoch][^cleared][=count]:to:count[.epoch.adjusted][!cleared][@last_write]#lease`; from is `never` for the first
/// checkpoint. `d` behind from and count: of a deleted counter.
pub(super) fn update(word: &str) -> CheckpointUpdate {
    let (word, lease) = word.split_once('#').expect("#lease");
    let (word, last_write) = word.split_once('@').unwrap_or((word, ""));
    let (word, cleared) = word.split_once('!').unwrap_or((word, ""));
    let parts: Vec<&str> = word.split(':').collect();
    let (from, count_before) = parts[1].split_once('=').unwrap_or((parts[1], "0"));
    let (count, to_epoch) = epoch(parts[3].trim_end_matches('d'));
    let after = Checkpoint {
        count: count.parse().expect("a count"),
        exact_to_ms: at(parts[2]),
        last_write_ms: if last_write.is_empty() { 0 } else { at(last_write) },
        lease: LeaseOrder { leased_at_ms: number(lease), fencing_token: 1 },
        is_deleted: parts[3].ends_with('d'),
        epoch: to_epoch,
        cleared_ms: if cleared.is_empty() { 0 } else { at(cleared) },
    };
    let before = stood_at(from, count_before.parse().expect("a count"));
    CheckpointUpdate { counter: counter(parts[0]), before, after }
}

/// `from[.epoch][d][@last_write][^cleared]`, as far as it is compared; from is `never` for the first checkpoint.
pub(super) fn stood_at(word: &str, count: i64) -> Checkpoint {
    let (word, cleared) = word.split_once('^').unwrap_or((word, ""));
    let (word, last_write) = word.split_once('@').unwrap_or((word, ""));
    let (from, epoch) = epoch(word.trim_end_matches('d'));
    let last_write_ms = if last_write.is_empty() { 0 } else { at(last_write) };
    let exact_to_ms = if from == "never" { 0 } else { at(from) };
    let cleared_ms = if cleared.is_empty() { 0 } else { at(cleared) };
    let is_deleted = word.ends_with('d');
    Checkpoint { count, exact_to_ms, last_write_ms, is_deleted, epoch, cleared_ms, ..Checkpoint::default() }
}

/// `counter/region:exact_to:count[.epoch][!cleared][@last_write][+incarnation]`.
pub(super) fn merged(word: &str) -> (CounterName, RegionName, RegionRecord) {
    let (word, incarnation) = word.split_once('+').unwrap_or((word, "0"));
    let (word, last_write) = word.split_once('@').unwrap_or((word, ""));
    let (word, cleared) = word.split_once('!').unwrap_or((word, ""));
    let (name, rest) = word.split_once('/').expect("counter/region");
    let parts: Vec<&str> = rest.split(':').collect();
    let (count, epoch) = epoch(parts[2]);
    let record = RegionRecord {
        incarnation: number(incarnation),
        cleared_ms: if cleared.is_empty() { 0 } else { at(cleared) },
        epoch: epoch.number,
        exact_to_ms: at(parts[1]),
        last_write_ms: if last_write.is_empty() { 0 } else { at(last_write) },
        count: count.parse().expect("a count"),
    };
    (counter(name), RegionName::parse(parts[0]).expect("a region"), record)
}

/// Each window by its start: the sum of its adds, and the time of its last clear.
pub(super) fn shown(mut pending: Pending) -> String {
    pending.windows.sort_by_key(|window| window.number);
    let window = |window: &Window| {
        let cleared = window.cleared_ms.map_or(String::new(), |ms| format!(" cleared at {}", since_start(ms)));
        format!("{}: {}{cleared}", since_start(window.number * WINDOW_MS), window.sum)
    };
    let mut parts: Vec<String> = pending.windows.iter().map(window).collect();
    match pending.closed {
        Closed::No => {}
        Closed::Up => parts.push("closed up".to_owned()),
        Closed::Down => parts.push("closed down".to_owned()),
    }
    if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
}

/// The default, with all events of a counter in one shard, and with these parameters.
pub(super) fn config(words: &[&str]) -> NamespaceConfig {
    let base = NamespaceConfig { buckets_per_id: 1, ..NamespaceConfig::default() };
    let serde_json::Value::Object(mut all) = serde_json::to_value(base).expect("JSON") else { panic!("no object") };
    for word in words {
        let (name, value) = word.split_once('=').expect("name=value");
        if name == "regions" {
            all.insert(name.to_owned(), value.split(',').map(serde_json::Value::from).collect());
            continue;
        }
        if name == "thresholds" {
            let threshold = |count: &str| serde_json::json!({"count": count});
            all.insert(name.to_owned(), value.split(',').map(threshold).collect());
            continue;
        }
        let text = || if value == "true" { true.into() } else { value.into() };
        let value = value.parse::<u64>().map_or_else(|_| text(), serde_json::Value::from);
        // Parameters that earlier servers do not know are left out.
        let is_known = all.insert(name.to_owned(), value).is_some() || name == "archived";
        assert!(is_known, "{name} is no parameter");
    }
    serde_json::from_value(all.into()).expect("a configuration")
}
