//! The clock of the scripts.

use crate::link::Again;
use crate::script_reply::{REFUSED, refused_at};
use crate::timeline::Timeline;
use crate::witness::{Verdict, Witness};
use crate::{Link, LinkError, Primary, ReplicaWait};
use redis::{Arg, Cmd, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tallystone_model::limits::CLOCK_SKEW_MAX_MS;
use tallystone_model::{Applied, Refusal};
use tokio::task::JoinSet;

/// Behind the stamp of a call whose timeline Redis has confirmed.
const CONFIRMED: u8 = 1;
/// How often a call is sent that reaches Redis later than the bound each time.
const TRIES: usize = 3;
/// The first byte of the argument that carries this process's clock; no number begins with it.
const STAMP: u8 = b'W';

/// Which clock the scripts use.
#[derive(Clone, Debug)]
pub enum Clock {
    /// Redis TIME, inside the script (Q15). Scripts that change something check it against this process's clock (X6).
    Redis(Arc<Witness>),
    /// Unix time in ms, set by tests only.
    Test(Arc<AtomicU64>),
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::Redis(Arc::new(Witness::new("redis", CLOCK_SKEW_MAX_MS)))
    }
}

impl Clock {
    /// Redis TIME. `what` names the data in metrics and in the log: "queues" or "counters". `skew_max_ms`: scripts change
    /// nothing where Redis's clock and this process's differ by more; 0: they do not compare them.
    pub fn redis(what: &'static str, skew_max_ms: u32) -> Clock {
        Clock::Redis(Arc::new(Witness::new(what, skew_max_ms)))
    }

    /// The same for another Redis: its clock is another one.
    #[must_use]
    pub fn of_another(&self) -> Clock {
        match self {
            Clock::Redis(witness) => Clock::Redis(Arc::new(witness.of_another())),
            Clock::Test(ms) => Clock::Test(ms.clone()),
        }
    }

