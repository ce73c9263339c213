//! The task that requests grants, and gives back what is not taken. At most one add is under way at a time.

use super::options::BudgetOptions;
use super::pace::{Need, Pace};
use super::request::{Purpose, Request, Verdict};
use super::service::Service;
use super::stats::BudgetStats;
use super::stock::{Grant, Stock};
use crate::calls::next_delay;
use crate::counter::CounterType;
use crate::error::Error;
use backon::ExponentialBackoff;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep};

/// What a caller wants of the task.
pub(super) enum Command {
    /// To know when nothing is left to be given back.
    Settle(oneshot::Sender<()>),
}

/// How long the task sleeps after a step.
enum Next {
    Again,
    /// A take that needs a grant, or a new limit, ends it.
    Idle(Duration),
    /// Only a command ends it: a call has failed.
    After(Duration),
}

/// The count of the service, when it was last known.
#[derive(Clone, Copy)]
struct Seen {
    count: i64,
    at: Instant,
}

pub(super) struct Background<S> {
    stock: Arc<Stock>,
    service: S,
    options: BudgetOptions,
    pace: Pace,
    /// When the pace was last followed, and what was taken until then.
    followed: (Instant, u64),
    /// When something was last taken, and what was taken until then.
    active: (Instant, u64),
    seen: Option<Seen>,
    /// Until when the budget counts as exhausted.
    exhausted_until: Option<Instant>,
    /// The largest take that the next grant must serve; `None`: no grant is needed.
    demand: Option<i64>,
    pending: Option<Request>,
    delays: Option<ExponentialBackoff>,
    settling: Vec<oneshot::Sender<()>>,
    stats: BudgetStats,
    reported: watch::Sender<BudgetStats>,
}

impl<S: Service> Background<S> {
    pub(super) fn new(
        stock: Arc<Stock>,
        service: S,
        options: BudgetOptions,
        reported: watch::Sender<BudgetStats>,
    ) -> Self {
        let (pace, start) = (Pace::new(&options), (Instant::now(), 0));
        Background {
            stock,
            service,
            options,
            pace,
            followed: start,
            active: start,
            seen: None,
            exhausted_until: None,
            demand: None,
            pending: None,
            delays: None,
            settling: Vec::new(),
            stats: BudgetStats::default(),
            reported,
        }
    }

