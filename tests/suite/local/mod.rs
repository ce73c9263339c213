//! Local counters and budgets against the real service on a real Redis (L1 to L4).
//!
//! What lives here: processes that add and are killed (`adder`, judged by `ledger` and `folder`) while nothing else fails (`kills`) and
//! while the service and its Redis are killed and stopped (`faults`, on `service`), the error bound while programs are cut off (`bound`),
//! pushes through a Kafka topic (`topic`), counters that expire (`expiry`), and budgets (`budget`) of processes that are killed (`spender`). What may not: what a
//! service in the test's process can show, which is in the crate of the client.

mod adder;
mod bound;
mod budget;
mod expiry;
mod faults;
mod folder;
mod kills;
mod ledger;
mod service;
mod spender;
mod topic;

use std::time::Duration;
use tallystone_client::{CounterType, NamespaceConfig};

/// How often a test checks for something that must come.
const POLL: Duration = Duration::from_millis(10);
/// Short, so that a stopped service makes pushes too old.
const ACCEPT_LIMIT: Duration = Duration::from_millis(800);

/// A namespace that is rolled up soon.
fn namespace(counter_type: CounterType) -> NamespaceConfig {
    NamespaceConfig {
        counter_type: Some(counter_type),
        accept_limit_ms: Some(ACCEPT_LIMIT.as_millis() as u64),
        coalesce_ms: Some(200),
        num_queues: Some(2),
        ..NamespaceConfig::default()
    }
}
