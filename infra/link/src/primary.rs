//! Where the primary of a store is: at one address, or where its Sentinels (X2) or the nodes of its Redis Cluster (Q17) say.

use crate::cluster::Cluster;
use crate::nodes::NodeAccess;
use crate::sentinels::Sentinels;
use redis::{Client, RedisResult};
use std::sync::{Arc, Once, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;

/// Between two reads of what they say. For this time a process may write to a primary that was cut off: what it writes
/// there is lost, unless `min-replicas-to-write` refuses it.
const READ_EVERY: Duration = Duration::from_secs(1);

/// Where the primary of a store is. Its clones are the same.
#[derive(Clone)]
pub struct Primary(Arc<Leads>);

enum Leads {
    To(Box<Client>),
    At(Box<NodeAccess>),
    By(Box<Named>),
}

/// A primary that others name.
struct Named {
    by: By,
    /// The client of the primary that they have named last.
    current: watch::Sender<Option<Client>>,
    watched: Once,
}

enum By {
    Sentinels(Sentinels, Box<NodeAccess>),
    /// The primary that has this slot.
    Slot(Arc<Cluster>, u16),
}

impl From<Client> for Primary {
    fn from(client: Client) -> Primary {
        Primary(Arc::new(Leads::To(Box::new(client))))
    }
}

impl Primary {
    pub(crate) fn at(node: NodeAccess) -> Primary {
        Primary(Arc::new(Leads::At(Box::new(node))))
    }

    pub(crate) fn named_by(sentinels: Sentinels, node: NodeAccess) -> Primary {
        Primary::by(By::Sentinels(sentinels, Box::new(node)))
    }

    pub(crate) fn of_slot(cluster: Arc<Cluster>, slot: u16) -> Primary {
        Primary::by(By::Slot(cluster, slot))
    }

    fn by(by: By) -> Primary {
        Primary(Arc::new(Leads::By(Box::new(Named { by, current: watch::Sender::default(), watched: Once::new() }))))
    }

    /// Where the primary that has a slot is: on a Redis Cluster it may be another one, otherwise there is one.
    pub fn with_slot(&self, slot: u16) -> Primary {
        match self.cluster() {
            Some(cluster) => Primary::of_slot(cluster.clone(), slot),
            None => self.clone(),
        }
    }

    /// Whether it is a node of a Redis Cluster.
    pub fn is_of_cluster(&self) -> bool {
        self.cluster().is_some()
    }

    fn cluster(&self) -> Option<&Arc<Cluster>> {
        match &*self.0 {
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
        let named = match &*self.0 {
            Leads::To(client) => return Ok((**client).clone()),
            Leads::At(node) => return node.client(None),
            Leads::By(named) => named,
        };
        named.watched.call_once(|| drop(tokio::spawn(watch(Arc::downgrade(&self.0)))));
        let found = match named.find(Duration::ZERO).await {
            Ok(client) => client,
            // A primary outlives those who name it.
            Err(error) => named.current.borrow().clone().ok_or(error)?,
        };
        named.access().client(Some(found.get_connection_info().addr().clone()))
    }

    /// Whether this client leads to the primary, as far as is known.
    pub(crate) fn is_at(&self, client: &Client) -> bool {
        match &*self.0 {
            Leads::To(_) | Leads::At(_) => true,
            Leads::By(named) => named.current.borrow().as_ref().is_none_or(|current| is_same(current, client)),
        }
    }

    /// Returns when this client no longer leads to the primary.
    pub async fn leaves(&self, client: &Client) {
        if let Leads::By(named) = &*self.0 {
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

    /// `age_max`: of what the nodes of a Redis Cluster have said.
    async fn find(&self, age_max: Duration) -> RedisResult<Client> {
        let (host, port) = match &self.by {
            By::Sentinels(sentinels, _) => sentinels.primary().await?,
            By::Slot(cluster, slot) => cluster.primary(*slot, age_max).await?,
        };
        let access = self.access();
        let address = access.address(host, port);
        if let Some(current) = &*self.current.borrow()
            && current.get_connection_info().addr() == &address
        {
            return Ok(current.clone());
        }
        let client = access.client(Some(address))?;
        let before = self.current.send_replace(Some(client.clone()));
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
async fn watch(primary: Weak<Leads>) {
    loop {
        sleep(READ_EVERY).await;
        let Some(leads) = primary.upgrade() else { return };
        if let Leads::By(named) = &*leads
            && let Err(error) = named.find(READ_EVERY / 2).await
        {
            tracing::debug!(%error, "it is unknown whether the connection still leads to the primary");
        }
    }
}
