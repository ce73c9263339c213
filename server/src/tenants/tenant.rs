//! One tenant: its quotas, and what this server has given out of them.

use super::admission::{Admission, bytes_of};
use super::rate::Rate;
use super::source::Source;
use super::stock::{Bounds, EVERY_WHEN_FULL, ReadTime, Stock};
use crate::config::TenantConfig;
use crate::store::Kept;
use metrics::{Counter, counter, gauge};
use std::sync::Arc;
use std::time::Duration;
use tallystone_model::{NewMessage, QueueConfig, Refusal};
use tokio::sync::{Mutex, MutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// A refusal by queues or indexes is not repeated for longer without a reading.
const REPEATED_MAX: Duration = Duration::from_secs(5);

/// When a message or a call that a full stock has refused may be let in.
const RETRY_FULL: Duration = Duration::from_secs(1);

pub(super) const REFUSED: &str = "tallystone_tenant_refused_total";
pub(super) const QUEUES: &str = "tallystone_tenant_queues";
pub(super) const MESSAGES: &str = "tallystone_tenant_messages";
pub(super) const BYTES: &str = "tallystone_tenant_bytes";

/// One tenant.
pub(crate) struct Tenant {
    config: TenantConfig,
    source: Arc<dyn Source>,
    enqueues: Option<Rate>,
    calls: Option<Rate>,
    waiters: Places,
    subscriptions: Places,
    /// `None`: neither messages nor bytes are bounded.
    stock: Option<Arc<Stock>>,
    /// Held while a queue is created or changed, so that two calls do not take the same room.
    creating: Mutex<Refused>,
    /// Those that are set: name, bound, refusals.
    quotas: Vec<(&'static str, u64, Counter)>,
}

/// Held while a call waits, or while a subscription lasts.
pub(crate) struct Taken {
    _permit: Option<OwnedSemaphorePermit>,
}

/// Held from before what exists is read until the queue is created or changed.
pub(crate) struct Creating<'a> {
    tenant: &'a Tenant,
    refused: MutexGuard<'a, Refused>,
}

/// What new queues and indexes were last refused by.
#[derive(Default)]
struct Refused {
    queues: Full,
    indexes: Full,
}

/// How many there were when more were refused, and when that was read; `None`: the last reading left room. A caller at the bound may send a
/// call for each of many names, and a reading walks all queues of the tenant.
#[derive(Default)]
struct Full(Option<(u64, ReadTime)>);

impl Full {
    /// Whether so many more are refused again without a reading: the last one was too recent.
    fn refuses(&self, more: u64, max: Option<u64>) -> bool {
        let (Some((count, read)), Some(max)) = (&self.0, max) else { return false };
        more > 0 && count + more > max && !read.is_older_than(EVERY_WHEN_FULL) && read.age() < REPEATED_MAX
    }

    /// Whether there is room for so many more, by a reading.
    async fn has_room(
        &mut self,
        more: u64,
        max: Option<u64>,
        read: impl Future<Output = Result<u64, Refusal>>,
    ) -> Result<bool, Refusal> {
        let Some(max) = max.filter(|_| more > 0) else { return Ok(true) };
        let began = Instant::now();
        let count = read.await?;
        let is_full = count + more > max;
        self.0 = is_full.then(|| (count, ReadTime::since(began)));
        Ok(!is_full)
    }
}

/// So many at once.
struct Places {
    free: Option<Arc<Semaphore>>,
}

impl Places {
    /// `None`: without a bound.
    fn new(max: Option<u32>) -> Places {
        Places { free: max.map(|max| Arc::new(Semaphore::new(max as usize))) }
    }

    fn take(&self) -> Option<Taken> {
        match &self.free {
            None => Some(Taken { _permit: None }),
            Some(free) => Some(Taken { _permit: Some(free.clone().try_acquire_owned().ok()?) }),
        }
    }
}

/// Shows what a tenant has. Without a bound of bytes, no reading counts them.
fn shown(config: &TenantConfig) -> impl Fn(&Kept) + Send + Sync + use<> {
    let gauge = |name| gauge!(name, "tenant" => config.name.clone());
    let (queues, messages, bytes) = (gauge(QUEUES), gauge(MESSAGES), config.bytes_max.map(|_| gauge(BYTES)));
    move |kept| {
        queues.set(kept.queues as f64);
        messages.set(kept.messages as f64);
        if let Some(bytes) = &bytes {
            bytes.set(kept.bytes as f64);
        }
    }
}

impl Tenant {
    pub(super) fn new(config: TenantConfig, source: Arc<dyn Source>) -> Arc<Tenant> {
        let name = config.name.clone();
        let bounds = Bounds { messages: config.messages_max, bytes: config.bytes_max };
        let has_stock = bounds.messages.is_some() || bounds.bytes.is_some();
        let stock = has_stock.then(|| Stock::new(&config.prefix, bounds, source.clone(), shown(&config)));
        let counted = |(quota, max)| (quota, max, counter!(REFUSED, "tenant" => name.clone(), "quota" => quota));
        let quotas = config.quotas().map(counted).collect();
        Arc::new(Tenant {
            source,
            enqueues: config.enqueue_per_s.map(Rate::new),
            calls: config.calls_per_s.map(Rate::new),
            waiters: Places::new(config.waiters_max),
            subscriptions: Places::new(config.subscriptions_max),
            stock,
            creating: Mutex::default(),
            quotas,
            config,
        })
    }

    /// The beginning of the names of its queues.
    pub(crate) fn prefix(&self) -> &str {
        &self.config.prefix
    }

    /// Counts one call.
    pub(crate) fn take_call(&self) -> Result<(), Refusal> {
        self.take_of(&self.calls, "calls_per_s")
    }

    fn take_of(&self, rate: &Option<Rate>, quota: &'static str) -> Result<(), Refusal> {
        match rate {
            Some(rate) => rate.take().map_err(|wait| self.refusal(quota, Some(wait))),
            None => Ok(()),
        }
    }

    /// Lets in the messages of an Enqueue for which there is room, in their order.
    ///
    /// # Errors
    /// The store must be read first, and does not answer.
    pub(crate) async fn admit(&self, messages: &[NewMessage]) -> Result<Admission, Refusal> {
        let of_message = |message: &NewMessage| {
            self.check_lease(message.lease_ms)?;
            self.take_of(&self.enqueues, "enqueue_per_s")
        };
        let mut refused: Vec<_> = messages.iter().map(|message| of_message(message).err()).collect();
        let Some(stock) = &self.stock else { return Ok(Admission { refused, reserved: None }) };
        let open: Vec<usize> = (0..refused.len()).filter(|i| refused[*i].is_none()).collect();
        let sizes: Vec<u64> = open.iter().map(|i| bytes_of(&messages[*i])).collect();
        let (reservation, passed) = stock.take(&sizes).await?;
        let mut admitted = Vec::with_capacity(sizes.len());
        for ((at, bytes), passed) in open.into_iter().zip(sizes).zip(passed) {
            match passed {
                None => admitted.push(bytes),
                Some(quota) => refused[at] = Some(self.refusal(quota, Some(RETRY_FULL))),
            }
        }
        Ok(Admission { refused, reserved: Some((reservation, admitted)) })
    }

    /// The place of a Dequeue that may wait.
    pub(crate) fn waiter(&self) -> Result<Taken, Refusal> {
        self.waiters.take().ok_or_else(|| self.refusal("waiters_max", Some(RETRY_FULL)))
    }

    /// The place of a subscription of a Work stream.
    pub(crate) fn subscription(&self) -> Result<Taken, Refusal> {
        self.subscriptions.take().ok_or_else(|| self.refusal("subscriptions_max", Some(RETRY_FULL)))
    }

    /// A lease of this many ms; `None`: the queue's own length.
    pub(crate) fn check_lease(&self, lease_ms: Option<u64>) -> Result<(), Refusal> {
        match (lease_ms, self.config.lease_ms_max) {
            (Some(lease_ms), Some(max)) if lease_ms > max => Err(self.refusal("lease_ms_max", None)),
            _ => Ok(()),
        }
    }

    /// Waits until no other queue of the tenant is created or changed.
    pub(crate) async fn creating(&self) -> Creating<'_> {
        Creating { tenant: self, refused: self.creating.lock().await }
    }

    /// The number of its queues. With a partition that is not read, the bound might be passed for good.
    async fn queues(&self) -> Result<u64, Refusal> {
        let mut queues = 0;
        for kept in self.source.kept(&self.config.prefix, false).await {
            queues += kept?.queues;
        }
        Ok(queues)
    }

    fn refusal(&self, quota: &'static str, retry_after: Option<Duration>) -> Refusal {
        let known = self.quotas.iter().find(|(known, _, _)| *known == quota);
        let max = known.map_or(0, |(_, max, refused)| {
            refused.increment(1);
            *max
        });
        Refusal::TenantQuota { tenant: self.config.name.clone(), quota, max, retry_after }
    }
}