    /// Measures how far Redis's clock is off, again and again, until the tasks are dropped.
    pub fn watch(&self, primary: &Primary) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        if let Clock::Redis(witness) = self {
            tasks.spawn(witness.clone().watch(Link::new(primary.clone(), ReplicaWait::default(), [])));
        }
        tasks
    }

    /// The clock argument of a script that only reads: Unix time in ms, or 0 for Redis TIME.
    pub fn argument(&self) -> u64 {
        match self {
            Clock::Redis(_) => 0,
            Clock::Test(ms) => ms.load(Ordering::SeqCst),
        }
    }

    /// Adds the clock argument of a script that changes something: as [`argument`](Clock::argument), with this process's
    /// clock as the witness, and the timeline that the script may act on.
    pub fn stamp(&self, command: &mut Cmd) {
        match self {
            Clock::Redis(witness) => command.arg(&stamp(witness)[..]),
            Clock::Test(_) => command.arg(self.argument()),
        };
    }

    /// Redis's time in Unix ms.
    ///
    /// # Errors
    /// [`Refusal::ClockSkew`]: it differs from this process's by more than the bound (X6).
    pub async fn right_ms(&self, link: &Link) -> Result<u64, Refusal> {
        let Clock::Redis(witness) = self else { return Ok(self.argument()) };
        let sent_ms = witness.now_ms();
        let store_ms = link.time_ms().await?;
        match witness.judge(sent_ms, store_ms, witness.now_ms()) {
            Verdict::Agrees => Ok(store_ms),
            Verdict::Differs { offset_ms } => Err(Refusal::ClockSkew { offset_ms, skew_max_ms: witness.skew_max_ms() }),
        }
    }

    /// Checks a time that another process has given, such as the one at which a lease began.
    ///
    /// # Errors
    /// [`Refusal::ClockSkew`]: it is ahead of this process's clock by more than the bound (X6).
    pub fn check_past(&self, time_ms: u64) -> Result<(), Refusal> {
        let Clock::Redis(witness) = self else { return Ok(()) };
        let (offset_ms, skew_max_ms) = (time_ms as i64 - witness.now_ms() as i64, witness.skew_max_ms());
        if skew_max_ms > 0 && offset_ms > i64::from(skew_max_ms) {
            return Err(Refusal::ClockSkew { offset_ms, skew_max_ms });
        }
        Ok(())
    }

    /// Calls a script as [`Link::eval`]. The first argument after its keys is that of [`stamp`](Clock::stamp), or of
    /// [`argument`](Clock::argument).
    ///
    /// The script refuses a call if Redis's time is further from the stamp than the bound, and has then changed nothing.
    /// A call that has waited, here or in Redis, finds a later time although no clock is wrong. So Redis's clock is wrong
    /// only if its time lies outside the span from the stamp to the reply, the bound added at both ends; otherwise the
    /// call is sent again with a new stamp.
    ///
    /// # Errors
    /// [`Refusal::ClockSkew`]: the clocks differ, and nothing has changed. [`Refusal::Unavailable`]: also for a call that
    /// waits for longer than the bound again and again.
    pub fn eval(
        &self,
        link: &Link,
        command: &Cmd,
        writes: bool,
    ) -> impl Future<Output = Result<Value, Refusal>> + Send {
        self.eval_first_only(link, command, None, writes)
    }

    /// As [`eval`](Clock::eval), for a call with an argument that is valid only in the first sending. If the call is sent again, Redis may
    /// have executed later calls of this process first, so the argument is then empty. `first_only`: how many arguments it is behind the
    /// stamp.
    ///
    /// # Errors
    /// Those of [`eval`](Clock::eval).
    pub async fn eval_first_only(
        &self,
        link: &Link,
        command: &Cmd,
        first_only: Option<usize>,
        writes: bool,
    ) -> Result<Value, Refusal> {
        let mut again: Option<Cmd> = None;
        for _ in 0..TRIES {
            let sent = again.as_ref().unwrap_or(command);
            if let Some(value) = self.try_once(link, sent, first_only, writes).await? {
                return Ok(value);
            }
            if let Clock::Redis(witness) = self {
                again = Some(restamped(sent, first_only, witness));
            }
        }
        let why = format!("{TRIES} times in a row the call waited for longer than redis.clock_skew_max_ms");
        Err(Refusal::Unavailable { applied: Applied::No, why })
    }

    /// As [`eval`](Clock::eval), but sends the call once. `None`: it has waited for longer than the bound, or Redis was
    /// replaced since the call was made, so nothing has changed. Whether to send it again is up to the caller.
    pub fn eval_once(
        &self,
        link: &Link,
        command: &Cmd,
        writes: bool,
    ) -> impl Future<Output = Result<Option<Value>, Refusal>> + Send {
        self.try_once(link, command, None, writes)
    }

    async fn try_once(
        &self,
        link: &Link,
        command: &Cmd,
        first_only: Option<usize>,
        writes: bool,
    ) -> Result<Option<Value>, Refusal> {
        let Clock::Redis(witness) = self else { return Ok(Some(link.eval(command, writes).await?)) };
        let Some(stamp) = stamp_of(command) else { return Ok(Some(link.eval(command, writes).await?)) };
        match send(witness, link, command, stamp, first_only, writes).await? {
            Sent::Done(value) => return Ok(Some(value)),
            Sent::Again => return Ok(None),
            Sent::OnOtherTimeline => {}
        }
        // Either the shard was last written before a failover or a restart, or this connection is older than another one's: Redis says which.
        if let Some(found) = link.elsewhere(stamp.timeline, command, writes).await? {
            witness.saw(found);
            return Ok(None);
        }
        match send(witness, link, &confirmed(command, first_only, stamp), stamp, None, writes).await? {
            Sent::Done(value) => Ok(Some(value)),
            Sent::Again | Sent::OnOtherTimeline => Ok(None),
        }
    }
}

