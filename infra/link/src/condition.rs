//! A condition on the Redis that a connection leads to.

use crate::timeline::Timeline;
use redis::RedisResult;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

type Verdict = Pin<Box<dyn Future<Output = RedisResult<()>> + Send>>;

/// What a [`Link`](crate::Link) checks of each Redis that it connects to, before it sends a call.
#[derive(Clone)]
pub struct Condition(Arc<dyn Fn(Timeline) -> Verdict + Send + Sync>);

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Condition")
    }
}

impl Condition {
    pub(crate) fn new<F: Future<Output = RedisResult<()>> + Send + 'static>(
        check: impl Fn(Timeline) -> F + Send + Sync + 'static,
    ) -> Condition {
        Condition(Arc::new(move |timeline| Box::pin(check(timeline))))
    }

    /// Checks the Redis that has this timeline.
    pub(crate) async fn check(&self, timeline: Timeline) -> RedisResult<()> {
        (self.0)(timeline).await
    }
}
