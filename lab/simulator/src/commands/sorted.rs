//! Commands on sorted sets that name members.

use super::arguments::{Arguments, float_text};
use super::reply::{CommandReply, bulk, count};
use super::scan::{Scan, page};
use crate::keyspace::{Fault, Keyspace};
use redis::Value;

fn score(score: Option<f64>) -> Value {
    score.map_or(Value::Nil, |score| bulk(float_text(score).as_bytes()))
}

/// ZADD with NX, XX, GT, LT, CH.
pub(super) fn add(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let [mut only_new, mut only_old, mut only_up, mut only_down, mut counts_changed] = [false; 5];
    let mut at = 2;
    loop {
        match () {
            () if arguments.is(at, "NX") => only_new = true,
            () if arguments.is(at, "XX") => only_old = true,
            () if arguments.is(at, "GT") => only_up = true,
            () if arguments.is(at, "LT") => only_down = true,
            () if arguments.is(at, "CH") => counts_changed = true,
            () => break,
        }
        at += 1;
    }
    let pairs = at;
    if pairs >= arguments.len() || (arguments.len() - pairs) % 2 == 1 {
        return Err(Fault::SYNTAX);
    }
    if only_new && only_old {
        return Err(Fault::new("ERR XX and NX options at the same time are not compatible"));
    }
    if (only_new && (only_up || only_down)) || (only_up && only_down) {
        return Err(Fault::new("ERR GT, LT, and/or NX options at the same time are not compatible"));
    }
    // Redis reads all scores before it changes anything.
    for at in (pairs..arguments.len()).step_by(2) {
        arguments.float(at)?;
    }
    keys.sorted(arguments.get(1))?;
    let (mut added, mut changed) = (0, 0);
    for at in (pairs..arguments.len()).step_by(2) {
        let (score, member) = (arguments.float(at)?, arguments.get(at + 1));
        let before = keys.sorted(arguments.get(1))?.and_then(|sorted| sorted.score(member));
        let admits = match before {
            None => !only_old,
            Some(before) => !only_new && (!only_up || score > before) && (!only_down || score < before),
        };
        if admits {
            keys.put_score(arguments.get(1), member, Some(score))?;
            added += usize::from(before.is_none());
            changed += usize::from(before.is_some_and(|before| before != score));
        }
    }
    Ok(count(if counts_changed { added + changed } else { added }))
}

pub(super) fn remove(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let mut removed = 0;
    for member in arguments.from(2) {
        removed += usize::from(keys.put_score(arguments.get(1), member, None)?.is_some());
    }
    Ok(count(removed))
}

pub(super) fn score_of(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let sorted = keys.sorted(arguments.get(1))?;
    Ok(score(sorted.and_then(|sorted| sorted.score(arguments.get(2)))))
}

pub(super) fn scores_of(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let sorted = keys.sorted(arguments.get(1))?;
    let scores = arguments.from(2).map(|member| score(sorted.and_then(|sorted| sorted.score(member))));
    Ok(Value::Array(scores.collect()))
}

pub(super) fn rank(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let sorted = keys.sorted(arguments.get(1))?;
    Ok(sorted.and_then(|sorted| sorted.rank(arguments.get(2))).map_or(Value::Nil, count))
}

pub(super) fn length(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    Ok(count(keys.sorted(arguments.get(1))?.map_or(0, |sorted| sorted.len())))
}

pub(super) fn scan(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let scan = Scan::read(arguments)?;
    let sorted = keys.sorted(arguments.get(1))?;
    let entries = sorted.into_iter().flat_map(|sorted| sorted.ordered());
    Ok(page(&scan, entries.map(|(member, number)| (member, score(Some(number))))))
}