impl Creating<'_> {
    /// A queue was deleted, or has fewer indexes: there may be room again.
    pub(crate) fn left(&mut self) {
        *self.refused = Refused::default();
    }

    /// Checks a queue that does not exist yet, with this configuration.
    pub(crate) async fn check_new(&mut self, config: &QueueConfig) -> Result<(), Refusal> {
        self.tenant.check_lease(Some(config.lease_ms))?;
        self.check(1, config.indexes.len() as u64).await
    }

    /// Checks another configuration of a queue, which declares this number of additional indexes.
    pub(crate) async fn check_changed(&mut self, lease_ms: Option<u64>, more_indexes: u64) -> Result<(), Refusal> {
        self.tenant.check_lease(lease_ms)?;
        self.check(0, more_indexes).await
    }

    /// Checks so many more queues and indexes. What either bound refuses again is refused before anything is read.
    async fn check(&mut self, queues: u64, indexes: u64) -> Result<(), Refusal> {
        let (tenant, refused) = (self.tenant, &mut *self.refused);
        let (queues_max, indexes_max) = (tenant.config.queues_max, tenant.config.indexes_max);
        if refused.queues.refuses(queues, queues_max) {
            return Err(tenant.refusal("queues_max", None));
        }
        if refused.indexes.refuses(indexes, indexes_max) {
            return Err(tenant.refusal("indexes_max", None));
        }
        if !refused.queues.has_room(queues, queues_max, tenant.queues()).await? {
            return Err(tenant.refusal("queues_max", None));
        }
        let declared = tenant.source.declared_indexes(&tenant.config.prefix);
        if !refused.indexes.has_room(indexes, indexes_max, declared).await? {
            return Err(tenant.refusal("indexes_max", None));
        }
        Ok(())
    }
}

impl TenantConfig {
    /// The quotas that are set, with their bounds.
    fn quotas(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = [
            ("queues_max", self.queues_max),
            ("messages_max", self.messages_max),
            ("bytes_max", self.bytes_max),
            ("indexes_max", self.indexes_max),
            ("enqueue_per_s", self.enqueue_per_s.map(u64::from)),
            ("calls_per_s", self.calls_per_s.map(u64::from)),
            ("waiters_max", self.waiters_max.map(u64::from)),
            ("subscriptions_max", self.subscriptions_max.map(u64::from)),
            ("lease_ms_max", self.lease_ms_max),
        ];
        all.into_iter().filter_map(|(quota, max)| Some((quota, max?)))
    }
}
