//! Every script's tables, on both.

use crate::scripts::{COUNTER_TABLES, CounterTable, TABLES, Table, compare, tables};
use std::sync::Arc;
use tallystone_tests::TestRedis;

#[tokio::test]
async fn x8_every_script_does_the_same_on_the_simulator_as_on_redis() {
    // Not the shared one: the tests of the tables may run at the same time, with the same names.
    let (real, simulated) = (Arc::new(TestRedis::start().await), Arc::new(TestRedis::simulated()));
    let mut differing = Vec::new();
    for (at, written) in tables(TABLES).enumerate() {
        let on_redis = Table::run(at, written, real.clone()).await;
        compare(&on_redis, Table::run(at, written, simulated.clone()).await, &mut differing);
    }
    for (at, written) in tables(COUNTER_TABLES).enumerate() {
        let on_redis = CounterTable::run(at, written, real.clone()).await;
        compare(&on_redis, CounterTable::run(at, written, simulated.clone()).await, &mut differing);
    }
    assert!(differing.is_empty(), "{} tables differ\n\n{}", differing.len(), differing.join("\n"));
}
