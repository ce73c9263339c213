//! Closed loops: callers that send the next batch as soon as the last one is answered.

use super::adds::{Add, AddSource};
use crate::load::race;
use crate::sample::{CallStats, TimedStats};
use anyhow::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// One caller of a service that counts, ours or raw Redis.
pub(super) trait Adder: Send + Sized + 'static {
    /// One call over the wire, or one pipeline.
    fn add(&mut self, adds: Vec<Add>) -> impl Future<Output = Result<()>> + Send;
}

/// Sends `adds` adds in batches of this size, from one source per caller. A caller sends its next batch when the last one is
/// answered; the latency is that of a call.
pub(super) async fn add_all<A: Adder>(
    callers: Vec<A>,
    adds: u64,
    batch: usize,
    source: impl Fn(u64) -> AddSource,
) -> Result<TimedStats> {
    let next = Arc::new(AtomicU64::new(0));
    let callers: Vec<(A, AddSource)> = callers.into_iter().zip((0..).map(source)).collect();
    let (_, total) = race(callers, adds, |_, (mut caller, mut source)| {
        let next = next.clone();
        async move {
            let mut stats = CallStats::new();
            loop {
                let from = next.fetch_add(batch as u64, Ordering::Relaxed);
                if from >= adds {
                    return Ok(((caller, source), stats));
                }
                let some = source.adds(batch.min((adds - from) as usize));
                let (sent, began) = (some.len(), Instant::now());
                caller.add(some).await?;
                stats.note(sent, began.elapsed());
            }
        }
    })
    .await?;
    Ok(total)
}
