//! A closed loop on one thread: a connection gets its next round of requests when the last one is answered, in turn, so that
//! all others have requests under way meanwhile.

use crate::sample::{CallStats, TimedStats};
use anyhow::Result;
use nix::sys::resource::{UsageWho, getrusage};
use std::time::{Duration, Instant};

/// A connection that takes rounds of requests.
pub(super) trait Wire: Send + 'static {
    /// Sends a round, and returns how many views it has.
    fn send(&mut self) -> Result<usize>;

    /// Waits until all requests of the round are answered. A refusal is an error.
    fn receive(&mut self) -> Result<()>;
}

/// What a load did.
pub(super) struct Driven {
    /// Views, and the times of rounds.
    pub(super) timed: TimedStats,
    /// Processor time of the generator, in seconds.
    pub(super) generator_s: f64,
}

/// When a load ends.
#[derive(Clone, Copy)]
pub(super) enum Until {
    /// This time after its start.
    Elapsed(Duration),
    /// Ends when at least this number of views is posted.
    Posted(u64),
}

/// Drives the connections, on a thread that may block. They can be driven again.
pub(super) async fn drive<W: Wire>(mut connections: Vec<W>, until: Until) -> Result<(Vec<W>, Driven)> {
    tokio::task::spawn_blocking(move || {
        let driven = rounds(&mut connections, until)?;
        Ok((connections, driven))
    })
    .await?
}

fn rounds<W: Wire>(connections: &mut [W], until: Until) -> Result<Driven> {
    let (began, began_cpu_s, mut stats) = (Instant::now(), thread_cpu_s()?, CallStats::new());
    let mut under_way = Vec::new();
    for connection in connections.iter_mut() {
        let sent = Instant::now();
        under_way.push((connection.send()?, sent));
    }
    let is_over = |stats: &CallStats| match until {
        Until::Elapsed(time) => began.elapsed() >= time,
        Until::Posted(views) => stats.messages >= views,
    };
    while !is_over(&stats) {
        for (connection, (views, sent)) in connections.iter_mut().zip(&mut under_way) {
            connection.receive()?;
            stats.note(*views, sent.elapsed());
            *sent = Instant::now();
            *views = connection.send()?;
        }
    }
    for (connection, (views, sent)) in connections.iter_mut().zip(under_way) {
        connection.receive()?;
        stats.note(views, sent.elapsed());
    }
    Ok(Driven { timed: TimedStats::since(began, stats), generator_s: thread_cpu_s()? - began_cpu_s })
}

/// Processor time of this thread.
fn thread_cpu_s() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD)?;
    Ok([usage.user_time(), usage.system_time()]
        .map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6)
        .iter()
        .sum())
}
