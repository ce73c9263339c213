//! [`Budget`]: takes, and the life of the task.

use super::background::{Background, Command};
use super::error::{BudgetError, TakeError};
use super::options::{BudgetOptions, check_limit};
use super::service::{Remote, Service};
use super::stats::BudgetStats;
use super::stock::Stock;
use crate::counter::CounterClient;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Callers that may wait for the task.
const COMMANDS_MAX: usize = 16;

/// A limit that processes share (L4). The counter of the service has what is granted to all of them; each process takes from its grant. To
/// share it between tasks, put it into an [`Arc`].
///
/// Takes of all processes together never exceed the limit: a unit is taken only after the service has certainly counted its grant. What a
/// process was granted and did not give back counts as spent, so [`close`](Self::close) it. Dropping it without that, like a kill of the
/// process, spends the rest of its grant.
pub struct Budget {
    stock: Arc<Stock>,
    commands: mpsc::Sender<Command>,
    stats: watch::Receiver<BudgetStats>,
    task: JoinHandle<()>,
}

impl Budget {
    /// Opens the budget of a counter, and requests the first grant in the background. The namespace must be ACCURATE with
    /// `buckets_per_id` 1, and the counter must have no other adds. Call it within a tokio runtime.
    ///
    /// # Errors
    /// [`Invalid`](BudgetError::Invalid): the limit is not 0 to 2^62, or an option is out of its range. Errors of the service are in
    /// [`stats`](Self::stats).
    pub fn open(
        client: &CounterClient,
        namespace: &str,
        counter: &str,
        limit: i64,
        options: BudgetOptions,
    ) -> Result<Budget, BudgetError> {
        Budget::open_with(Remote::new(client, namespace, counter), limit, options)
    }

    pub(super) fn open_with(service: impl Service, limit: i64, options: BudgetOptions) -> Result<Budget, BudgetError> {
        options.check()?;
        check_limit(limit)?;
        let stock = Arc::new(Stock::new(limit, options.grant_max));
        let (commands, received) = mpsc::channel(COMMANDS_MAX);
        let (reported, stats) = watch::channel(BudgetStats::default());
        let background = Background::new(stock.clone(), service, options, reported);
        let task = tokio::spawn(background.run(received));
        Ok(Budget { stock, commands, stats, task })
    }

    /// Takes units from the grant of this process, or nothing. It makes no call and never waits; near the end of the grant it wakes the
    /// task that requests the next one.
    ///
    /// # Errors
    /// - [`NotGranted`](TakeError::NotGranted): the grant has too little; a larger one is being requested.
    /// - [`Exhausted`](TakeError::Exhausted): the limit is reached, as far as the service has answered.
    /// - [`Invalid`](TakeError::Invalid): `units` is not 1 to [`grant_max`](BudgetOptions::grant_max).
    /// - [`Closed`](TakeError::Closed).
    pub fn try_take(&self, units: i64) -> Result<(), TakeError> {
        self.stock.take(units)
    }

    /// Takes units, and waits for a grant if necessary. A call that is dropped has taken nothing. Takes that wait have no order.
    ///
    /// # Errors
    /// As [`try_take`](Self::try_take); [`NotGranted`](TakeError::NotGranted) after `wait`.
    pub async fn take(&self, units: i64, wait: Duration) -> Result<(), TakeError> {
        self.stock.take_within(units, wait).await
    }

    /// The limit.
    pub fn limit(&self) -> i64 {
        self.stock.limit()
    }

    /// Sets the limit of this process, for grants from now on. The service does not keep limits, so set it in each process. If the limit
    /// falls, this process gives back what it was granted under the old one. What is already taken, by any process, stays taken, also
    /// beyond a lower limit.
    ///
    /// # Errors
    /// [`Invalid`](BudgetError::Invalid): it is not 0 to 2^62.
    pub fn set_limit(&self, limit: i64) -> Result<(), BudgetError> {
        check_limit(limit)?;
        self.stock.set_limit(limit);
        Ok(())
    }

    /// Gives back what is granted and not taken, and waits until the service has it. Later takes request a new grant.
    ///
    /// # Errors
    /// [`NotReturned`](BudgetError::NotReturned): not within this time; the budget continues.
    pub async fn give_back(&self, within: Duration) -> Result<(), BudgetError> {
        self.stock.keep_nothing();
        self.settle(within).await
    }

    /// Ends takes, and gives back what is not taken. It may be called again.
    ///
    /// # Errors
    /// [`NotReturned`](BudgetError::NotReturned): not within this time. The budget continues to return the rest until it is dropped.
    pub async fn close(&self, within: Duration) -> Result<(), BudgetError> {
        self.stock.close();
        self.settle(within).await
    }

    async fn settle(&self, within: Duration) -> Result<(), BudgetError> {
        let (reply, settled) = oneshot::channel();
        let settled = async {
            // If the task has ended, the reply is dropped.
            drop(self.commands.send(Command::Settle(reply)).await);
            settled.await
        };
        let what = match timeout(within, settled).await {
            Ok(Ok(())) => return Ok(()),
            // It ends when the budget is closed and nothing is left.
            Ok(Err(_)) if self.stock.is_closed() && self.stock.unreturned() == 0 => return Ok(()),
            Ok(Err(_)) => Some("the background task has ended".to_owned()),
            Err(_) => self.stats.borrow().last_error.clone(),
        };
        let what = what.unwrap_or_else(|| "the answer is missing".to_owned());
        Err(BudgetError::NotReturned { units: self.stock.unreturned(), what })
    }

    /// What has happened since it was opened.
    pub fn stats(&self) -> BudgetStats {
        BudgetStats { taken: self.stock.taken(), left: self.stock.left(), ..self.stats.borrow().clone() }
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("limit", &self.limit()).field("stats", &self.stats()).finish()
    }
}
