//! A budget (L4): takes from a limit that many processes share, mostly without a call.
//!
//! ```no_run
//! use std::time::Duration;
//! use tallystone_client::CounterClient;
//! use tallystone_client::budget::{Budget, BudgetOptions, TakeError};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = CounterClient::connect("http://127.0.0.1:7610").await?;
//! // The namespace is ACCURATE with buckets_per_id 1. The counter has what is granted to all processes.
//! let budget = Budget::open(&client, "budgets", "campaign-7", 1_000_000, BudgetOptions::default())?;
//! match budget.try_take(3) {
//!     Ok(()) => println!("3 units are ours"),
//!     Err(TakeError::Exhausted) => println!("the campaign has reached its limit"),
//!     Err(error) => println!("not now: {error}"),
//! }
//! budget.take(3, Duration::from_millis(200)).await?; // waits for a grant
//! budget.close(Duration::from_secs(10)).await?; // gives back what was not taken
//! # Ok(())
//! # }
//! ```
//!
//! `docs/local-counters.md` says what this promises, and when it does not.

// What lives here: what a process holds of a budget (`stock`), how large a grant is (`pace`), what an answer of the service means
// (`request`), the task that requests and returns grants (`background`, over the calls of `service`), and the handle of a program
// (`handle`). What may not: a call or a wait on the path of `try_take`; units that were not certainly granted.
mod background;
mod error;
mod handle;
mod options;
mod pace;
mod request;
mod service;
mod stats;
mod stock;
#[cfg(test)]
mod tests;

pub use error::{BudgetError, TakeError};
pub use handle::Budget;
pub use options::BudgetOptions;
pub use stats::BudgetStats;
