//! A log in which pushes are written instead of calls of the service: a Kafka topic, or that of a test.

use super::push_file::Push;
use std::time::Duration;

/// How an attempt to write a push has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(any(test, feature = "local-kafka")),
    expect(dead_code, reason = "without the feature no log is there to construct one")
)]
pub(super) enum Put {
    /// It is in the log now.
    Written,
    /// An earlier attempt has written it.
    Found,
    /// The log no longer knows whether an earlier attempt has written it.
    Forgotten,
}

/// The log. For each namespace it keeps a *mark*: the token of the last push that it has. A push and its mark are written together or not
/// at all. So the mark says whether a push is there: it is the push's own token, or the mark of before. Each call
/// blocks until the log has answered.
pub(super) trait PushLog: Send + 'static {
    /// The name of the log. A push can only be resolved in the log in which it may have been written.
    fn name(&self) -> &str;

    /// The longest time from when a push is in the log until all of it has counted.
    fn delay(&self) -> Duration;

    /// The mark of a namespace without a push whose outcome is unknown. If the log could soon forget the mark, it gets a new one first.
    ///
    /// # Errors
    /// The log does not answer.
    fn mark(&mut self, namespace: &str) -> Result<String, String>;

    /// Writes a push, unless it is there.
    ///
    /// # Errors
    /// It is unknown whether the push is in the log. The next call finds out.
    fn put(&mut self, push: &Push) -> Result<Put, String>;
}
