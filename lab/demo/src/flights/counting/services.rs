//! Where the demo's counters are served.

/// Addresses of the counters and of what they need.
#[derive(Clone, Debug)]
pub struct CounterServices {
    /// The counters.
    pub counters_url: String,
    /// The view counter.
    pub views_url: String,
    /// The queue through which rollups become due.
    pub queue_url: String,
    /// The Redis that holds the counters.
    pub redis_url: String,
}
