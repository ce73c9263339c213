//! The flows that had small flushes just now. Their calls gain more from short store calls than others lose.

use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The largest cost of a small flush.
const LIGHT_COST_MAX: u64 = 16;

/// For so long after its last small flush a flow counts.
const RECENT: Duration = Duration::from_millis(200);

/// The last two such flows: at least one of them is not the flow that wants to know.
#[derive(Default)]
pub(super) struct LightFlows([Option<(Arc<str>, Instant)>; 2]);

impl LightFlows {
    /// A flush of this cost begins.
    pub(super) fn begins(&mut self, flow: &Arc<str>, cost: u64) {
        if cost > LIGHT_COST_MAX {
            return;
        }
        let [last, earlier] = &mut self.0;
        if last.as_ref().is_some_and(|(last, _)| last != flow) {
            *earlier = last.take();
        }
        *last = Some((flow.clone(), Instant::now()));
    }

    /// Whether there is one other than this.
    pub(super) fn are_others(&self, flow: &Arc<str>) -> bool {
        self.0.iter().flatten().any(|(light, at)| light != flow && at.elapsed() < RECENT)
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
}
