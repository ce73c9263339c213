//! The topics of a log, which all have the name of the first one before theirs.

/// Names of topics and groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewTopics {
    /// Accepted views. The time of a record is that of its views. Also the name of the consumer group.
    pub views: String,
    /// The pairs that have counted, and up to where the views are deduplicated. Same partitions as the views.
    pub state: String,
    /// What is drawn when the log is created. One partition; its first record counts.
    pub layout: String,
    /// What to add to the counters, as adds of `tallystone-ingest` (N17).
    pub deltas: String,
    /// Deltas that came too late for their first token.
    pub late: String,
    /// Deltas that the counters refuse for good.
    pub dead: String,
    /// The group that counts the deltas.
    pub sink_group: String,
}

impl ViewTopics {
    /// Those of the log with this topic of views.
    pub fn of(views: &str) -> ViewTopics {
        let topic = |suffix: &str| format!("{views}.{suffix}");
        ViewTopics {
            views: views.to_owned(),
            state: topic("state"),
            layout: topic("layout"),
            deltas: topic("deltas"),
            late: topic("deltas.late"),
            dead: topic("deltas.dead"),
            sink_group: topic("sink"),
        }
    }
}
