//! A budget against a service within the test, under virtual time: what each answer of the service does to takes.
//!
//! What lives here: the service (`fake`), and tests of one subject each. What may not: a real service; that is `tests/suite/local`.

mod answers;
mod fake;
mod limits;
mod takes;

use super::{Budget, BudgetOptions};
use fake::Fake;
use std::time::Duration;
use tokio::time::sleep;

/// Longer than anything that a budget waits for, except its idle time.
const LONG: Duration = Duration::from_secs(20);

fn open(fake: &Fake, limit: i64) -> Budget {
    open_as(fake, limit, BudgetOptions::default())
}

fn open_as(fake: &Fake, limit: i64, options: BudgetOptions) -> Budget {
    Budget::open_with(fake.clone(), limit, options).expect("good options")
}

/// Takes one unit after the other until the budget is exhausted, and returns how many it got.
async fn take_all(budget: &Budget) -> i64 {
    let mut taken = 0;
    while budget.take(1, LONG).await.is_ok() {
        taken += 1;
    }
    taken
}

/// Gives the task time to do what it can.
async fn settle() {
    sleep(Duration::from_millis(20)).await;
}
