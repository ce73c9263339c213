//! What a process holds of a budget: the units that takes share, and the account of where the others went.

use super::error::TakeError;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

/// `room` while nothing is known that forbids a take.
const ROOM_UNKNOWN: i64 = i64::MAX;

pub(super) struct Stock {
    grant_max: i64,
    /// Units that may be taken. Only takes lower it without the lock of `account`.
    left: AtomicI64,
    /// A take that leaves this or less makes the task request the next grant.
    low_water: AtomicI64,
    /// What the limit leaves for all processes, while that is known to be too little.
    room: AtomicI64,
    /// Takes need a grant; set once until the task sees it, so that few takes wake the task.
    is_wanted: AtomicBool,
    /// The largest take that was refused since the task has seen it.
    demand: AtomicI64,
    is_closed: AtomicBool,
    account: Mutex<Account>,
    /// Wakes the task.
    pub(super) wake: Notify,
    /// Wakes takes that wait.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Account {
    limit: i64,
    /// The count of the service has these units for this process: what it has taken, and what is left.
    held: i64,
    /// Taken before a clear that was noticed.
    taken_before: i64,
    /// To be given back; no longer held.
    returning: i64,
    /// The add that is under way, whatever it does.
    unsettled: i64,
    /// Grants are given back as soon as they arrive.
    keeps_nothing: bool,
}

/// A grant that the service has counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub(super) units: i64,
    /// The limit that it was held against.
    pub(super) limit: i64,
    /// The count after it.
    pub(super) count: i64,
}

