//! The flows that had small flushes just now. Their calls gain more from short store calls than others lose.

use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The largest cost of a small flush.
const LIGHT_COST_MAX: u64 = 16;

/// A flow counts for this time after its last small flush.
const RECENT: Duration = Duration::from_millis(200);

/// A small flush that takes longer than this waits for large ones of other servers, or for a slow disk.
const SLOW: Duration = Duration::from_millis(2);

/// After a slow small flush, all of them count as slow for so long: steps make them fast, which must not end the steps.
const SLOW_FOR: Duration = Duration::from_secs(5);

/// Between two notifications of other servers. Each of them holds for [`RECENT`].
const NOTIFY_EVERY: Duration = Duration::from_millis(100);

/// The last two such flows: at least one of them is not the flow that wants to know.
#[derive(Default)]
pub(super) struct LightFlows {
    last: [Option<(Arc<str>, Instant)>; 2],
    /// The flows with slow small flushes, the last two; and when others were notified of each.
    slow: [Option<SlowFlow>; 2],
}

struct SlowFlow {
    flow: Arc<str>,
    slow_at: Instant,
    notified_at: Option<Instant>,
}

impl LightFlows {
    /// A flush of this cost begins.
    pub(super) fn begins(&mut self, flow: &Arc<str>, cost: u64) {
        if cost > LIGHT_COST_MAX {
            return;
        }
        let [last, earlier] = &mut self.last;
        if last.as_ref().is_some_and(|(last, _)| last != flow) {
            *earlier = last.take();
        }
        *last = Some((flow.clone(), Instant::now()));
    }

    /// Whether there is one other than this.
    pub(super) fn are_others(&self, flow: &Arc<str>) -> bool {
        self.last.iter().flatten().any(|(light, at)| light != flow && at.elapsed() < RECENT)
    }

    /// Whether other servers are to be notified of this flow now, after a flush of this cost that took so long.
    pub(super) fn is_to_be_notified(&mut self, flow: &Arc<str>, cost: u64, took: Duration) -> bool {
        if cost > LIGHT_COST_MAX {
            return false;
        }
        let now = Instant::now();
        let place = self.slow.iter().position(|slow| slow.as_ref().is_some_and(|slow| slow.flow == *flow));
        let slow = match place {
            Some(place) => &mut self.slow[place],
            None if took > SLOW => {
                // The one that was slow longest ago makes room.
                self.slow.sort_by_key(|slow| slow.as_ref().map(|slow| slow.slow_at));
                self.slow[0] = Some(SlowFlow { flow: flow.clone(), slow_at: now, notified_at: None });
                &mut self.slow[0]
            }
            None => return false,
        };
        let Some(slow) = slow else { return false };
        if took > SLOW {
            slow.slow_at = now;
        }
        let is_due = now - slow.slow_at < SLOW_FOR && slow.notified_at.is_none_or(|at| now - at >= NOTIFY_EVERY);
        if is_due {
            slow.notified_at = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn s5_a_flow_is_light_for_a_while_and_not_to_itself() {
        let [a, b] = ["a", "b"].map(Arc::from);
        let mut light = LightFlows::default();
        light.begins(&a, LIGHT_COST_MAX + 1);
        assert!(!light.are_others(&b));
        light.begins(&a, 1);
        assert!(light.are_others(&b) && !light.are_others(&a));
        light.begins(&b, 1);
        light.begins(&b, 1);
        assert!(light.are_others(&a) && light.are_others(&b));
        tokio::time::advance(RECENT).await;
        assert!(!light.are_others(&a) && !light.are_others(&b));
    }

    #[tokio::test(start_paused = true)]
    async fn s5_other_servers_are_notified_of_small_flushes_after_a_slow_one_and_not_of_each() {
        let (mut light, [a, b, c]) = (LightFlows::default(), ["a", "b", "c"].map(Arc::from));
        assert!(!light.is_to_be_notified(&a, 1, SLOW) && !light.is_to_be_notified(&a, LIGHT_COST_MAX + 1, 2 * SLOW));
        assert!(light.is_to_be_notified(&a, 1, 2 * SLOW));
        assert!(!light.is_to_be_notified(&a, 1, 2 * SLOW), "just now");
        assert!(light.is_to_be_notified(&b, 1, 2 * SLOW), "another flow");
        tokio::time::advance(NOTIFY_EVERY).await;
        assert!(light.is_to_be_notified(&a, 1, SLOW), "the steps have made it fast");
        assert!(!light.is_to_be_notified(&c, 1, SLOW), "it never was slow");
        tokio::time::advance(SLOW_FOR).await;
        assert!(!light.is_to_be_notified(&a, 1, SLOW));
    }
}
