//! Commands on ranges of sorted sets: by position, by score, by the bytes of members.

use super::arguments::{Arguments, float, float_text};
use super::reply::{CommandReply, bulk, count, positions};
use crate::keyspace::{Bytes, Fault, Keyspace, Sorted};
use redis::Value;

/// One end of a range of scores: the number, and whether it is in the range.
type ScoreEnd = (f64, bool);

/// One end of a range of members.
enum LexEnd<'a> {
    First,
    Last,
    Member(&'a [u8], bool),
}

/// What a range begins with and ends with.
enum Range<'a> {
    Positions(i64, i64),
    Scores(ScoreEnd, ScoreEnd),
    Members(LexEnd<'a>, LexEnd<'a>),
}

fn score_end(text: &[u8]) -> Result<ScoreEnd, Fault> {
    let (number, is_in) = text.strip_prefix(b"(").map_or((text, true), |rest| (rest, false));
    let number = float(number).ok_or(Fault::new("ERR min or max is not a float"))?;
    Ok((number, is_in))
}

fn lex_end(text: &[u8]) -> Result<LexEnd<'_>, Fault> {
    match text {
        b"-" => Ok(LexEnd::First),
        b"+" => Ok(LexEnd::Last),
        [b'[', member @ ..] => Ok(LexEnd::Member(member, true)),
        [b'(', member @ ..] => Ok(LexEnd::Member(member, false)),
        _ => Err(Fault::new("ERR min or max not valid string range item")),
    }
}

fn scores(arguments: &Arguments) -> Result<Range<'static>, Fault> {
    Ok(Range::Scores(score_end(arguments.get(2))?, score_end(arguments.get(3))?))
}

fn members(arguments: &Arguments) -> Result<Range<'_>, Fault> {
    Ok(Range::Members(lex_end(arguments.get(2))?, lex_end(arguments.get(3))?))
}

/// The members of a range, in order.
fn in_range<'a>(sorted: &'a Sorted, range: &Range) -> Box<dyn Iterator<Item = (&'a Bytes, f64)> + 'a> {
    match *range {
        Range::Positions(from, to) => {
            let positions = positions(from, to, sorted.len());
            Box::new(sorted.ordered().skip(positions.start).take(positions.len()))
        }
        Range::Scores((min, with_min), (max, with_max)) => {
            let from = sorted.ordered_from(min, &[]).skip_while(move |(_, score)| !with_min && *score == min);
            Box::new(from.take_while(move |(_, score)| if with_max { *score <= max } else { *score < max }))
        }
        // Such sets have one score only.
        Range::Members(ref from, ref to) => {
            let score = sorted.ordered().next().map_or(0.0, |(_, score)| score);
            let (first, with_first) = match from {
                LexEnd::First => (&[][..], true),
                LexEnd::Last => return Box::new(std::iter::empty()),
                LexEnd::Member(member, is_in) => (*member, *is_in),
            };
            let begin = sorted.ordered_from(score, first);
            let skipped = usize::from(!with_first && sorted.score(first).is_some());
            let last: Option<(Bytes, bool)> = match to {
                LexEnd::First => return Box::new(std::iter::empty()),
                LexEnd::Last => None,
                LexEnd::Member(member, is_in) => Some(((*member).into(), *is_in)),
            };
            let is_before = move |member: &Bytes| match &last {
                None => true,
                Some((last, true)) => member <= last,
                Some((last, false)) => member < last,
            };
            Box::new(begin.skip(skipped).take_while(move |(member, _)| is_before(member)))
        }
    }
}

struct Options {
    with_scores: bool,
    skipped: i64,
    /// Negative: all.
    taken: i64,
}

/// LIMIT and WITHSCORES from this argument on; BYSCORE and BYLEX were read before.
fn options(arguments: &Arguments, mut at: usize) -> Result<Options, Fault> {
    let mut options = Options { with_scores: false, skipped: 0, taken: -1 };
    while at < arguments.len() {
        if arguments.is(at, "WITHSCORES") {
            options.with_scores = true;
        } else if arguments.is(at, "LIMIT") && at + 2 < arguments.len() {
            (options.skipped, options.taken) = (arguments.integer(at + 1)?, arguments.integer(at + 2)?);
            at += 2;
        } else if !arguments.is(at, "BYSCORE") && !arguments.is(at, "BYLEX") {
            return Err(Fault::SYNTAX);
        }
        at += 1;
    }
    Ok(options)
}

fn read(keys: &mut Keyspace, arguments: &Arguments, range: &Range, options: &Options) -> CommandReply {
    let mut items = Vec::new();
    let Some(sorted) = keys.sorted(arguments.get(1))? else { return Ok(Value::Array(items)) };
    // A negative begin is none that any range has.
    let Ok(skipped) = usize::try_from(options.skipped) else { return Ok(Value::Array(items)) };
    let taken = usize::try_from(options.taken).unwrap_or(usize::MAX);
    for (member, score) in in_range(sorted, range).skip(skipped).take(taken) {
        items.push(bulk(member));
        if options.with_scores {
            items.push(bulk(float_text(score).as_bytes()));
        }
    }
    Ok(Value::Array(items))
}

/// ZRANGE, without REV.
pub(super) fn range(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let options = options(arguments, 4)?;
    let has = |word| (4..arguments.len()).any(|at| arguments.is(at, word));
    let range = match (has("BYSCORE"), has("BYLEX")) {
        (true, false) => scores(arguments)?,
        (false, true) => members(arguments)?,
        (true, true) => return Err(Fault::SYNTAX),
        (false, false) if has("LIMIT") => {
            return Err(Fault::new(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        (false, false) => Range::Positions(arguments.integer(2)?, arguments.integer(3)?),
    };
    read(keys, arguments, &range, &options)
}

pub(super) fn range_by_score(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let range = scores(arguments)?;
    read(keys, arguments, &range, &options(arguments, 4)?)
}

pub(super) fn range_by_lex(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let range = members(arguments)?;
    read(keys, arguments, &range, &options(arguments, 4)?)
}

fn counted(keys: &mut Keyspace, arguments: &Arguments, range: &Range) -> CommandReply {
    Ok(count(keys.sorted(arguments.get(1))?.map_or(0, |sorted| in_range(sorted, range).count())))
}

pub(super) fn count_by_score(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let range = scores(arguments)?;
    counted(keys, arguments, &range)
}

pub(super) fn count_by_lex(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let range = members(arguments)?;
    counted(keys, arguments, &range)
}

pub(super) fn remove_by_rank(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let range = Range::Positions(arguments.integer(2)?, arguments.integer(3)?);
    removed(keys, arguments, &range)
}

pub(super) fn remove_by_score(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let range = scores(arguments)?;
    removed(keys, arguments, &range)
}

fn removed(keys: &mut Keyspace, arguments: &Arguments, range: &Range) -> CommandReply {
    let Some(sorted) = keys.sorted(arguments.get(1))? else { return Ok(count(0)) };
    let found: Vec<Bytes> = in_range(sorted, range).map(|(member, _)| member.clone()).collect();
    for member in &found {
        keys.put_score(arguments.get(1), member, None)?;
    }
    Ok(count(found.len()))
}