impl Stock {
    pub(super) fn new(limit: i64, grant_max: i64) -> Stock {
        Stock {
            grant_max,
            left: AtomicI64::new(0),
            low_water: AtomicI64::new(0),
            room: AtomicI64::new(ROOM_UNKNOWN),
            // The first grant does not wait for a take.
            is_wanted: AtomicBool::new(true),
            demand: AtomicI64::new(0),
            is_closed: AtomicBool::new(false),
            account: Mutex::new(Account { limit, ..Account::default() }),
            wake: Notify::new(),
            changed: Notify::new(),
        }
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes now, or not at all.
    pub(super) fn take(&self, units: i64) -> Result<(), TakeError> {
        if !(1..=self.grant_max).contains(&units) {
            return Err(TakeError::Invalid { grant_max: self.grant_max });
        }
        let taken = self.left.fetch_update(SeqCst, SeqCst, |left| (left >= units).then(|| left - units));
        match taken {
            Ok(before) => {
                if before - units <= self.low_water.load(SeqCst) {
                    self.want();
                }
                Ok(())
            }
            Err(left) => self.refuse(units, left),
        }
    }

    fn refuse(&self, units: i64, left: i64) -> Result<(), TakeError> {
        if self.is_closed.load(SeqCst) {
            return Err(TakeError::Closed);
        }
        self.demand.fetch_max(units, SeqCst);
        if units - left > self.room.load(SeqCst) {
            // The task sees the demand when it reopens.
            return Err(TakeError::Exhausted);
        }
        self.want();
        Err(TakeError::NotGranted)
    }

    /// What it needs must be written before: the task reads it after it has seen the flag.
    fn want(&self) {
        if !self.is_wanted.load(SeqCst) && !self.is_wanted.swap(true, SeqCst) {
            self.wake.notify_one();
        }
    }

    /// Takes as soon as enough is granted. A caller that no longer waits has taken nothing.
    pub(super) async fn take_within(&self, units: i64, wait: Duration) -> Result<(), TakeError> {
        let taken = async {
            loop {
                let mut changed = std::pin::pin!(self.changed.notified());
                // From here on no change is missed.
                changed.as_mut().enable();
                match self.take(units) {
                    Err(TakeError::NotGranted) => changed.await,
                    definite => return definite,
                }
            }
        };
        timeout(wait, taken).await.unwrap_or(Err(TakeError::NotGranted))
    }

    /// The largest take that needs a grant, 0 if it is the low water; `None`: no take needs one. The next need wakes the task again.
    pub(super) fn need(&self) -> Option<i64> {
        self.is_wanted.swap(false, SeqCst).then(|| self.demand.swap(0, SeqCst))
    }

    /// Whether it falls below its low water, or a take of this size would be refused.
    pub(super) fn is_low(&self, demand: i64) -> bool {
        let left = self.left();
        left <= self.low_water.load(SeqCst) || left < demand
    }

    /// Refuses takes that need more than what the limit leaves, until [`reopen`](Self::reopen).
    pub(super) fn exhaust(&self, remainder: i64) {
        if remainder == 0 {
            // The takes from the rest need not wake the task.
            self.low_water.store(-1, SeqCst);
        }
        self.room.store(remainder, SeqCst);
        self.changed.notify_waiters();
    }

    /// The remainder may have changed.
    pub(super) fn reopen(&self) {
        self.room.store(ROOM_UNKNOWN, SeqCst);
        if self.demand.load(SeqCst) > 0 {
            self.want();
        }
    }

    /// Adds a grant to what may be taken. A grant under a higher limit than that of now is given back. Returns the units that a clear
    /// has removed.
    pub(super) fn deposit(&self, grant: Grant) -> i64 {
        let removed = self.deposit_in(&mut self.account(), grant);
        // Whatever became of it: takes that still wait need the next one.
        self.changed.notify_waiters();
        removed
    }

    fn deposit_in(&self, account: &mut Account, grant: Grant) -> i64 {
        // Without a clear, the count has at least what this process holds. A clear makes no count negative.
        let is_cleared = (0..account.held.saturating_add(grant.units)).contains(&grant.count);
        let removed = if is_cleared { self.void(account) } else { 0 };
        if is_cleared && grant.count < grant.units {
            // The clear came after this grant.
            return removed + grant.units;
        }
        if account.keeps_nothing || grant.limit > account.limit {
            account.returning += grant.units;
            return removed;
        }
        account.held = account.held.saturating_add(grant.units);
        let before = self.left.fetch_add(grant.units, SeqCst);
        self.low_water.store((before + grant.units) / 2, SeqCst);
        removed
    }

    /// Stops takes from what is left, which the task then gives back.
    pub(super) fn withdraw(&self) {
        self.withdraw_from(&mut self.account());
    }

    fn withdraw_from(&self, account: &mut Account) {
        let left = self.left.swap(0, SeqCst);
        account.held = account.held.saturating_sub(left);
        account.returning += left;
    }

    /// A clear or a deletion has removed what the process holds: to give it back would take it from the grants since. Returns the units.
    pub(super) fn cleared(&self) -> i64 {
        self.void(&mut self.account())
    }

    fn void(&self, account: &mut Account) -> i64 {
        let left = self.left.swap(0, SeqCst);
        account.taken_before = account.taken_before.saturating_add(account.held.saturating_sub(left));
        account.held = 0;
        left + std::mem::take(&mut account.returning)
    }

    /// Withdraws, and forgets what takes needed. Grants that arrive are given back until [`keep_again`](Self::keep_again).
    pub(super) fn keep_nothing(&self) {
        {
            let mut account = self.account();
            account.keeps_nothing = true;
            self.withdraw_from(&mut account);
        }
        self.need();
        self.wake.notify_one();
    }

    pub(super) fn keeps_nothing(&self) -> bool {
        self.account().keeps_nothing
    }

    /// Takes that wait since then need a grant.
    pub(super) fn keep_again(&self) {
        let was_nothing = std::mem::replace(&mut self.account().keeps_nothing, self.is_closed());
        if was_nothing {
            self.changed.notify_waiters();
            self.wake.notify_one();
        }
    }

    pub(super) fn close(&self) {
        self.is_closed.store(true, SeqCst);
        self.keep_nothing();
        self.changed.notify_waiters();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(SeqCst)
    }

    /// What must be given back, once.
    pub(super) fn start_return(&self) -> i64 {
        std::mem::take(&mut self.account().returning)
    }

    pub(super) fn returning(&self) -> i64 {
        self.account().returning
    }

    /// What is not given back yet, or not settled.
    pub(super) fn unreturned(&self) -> i64 {
        let account = self.account();
        account.returning + account.unsettled
    }

    pub(super) fn set_unsettled(&self, units: i64) {
        self.account().unsettled = units;
    }

    pub(super) fn held(&self) -> i64 {
        self.account().held
    }

    pub(super) fn left(&self) -> i64 {
        self.left.load(SeqCst)
    }

    pub(super) fn taken(&self) -> u64 {
        let account = self.account();
        let taken = account.taken_before.saturating_add(account.held).saturating_sub(self.left());
        u64::try_from(taken).unwrap_or(0)
    }

    pub(super) fn limit(&self) -> i64 {
        self.account().limit
    }

    /// Sets the limit. If it is lower, what was granted under the old one is withdrawn before this returns.
    pub(super) fn set_limit(&self, limit: i64) {
        {
            let mut account = self.account();
            if limit < account.limit {
                self.withdraw_from(&mut account);
            }
            account.limit = limit;
        }
        self.room.store(ROOM_UNKNOWN, SeqCst);
        self.wake.notify_one();
    }
}