/// What became of a call.
enum Sent {
    Done(Value),
    /// It has waited for longer than the bound, or Redis was replaced since it was made.
    Again,
    /// Nothing has changed.
    OnOtherTimeline,
}

async fn send(
    witness: &Witness,
    link: &Link,
    command: &Cmd,
    stamp: Stamp,
    first_only: Option<usize>,
    writes: bool,
) -> Result<Sent, Refusal> {
    let again = || {
        let bytes = arguments(command).nth(stamp.at).unwrap_or_default();
        sent_again(command, Some(stamp.at), first_only, bytes)
    };
    let again = first_only.is_some().then_some(&again as Again<'_>);
    let value = match link.eval_on(Some(stamp.timeline), command, again, writes).await {
        Err(LinkError { elsewhere: Some(found), .. }) => {
            witness.saw(found);
            return Ok(Sent::Again);
        }
        value => value?,
    };
    match refused_at(&value) {
        Some((REFUSED, store_ms)) => match witness.judge(stamp.sent_ms, store_ms, witness.now_ms()) {
            Verdict::Differs { offset_ms } => Err(Refusal::ClockSkew { offset_ms, skew_max_ms: witness.skew_max_ms() }),
            Verdict::Agrees => Ok(Sent::Again),
        },
        Some(_) => Ok(Sent::OnOtherTimeline),
        None => {
            witness.agrees();
            Ok(Sent::Done(value))
        }
    }
}

/// What `lib/clock.lua` reads.
fn stamp(witness: &Witness) -> [u8; 27] {
    let (timeline, ahead) = witness.timeline();
    let mut bytes = [STAMP; 27];
    bytes[1..7].copy_from_slice(&witness.now_ms().to_be_bytes()[2..]);
    let numbers = [witness.skew_max_ms(), timeline.0, ahead.from.0, ahead.ahead_ms, ahead.otherwise_ms];
    for (place, number) in bytes[7..].chunks_exact_mut(4).zip(numbers) {
        place.copy_from_slice(&number.to_be_bytes());
    }
    bytes
}

/// The stamp of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    /// Its position among the arguments of the EVALSHA.
    at: usize,
    sent_ms: u64,
    timeline: Timeline,
}

fn arguments(command: &Cmd) -> impl Iterator<Item = &[u8]> {
    command.args_iter().map(|argument| match argument {
        Arg::Simple(bytes) => bytes,
        // The position of a scan; no script call has one.
        _ => &[],
    })
}

fn stamp_of(command: &Cmd) -> Option<Stamp> {
    let keys: usize = std::str::from_utf8(arguments(command).nth(2)?).ok()?.parse().ok()?;
    let at = 3 + keys;
    let (&STAMP, rest) = arguments(command).nth(at)?.split_first()? else { return None };
    let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let timeline = Timeline(number(rest.get(10..14)?) as u32);
    Some(Stamp { at, sent_ms: number(&rest[..6]), timeline })
}

/// The same call with this process's time of now, for the timeline of now.
fn restamped(command: &Cmd, first_only: Option<usize>, witness: &Witness) -> Cmd {
    let at = stamp_of(command).map(|stamp| stamp.at);
    sent_again(command, at, first_only, &stamp(witness))
}

/// The same call, whose timeline Redis has confirmed.
fn confirmed(command: &Cmd, first_only: Option<usize>, stamp: Stamp) -> Cmd {
    let mut bytes = arguments(command).nth(stamp.at).unwrap_or_default().to_vec();
    bytes.push(CONFIRMED);
    sent_again(command, Some(stamp.at), first_only, &bytes)
}

