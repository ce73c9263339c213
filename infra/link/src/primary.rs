//! Where the primary of a store is: at one address, or where its Sentinels say (X2).

use crate::sentinels::Sentinels;
use redis::{Client, ConnectionAddr, ConnectionInfo, RedisResult, TlsCertificates};
use std::sync::{Arc, Once, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;

/// Between two reads of what the Sentinels say. For so long a process may write to a primary that was cut off: what it writes
/// there is lost, unless `min-replicas-to-write` refuses it.
const READ_EVERY: Duration = Duration::from_secs(1);

/// Where the primary of a store is. Its clones are the same.
#[derive(Clone)]
pub struct Primary(Arc<Leads>);

enum Leads {
    To(Box<Client>),
    By(Box<Named>),
}

/// A primary that Sentinels name.
struct Named {
    sentinels: Sentinels,
    node: NodeAccess,
    /// The client of the primary that they have named last.
    current: watch::Sender<Option<Client>>,
    watched: Once,
}

/// How the nodes are reached, but for their addresses.
pub(crate) struct NodeAccess {
    pub(crate) info: ConnectionInfo,
    pub(crate) certificates: Option<TlsCertificates>,
}

impl NodeAccess {
    /// The client of one node. `address`: `None`, that of `info`.
    pub(crate) fn client(&self, address: Option<ConnectionAddr>) -> RedisResult<Client> {
        let info = match address {
            Some(address) => self.info.clone().set_addr(address),
            None => self.info.clone(),
        };
        match &self.certificates {
            Some(certificates) => Client::build_with_tls(info, certificates.clone()),
            None => Client::open(info),
        }
    }

    fn address(&self, host: String, port: u16) -> ConnectionAddr {
        match self.info.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
            }
            _ => ConnectionAddr::Tcp(host, port),
        }
    }
}

impl From<Client> for Primary {
    fn from(client: Client) -> Primary {
        Primary(Arc::new(Leads::To(Box::new(client))))
    }
}

impl Primary {
    pub(crate) fn named_by(sentinels: Sentinels, node: NodeAccess) -> Primary {
        let (current, watched) = (watch::Sender::default(), Once::new());
        Primary(Arc::new(Leads::By(Box::new(Named { sentinels, node, current, watched }))))
    }

    /// The client of the node that is the primary now, as far as is known.
    ///
    /// # Errors
    /// No Sentinel answers, and none ever has.
    pub async fn client(&self) -> RedisResult<Client> {
        let named = match &*self.0 {
            Leads::To(client) => return Ok((**client).clone()),
            Leads::By(named) => named,
        };
        named.watched.call_once(|| drop(tokio::spawn(watch(Arc::downgrade(&self.0)))));
        match named.find().await {
            Ok(client) => Ok(client),
            // A primary outlives its Sentinels.
            Err(error) => named.current.borrow().clone().ok_or(error),
        }
    }

    /// Whether this client leads to the primary, as far as is known.
    pub(crate) fn is_at(&self, client: &Client) -> bool {
        match &*self.0 {
            Leads::To(_) => true,
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
    async fn find(&self) -> RedisResult<Client> {
        let (host, port) = self.sentinels.primary().await?;
        let address = self.node.address(host, port);
        if let Some(current) = &*self.current.borrow()
            && current.get_connection_info().addr() == &address
        {
            return Ok(current.clone());
        }
        let client = self.node.client(Some(address))?;
        let before = self.current.send_replace(Some(client.clone()));
        if before.is_some() {
            tracing::warn!(primary = %client.get_connection_info().addr(), "the Sentinels name another primary");
        }
        Ok(client)
    }
}

fn is_same(a: &Client, b: &Client) -> bool {
    a.get_connection_info().addr() == b.get_connection_info().addr()
}

/// Reads what the Sentinels say, until the primary has no users: a connection to a primary that was cut off stays open.
async fn watch(primary: Weak<Leads>) {
    loop {
        sleep(READ_EVERY).await;
        let Some(leads) = primary.upgrade() else { return };
        if let Leads::By(named) = &*leads
            && let Err(error) = named.find().await
        {
            tracing::debug!(%error, "the Sentinels are not known to agree with the connection");
        }
    }
}
