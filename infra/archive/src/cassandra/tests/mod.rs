//! The archive in a real Cassandra.

mod events;
mod objects;
mod users;

use super::address::Address;
use super::connection::Connection;
use crate::Archive;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::deserialize::row::DeserializeRow;
use std::sync::{Arc, Weak};
use tallystone_local::{PrivateCassandra, PrivateCassandraOptions};
use tempfile::TempDir;
use tokio::sync::Mutex;

const KEYSPACE: &str = "tallystone";

/// A Cassandra with an empty keyspace, which the tests share. It ends with its last user.
struct Node {
    // Before the folder, so that it stops before the folder goes.
    process: PrivateCassandra,
    _dir: TempDir,
}

impl Node {
    async fn shared() -> Arc<Node> {
        static SHARED: Mutex<Weak<Node>> = Mutex::const_new(Weak::new());
        let mut shared = SHARED.lock().await;
        if let Some(node) = shared.upgrade() {
            return node;
        }
        let dir = tempfile::tempdir().unwrap();
        let process = PrivateCassandra::start(PrivateCassandraOptions::new(dir.path())).await.unwrap();
        let node = Arc::new(Node { process, _dir: dir });
        create_keyspace(&node.session().await, KEYSPACE).await;
        // Creates the tables.
        node.connection().cluster().await.unwrap();
        *shared = Arc::downgrade(&node);
        node
    }

    fn url(&self, keyspace: &str) -> String {
        format!("cassandra://{}/{keyspace}", self.process.address())
    }

    /// Each test has its own: the tasks of a connection end with the test that has begun it.
    fn connection(&self) -> Arc<Connection> {
        let place = format!("{}/{KEYSPACE}", self.process.address());
        Arc::new(Connection::to(Address::parse(&place, std::iter::empty()).unwrap()))
    }

    fn archive(&self) -> Archive {
        Archive::open(&self.url(KEYSPACE)).unwrap()
    }

    async fn session(&self) -> Session {
        SessionBuilder::new().known_node(self.process.address()).build().await.unwrap()
    }
}

async fn create_keyspace(session: &Session, name: &str) {
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    session.query_unpaged(format!("CREATE KEYSPACE \"{name}\" WITH replication = {replication}"), ()).await.unwrap();
}

/// The rows of a query, without parameters.
async fn rows<T>(session: &Session, cql: &str) -> Vec<T>
where
    T: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata> + Send + 'static,
{
    let answer = session.query_unpaged(cql.replace("KS.", &format!("\"{KEYSPACE}\".")), ()).await.unwrap();
    answer.into_rows_result().unwrap().rows::<T>().unwrap().map(Result::unwrap).collect()
}
