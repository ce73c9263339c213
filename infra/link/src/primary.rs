//! Where the primary of a store is: at one address, or where its Sentinels (X2) or the nodes of its Redis Cluster (Q17) say.

use crate::cluster::Cluster;
use crate::nodes::NodeAccess;
use crate::sentinels::Sentinels;
use crate::topology::Claimed;
use redis::{Client, RedisResult};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::sleep;

/// Between two reads of what they say. For this time a process may write to a primary that was cut off: what it writes
/// there is lost, unless `min-replicas-to-write` refuses it.
const READ_EVERY: Duration = Duration::from_secs(1);
/// For this time after their last answer this process knows what they say, late by the time between two reads.
const NAMED_FOR: Duration = Duration::from_secs(2);

/// Where the primary of a store is. Its clones are the same.
#[derive(Clone)]
pub struct Primary {
    leads: Arc<Leads>,
    /// How many primaries there have been before this one, as far as is known. A node that becomes the primary again begins another
    /// generation: it has another timeline then, at the same address.
    generation: Arc<AtomicU64>,
}

enum Leads {
    To(Box<Client>),
    At(Box<NodeAccess>),
    By(Box<Named>),
}

/// A node that is the primary, and since when.
#[derive(Clone)]
pub(crate) struct Lead {
    pub(crate) client: Client,
    generation: u64,
}

/// A primary that others name.
struct Named {
    by: By,
    /// The client of the primary that they have named last.
    current: watch::Sender<Option<Client>>,
    answered: Mutex<Answered>,
    watched: Once,
}

/// The last answer of those who name a primary.
#[derive(Default)]
struct Answered {
    at: Option<Instant>,
    /// The configuration epoch with which they have named the current primary: it has grown if others were in between.
    epoch: u64,
}

enum By {
    Sentinels(Sentinels, Box<NodeAccess>),
    /// The primary that has this slot.
    Slot(Arc<Cluster>, u16),
}

impl From<Client> for Primary {
    fn from(client: Client) -> Primary {
        Primary::new(Leads::To(Box::new(client)))
    }
}

impl Primary {
    fn new(leads: Leads) -> Primary {
        Primary { leads: Arc::new(leads), generation: Arc::default() }
    }

    pub(crate) fn at(node: NodeAccess) -> Primary {
        Primary::new(Leads::At(Box::new(node)))
    }

    pub(crate) fn named_by(sentinels: Sentinels, node: NodeAccess) -> Primary {
        Primary::by(By::Sentinels(sentinels, Box::new(node)))
    }

    pub(crate) fn of_slot(cluster: Arc<Cluster>, slot: u16) -> Primary {
        Primary::by(By::Slot(cluster, slot))
    }

    fn by(by: By) -> Primary {
        let (current, answered) = (watch::Sender::default(), Mutex::default());
        Primary::new(Leads::By(Box::new(Named { by, current, answered, watched: Once::new() })))
    }

    /// Where the primary that has a slot is: on a Redis Cluster it may be another one, otherwise there is one.
    pub fn with_slot(&self, slot: u16) -> Primary {
        match self.cluster() {
            Some(cluster) => Primary::of_slot(cluster.clone(), slot),
            None => self.clone(),
        }
    }

    /// Whether Sentinels or the nodes of a cluster say which node it is.
    pub(crate) fn is_named(&self) -> bool {
        matches!(&*self.leads, Leads::By(_))
    }

    /// Whether it is a node of a Redis Cluster.
    pub fn is_of_cluster(&self) -> bool {
        self.cluster().is_some()
    }

    fn cluster(&self) -> Option<&Arc<Cluster>> {
        match &*self.leads {
            Leads::By(named) => match &named.by {
                By::Slot(cluster, _) => Some(cluster),
                By::Sentinels(..) => None,
            },
            Leads::To(_) | Leads::At(_) => None,
        }
    }

    /// The client of the node that is the primary now, as far as is known, with the password and the certificates that its files have now.
    ///
    /// # Errors
    /// No Sentinel or no node answers, and none ever has. Or a file cannot be read.
    pub async fn client(&self) -> RedisResult<Client> {
        Ok(self.lead().await?.client)
    }

    /// The same, to compare it with the primary of later.
    pub(crate) async fn lead(&self) -> RedisResult<Lead> {
        let named = match &*self.leads {
            Leads::To(client) => return Ok(self.leads_to((**client).clone())),
            Leads::At(node) => return Ok(self.leads_to(node.client(None)?)),
            Leads::By(named) => named,
        };
        named.watched.call_once(|| drop(tokio::spawn(watch(Arc::downgrade(&self.leads), self.generation.clone()))));
        let found = match named.find(Duration::ZERO, &self.generation).await {
            Ok(client) => client,
            // A primary outlives those who name it.
            Err(error) => named.current.borrow().clone().ok_or(error)?,
        };
        Ok(self.leads_to(named.access().client(Some(found.get_connection_info().addr().clone()))?))
    }

    /// No connection is open yet: whatever changes from here on, it will not be current.
    fn leads_to(&self, client: Client) -> Lead {
        Lead { client, generation: self.generation.load(Ordering::Acquire) }
    }

    /// Whether a connection that was opened with this leads to the primary, as far as is known, and no other node was the primary
    /// since.
    pub(crate) fn is_at(&self, lead: &Lead) -> bool {
        let is_named = match &*self.leads {
            Leads::To(_) | Leads::At(_) => true,
            Leads::By(named) => named.current.borrow().as_ref().is_none_or(|current| is_same(current, &lead.client)),
        };
        is_named && self.generation.load(Ordering::Acquire) == lead.generation
    }