/// The same call with another stamp, which is at this position. The argument that is so far behind it is empty.
fn sent_again(command: &Cmd, at: Option<usize>, first_only: Option<usize>, stamp: &[u8]) -> Cmd {
    let emptied = at.zip(first_only).map(|(at, distance)| at + distance);
    let mut again = Cmd::new();
    for (number, argument) in arguments(command).enumerate() {
        again.arg(match Some(number) {
            number if number == at => stamp,
            number if number == emptied => &[],
            _ => argument,
        });
    }
    again
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offset::Sight;
    use crate::own_clock::wall_ms;
    use crate::script_reply::OTHER_TIMELINE;
    use crate::timeline::Lineage;

    #[test]
    fn x6_a_repeated_call_has_a_new_stamp_and_is_otherwise_the_same() {
        let witness = Arc::new(Witness::new("queues", 7));
        let clock = Clock::Redis(witness.clone());
        let mut command = redis::cmd("EVALSHA");
        command.arg("sha").arg(2).arg(&["W1", "W2"]);
        clock.stamp(&mut command);
        command.arg(5).arg(&[0_u8, 255, b'W'][..]).arg("");
        let Stamp { at, sent_ms, timeline } = stamp_of(&command).expect("a stamp");
        assert!(at == 5 && wall_ms() - sent_ms < 60_000 && timeline == Timeline::UNKNOWN, "{at} {sent_ms}");
        let lineage = Lineage { current: Timeline(0x0102_0304), before: Some(Timeline(9)) };
        witness.saw(Sight { lineage, ..Sight::default() });
        let again = restamped(&command, None, &witness);
        let (of_first, of_again): (Vec<&[u8]>, Vec<&[u8]>) =
            (arguments(&command).collect(), arguments(&again).collect());
        assert_eq!((of_first.len(), of_again.len()), (9, 9));
        assert!((0..9).all(|number| number == at || of_first[number] == of_again[number]), "{of_again:?}");
        let stamp = stamp_of(&again).expect("a stamp");
        assert!(stamp.sent_ms >= sent_ms && stamp.timeline == Timeline(0x0102_0304), "{stamp:?}");
        assert_eq!(of_again[at][7..], [0, 0, 0, 7, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 14, 0, 0, 0, 14]);
    }

    #[test]
    fn q18_a_repeated_call_lacks_what_holds_for_the_first_one_only() {
        let witness = Arc::new(Witness::new("queues", 7));
        let mut command = redis::cmd("EVALSHA");
        command.arg("sha").arg(1).arg("key");
        Clock::Redis(witness.clone()).stamp(&mut command);
        command.arg(5).arg("parameters").arg("server").arg("item");
        let stamp = stamp_of(&command).expect("a stamp");
        for (first_only, server) in [(None, &b"server"[..]), (Some(3), &b""[..])] {
            let restamped = restamped(&command, first_only, &witness);
            for again in [confirmed(&command, first_only, stamp), confirmed(&restamped, first_only, stamp), restamped] {
                let behind: Vec<&[u8]> = arguments(&again).skip(stamp.at + 1).collect();
                assert_eq!(behind, [&b"5"[..], b"parameters", server, b"item"]);
                assert_eq!(stamp_of(&again).map(|stamp| stamp.at), Some(stamp.at));
            }
        }
    }

    #[test]
    fn x6_only_a_refusal_for_the_time_is_taken_for_one() {
        let reply = |parts: &[i64]| Value::Array(parts.iter().copied().map(Value::Int).collect());
        assert_eq!(refused_at(&reply(&[-1, 42])), Some((REFUSED, 42)));
        assert_eq!(refused_at(&reply(&[-2, 42])), Some((OTHER_TIMELINE, 42)));
        for other in [reply(&[0, 42]), reply(&[-1]), reply(&[-1, 42, 0]), reply(&[]), Value::Int(-1), Value::Nil] {
            assert_eq!(refused_at(&other), None);
        }
    }

    #[test]
    fn x6_a_test_s_clock_is_no_stamp() {
        let mut command = redis::cmd("EVALSHA");
        command.arg("sha").arg(0);
        Clock::Test(Arc::new(AtomicU64::new(5))).stamp(&mut command);
        assert_eq!((stamp_of(&command), arguments(&command).last()), (None, Some(&b"5"[..])));
    }
}
