//! Counters in this process (L1 to L3), with the feature `local`, on Unix.
//!
//! ```no_run
//! use tallystone_client::CounterClient;
//! use tallystone_client::local::{LocalCounters, LocalOptions};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = CounterClient::connect("http://127.0.0.1:7610").await?;
//! let mut options = LocalOptions::default();
//! options.others_per_s_max = 500; // all other instances together, on one counter
//! let counters = LocalCounters::open("/var/lib/ads/counters", client, options).await?;
//!
//! let shown = counters.counter("impressions", "line-item-7")?;
//! shown.add(1); // in memory; it survives a kill of the process
//! let reading = shown.get();
//! println!("{} ± {:?}", reading.value, reading.error_bound);
//!
//! counters.close().await?; // pushes the rest
//! # Ok(())
//! # }
//! ```
//!
//! `docs/local-counters.md` says what this promises, and when it does not.

// What lives here: the mapped file (`map`, `cells`, `cell`, `stripes`), the other files of the folder (`names`, `push_file`,
// `unresolved`, in the format of `frames`, written by `files`), what is known of a counter (`slot`, `folder`, `limit`),
// and the work in the background (`push`, `push_write`, `push_log` and its one kind `kafka`, `pull`, `types`, `background`). What may not: `unsafe` outside of `map`;
// a call of the network on the path of `add` and `get`.
mod background;
mod cell;
mod cells;
mod counters;
mod error;
mod files;
mod folder;
mod frames;
mod handle;
#[cfg(feature = "local-kafka")]
mod kafka;
mod limit;
mod map;
mod names;
mod options;
mod pull;
mod push;
mod push_file;
mod push_log;
mod push_write;
mod service;
mod slot;
mod stats;
mod steps;
mod stripes;
#[cfg(test)]
mod tests;
mod types;
mod unresolved;

pub use counters::LocalCounters;
pub use error::LocalError;
pub use handle::Handle;
#[cfg(feature = "local-kafka")]
pub use kafka::TopicOptions;
pub use limit::LimitCheck;
pub use options::LocalOptions;
pub use slot::Reading;
pub use stats::Stats;
#[doc(hidden)]
pub use steps::Steps;
pub use unresolved::Unresolved;