    /// The node has answered as a replica does: no connection that was opened before that is current any more. Of many such answers,
    /// the first one does that.
    pub(crate) fn ends(&self, lead: &Lead) {
        let (before, after) = (lead.generation, lead.generation + 1);
        let _ = self.generation.compare_exchange(before, after, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Whether this process would know if another node had been the primary. Of a node at a plain address, only its timeline says so.
    pub(crate) fn is_watched(&self) -> bool {
        match &*self.leads {
            Leads::To(_) | Leads::At(_) => false,
            Leads::By(named) => named.answered().at.is_some_and(|at| at.elapsed() < NAMED_FOR),
        }
    }

    /// Returns when this client no longer leads to the primary.
    pub async fn leaves(&self, client: &Client) {
        if let Leads::By(named) = &*self.leads {
            let mut current = named.current.subscribe();
            let left = |current: &Option<Client>| current.as_ref().is_some_and(|current| !is_same(current, client));
            if current.wait_for(left).await.is_ok() {
                return;
            }
        }
        std::future::pending().await
    }
}

impl Named {
    fn access(&self) -> &NodeAccess {
        match &self.by {
            By::Sentinels(_, access) => access,
            By::Slot(cluster, _) => cluster.access(),
        }
    }

    fn answered(&self) -> MutexGuard<'_, Answered> {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `age_max`: of what the nodes of a Redis Cluster have said.
    async fn find(&self, age_max: Duration, generation: &AtomicU64) -> RedisResult<Client> {
        let claimed = match &self.by {
            By::Sentinels(sentinels, _) => sentinels.primary().await?,
            By::Slot(cluster, slot) => cluster.primary(*slot, age_max).await?,
        };
        self.take(claimed, generation)
    }

    /// The client of the primary that they name. `generation` grows if another node was the primary since the last answer.
    fn take(&self, Claimed { host, port, epoch }: Claimed, generation: &AtomicU64) -> RedisResult<Client> {
        let access = self.access();
        let address = access.address(host, port);
        // Held to the end: the client, the epoch and the generation belong together.
        let mut answered = self.answered();
        let current = self.current.borrow().clone();
        if let Some(current) = current.filter(|current| current.get_connection_info().addr() == &address) {
            answered.at = Some(Instant::now());
            // One who has missed the last failover may answer alone: its epoch is earlier.
            if epoch > answered.epoch {
                answered.epoch = epoch;
                generation.fetch_add(1, Ordering::AcqRel);
            }
            return Ok(current);
        }
        let client = access.client(Some(address))?;
        (answered.at, answered.epoch) = (Some(Instant::now()), epoch);
        let before = self.current.send_replace(Some(client.clone()));
        generation.fetch_add(1, Ordering::AcqRel);
        if before.is_some() {
            let slot = match &self.by {
                By::Slot(_, slot) => Some(*slot),
                By::Sentinels(..) => None,
            };
            tracing::warn!(primary = %client.get_connection_info().addr(), slot, "another node is the primary now");
        }
        Ok(client)
    }
}

fn is_same(a: &Client, b: &Client) -> bool {
    a.get_connection_info().addr() == b.get_connection_info().addr()
}

/// Reads what they say, until the primary has no users: a connection to a primary that was cut off stays open.
async fn watch(primary: Weak<Leads>, generation: Arc<AtomicU64>) {
    loop {
        sleep(READ_EVERY).await;
        let Some(leads) = primary.upgrade() else { return };
        if let Leads::By(named) = &*leads
            && let Err(error) = named.find(READ_EVERY / 2, &generation).await
        {
            tracing::debug!(%error, "it is unknown whether the connection still leads to the primary");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::IntoConnectionInfo;

    #[tokio::test]
    async fn q16_of_many_answers_of_a_replica_the_first_ends_what_was_open() {
        let primary = Primary::from(Client::open("redis://h:1").expect("a good address"));
        let (first, other) = (primary.lead().await.expect("a client"), primary.clone().lead().await.expect("a client"));
        assert!(primary.is_at(&first) && primary.is_at(&other));
        primary.ends(&first);
        assert!(!primary.is_at(&first) && !primary.is_at(&other));
        let next = primary.lead().await.expect("a client");
        primary.ends(&other);
        assert!(primary.is_at(&next), "the second answer says nothing of what was opened after the first one");
    }

    #[test]
    fn x2_x3_a_node_that_is_the_primary_again_begins_another_reign() {
        let info = "redis://none".into_connection_info().expect("a good address");
        let access = Arc::new(NodeAccess { info, user: None, password_file: None, tls: None });
        let primary = Primary::of_slot(Arc::new(Cluster::new(Vec::new(), access)), 0);
        let Leads::By(named) = &*primary.leads else { panic!("a slot is named by the nodes") };
        assert!(!primary.is_watched(), "no node has answered");
        for (host, epoch, generation) in [
            ("a", 1, 1),
            ("a", 1, 1),
            // This process has missed the one in between.
            ("a", 3, 2),
            // A node that has missed it, too, answers alone.
            ("a", 2, 2),
            ("a", 3, 2),
            ("b", 4, 3),
            ("a", 5, 4),
        ] {
            let claimed = Claimed { host: host.to_owned(), port: 1, epoch };
            named.take(claimed, &primary.generation).expect("a client");
            assert_eq!(primary.generation.load(Ordering::Acquire), generation, "{host} {epoch}");
        }
        assert!(primary.is_watched());
    }
}
