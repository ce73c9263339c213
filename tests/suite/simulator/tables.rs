//! Every script's tables, on both.

use crate::scripts::{COUNTER_TABLES, CounterTable, TABLES, Table, compare, tables};
use std::sync::Arc;
use tallystone_tests::TestRedis;

/// The tests of the tables may run at the same time, on the same Redis, and their names have lower numbers.
const NUMBERS_FROM: usize = 10_000;

#[tokio::test]
async fn x8_every_script_does_the_same_on_the_simulator_as_on_redis() {
    let (real, simulated) = (TestRedis::shared().await, Arc::new(TestRedis::simulated()));
    let mut differing = Vec::new();
    for (at, written) in (NUMBERS_FROM..).zip(tables(TABLES)) {
        let on_redis = Table::run(at, written, real.clone()).await;
        compare(&on_redis, Table::run(at, written, simulated.clone()).await, &mut differing);
    }
    for (at, written) in (NUMBERS_FROM..).zip(tables(COUNTER_TABLES)) {
        let on_redis = CounterTable::run(at, written, real.clone()).await;
        compare(&on_redis, CounterTable::run(at, written, simulated.clone()).await, &mut differing);
    }
    assert!(differing.is_empty(), "{} tables differ\n\n{}", differing.len(), differing.join("\n"));
}