    /// Runs until the budget is closed and nothing is left, or until the other end of `commands` is dropped.
    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        loop {
            let next = self.step().await;
            self.report();
            if self.pending.is_none() && self.stock.returning() == 0 {
                let is_over = self.stock.is_closed();
                self.settle();
                if is_over {
                    return;
                }
            }
            let (pause, by_wake) = match next {
                Next::Again => continue,
                Next::Idle(pause) => (pause, true),
                Next::After(pause) => (pause, false),
            };
            let stock = self.stock.clone();
            tokio::select! {
                command = commands.recv() => match command {
                    Some(Command::Settle(reply)) => self.settling.push(reply),
                    None => return,
                },
                () = stock.wake.notified(), if by_wake => {}
                () = sleep(pause) => {}
            }
        }
    }

    /// Nothing is left to be given back.
    fn settle(&mut self) {
        self.stock.keep_again();
        for reply in self.settling.drain(..) {
            // An error: the caller no longer waits.
            reply.send(()).unwrap_or_default();
        }
    }

    fn report(&mut self) {
        self.stats.count = self.seen.map(|seen| seen.count);
        self.reported.send_replace(self.stats.clone());
        self.stock.set_unsettled(self.pending.as_ref().map_or(0, |request| request.units));
    }

    /// Makes at most one call.
    async fn step(&mut self) -> Next {
        if let Some(request) = self.pending.take() {
            return self.send(request).await;
        }
        let returning = self.stock.start_return();
        if returning > 0 {
            self.pending = Some(Request::new(Purpose::GiveBack, returning));
            return Next::Again;
        }
        if self.stock.keeps_nothing() {
            self.demand = None;
            return Next::Idle(self.options.idle());
        }
        self.plan().await
    }

    /// Decides whether a grant is needed, and how large it is.
    async fn plan(&mut self) -> Next {
        if self.exhausted_until.take_if(|until| *until <= Instant::now()).is_some() {
            self.stock.reopen();
        }
        if let Some(demand) = self.stock.need() {
            if self.demand.is_none() {
                self.follow();
            }
            self.demand = self.demand.max(Some(demand));
        }
        let Some(demand) = self.demand.filter(|demand| self.stock.is_low(*demand)) else {
            self.demand = None;
            return self.idle();
        };
        let Some(seen) = self.seen else { return self.learn().await };
        let remainder = self.stock.limit().saturating_sub(seen.count).max(0);
        let mut need = Need { left: self.stock.left(), demand, remainder };
        if remainder < need.least() {
            if seen.at.elapsed() >= self.options.retry() {
                return self.learn().await;
            }
            self.exhausted_until = Some(seen.at + self.options.retry());
            self.stock.exhaust(remainder);
            // A smaller take may still have its share.
            need.demand = 0;
        }
        self.demand = None;
        let units = if self.stock.is_low(need.demand) { self.pace.grant(need, &self.options) } else { 0 };
        if units == 0 {
            return self.idle();
        }
        self.demand = Some(need.demand);
        self.pending = Some(Request::new(Purpose::Grant, units));
        Next::Again
    }

    fn follow(&mut self) {
        let (at, taken) = std::mem::replace(&mut self.followed, (Instant::now(), self.stock.taken()));
        // Before the first grant there is no rate.
        if self.stats.grants > 0 {
            self.pace.follow(self.followed.1.saturating_sub(taken), self.followed.0 - at, &self.options);
        }
    }

    /// Gives back what a process holds that has stopped to take.
    fn idle(&mut self) -> Next {
        let (now, taken) = (Instant::now(), self.stock.taken());
        if taken != self.active.1 {
            self.active = (now, taken);
        }
        let idle_for = now - self.active.0;
        if idle_for >= self.options.idle() {
            self.active.0 = now;
            self.pace = Pace::new(&self.options);
            self.stock.withdraw();
            return Next::Again;
        }
        let reopens_in = self.exhausted_until.map_or(Duration::MAX, |until| until.saturating_duration_since(now));
        Next::Idle(reopens_in.min(self.options.idle() - idle_for))
    }

    /// Reads the count.
    async fn learn(&mut self) -> Next {
        match self.service.count().await {
            Ok(counted) if counted.counter_type == CounterType::Accurate => {
                self.succeeded();
                self.see(counted.count);
                Next::Again
            }
            Ok(_) => {
                self.stats.last_error = Some("the namespace is not ACCURATE".to_owned());
                Next::After(self.options.retry())
            }
            Err(error) => self.failed(&error),
        }
    }

    fn see(&mut self, count: i64) {
        self.seen = Some(Seen { count, at: Instant::now() });
    }

    /// Sends an add once more.
    async fn send(&mut self, mut request: Request) -> Next {
        let answer = match request.purpose {
            Purpose::Grant => {
                let limit = self.stock.limit();
                request.limit_max = request.limit_max.max(limit);
                self.service.grant(request.units, limit, &request.token).await
            }
            // Of a count that is less, a clear has removed what was granted here: then the units are not in it either.
            Purpose::GiveBack => {
                let given_back = self.service.give_back(request.units, self.stock.held(), &request.token).await;
                given_back.map(|()| 0)
            }
        };
        match answer {
            Ok(count) => {
                self.succeeded();
                self.counted(&request, count);
                Next::Again
            }
            Err(error) => self.not_counted(request, &error),
        }
    }

    /// `count` is that after a grant.
    fn counted(&mut self, request: &Request, count: i64) {
        let units = request.units;
        match request.purpose {
            Purpose::Grant => {
                self.stats.grants += 1;
                self.see(count);
                self.demand = None;
                let grant = Grant { units, limit: request.limit_max, count };
                self.stats.written_off += self.stock.deposit(grant).unsigned_abs();
            }
            Purpose::GiveBack => {
                self.stats.returned += units.unsigned_abs();
                // What the others have done since is as unknown as before.
                self.seen = self.seen.map(|seen| Seen { count: seen.count.saturating_sub(units), ..seen });
            }
        }
    }

    fn not_counted(&mut self, mut request: Request, error: &Error) -> Next {
        let units = request.units.unsigned_abs();
        match (request.judge(error), request.purpose) {
            (Verdict::Unsettled, _) => self.pending = Some(request),
            (Verdict::Lost, _) => self.stats.written_off += units,
            (Verdict::NotCounted, Purpose::Grant) => {}
            (Verdict::BoundReached(count), Purpose::Grant) => {
                // The plan continues with what is left.
                self.seen = count.map(|count| Seen { count, at: Instant::now() });
                return Next::Again;
            }
            (Verdict::NotCounted, Purpose::GiveBack) => {
                self.pending = Some(Request::new(Purpose::GiveBack, request.units));
            }
            (Verdict::BoundReached(count), Purpose::GiveBack) => {
                self.seen = count.map(|count| Seen { count, at: Instant::now() });
                self.stats.written_off += units + self.stock.cleared().unsigned_abs();
                return Next::Again;
            }
        }
        self.failed(error)
    }

    fn succeeded(&mut self) {
        self.delays = None;
        self.stats.last_error = None;
    }

    fn failed(&mut self, error: &Error) -> Next {
        self.stats.last_error = Some(error.to_string());
        let least = error.refused().and_then(|refused| refused.retry_after).unwrap_or_default();
        Next::After(next_delay(&mut self.delays).max(least))
    }
}
