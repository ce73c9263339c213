//! A connection to the cluster, with the statements of an archive.

use super::address::Address;
use super::schema::tables;
use futures::stream::TryStreamExt;
use object_store::Error;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::deserialize::row::DeserializeRow;
use scylla::policies::load_balancing::DefaultPolicy;
use scylla::policies::timestamp_generator::MonotonicTimestampGenerator;
use scylla::serialize::row::SerializeRow;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, SerialConsistency};
use scylla::value::{CqlValue, Row};
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::sleep;

const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// How long one statement may take, with retries on other nodes.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The pauses before rows are sent again.
const PAUSES: [Duration; 3] = [Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1_600)];
/// Rows of one page of an answer.
const PAGE_ROWS: i32 = 1_000;

/// A connection that the first call makes, and the next call if the first could not.
pub(crate) struct Connection {
    address: Address,
    cluster: OnceCell<Cluster>,
}

/// A cluster that answers. The driver connects again to nodes that were gone.
pub(crate) struct Cluster {
    session: Session,
    pub(crate) statements: Statements,
    /// The consistency of reads that first complete a change of another call.
    pub(crate) settled: Consistency,
}

macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $cql:literal;)+) => {
        /// The prepared statements.
        pub(crate) struct Statements { $($(#[$doc])* pub(crate) $name: PreparedStatement,)+ }

        impl Statements {
            async fn prepare(session: &Session, keyspace: &str) -> Result<Statements, Error> {
                let prepare = async |cql: &str| {
                    let prepared = session.prepare(cql.replace("KS.", &format!("\"{keyspace}\"."))).await;
                    let mut prepared = prepared.map_err(unavailable)?;
                    // The driver sends a compare-and-set once: whether one without an answer had an effect is not known, and
                    // another process may have built on it.
                    prepared.set_is_idempotent(!cql.contains(" IF "));
                    prepared.set_page_size(PAGE_ROWS);
                    Ok::<_, Error>(prepared)
                };
                Ok(Statements { $($name: prepare($cql).await?,)+ })
            }
        }
    };
}

statements! {
    object = "SELECT version, bytes, chunk_bytes, modified FROM KS.objects WHERE folder = ? AND name = ?";
    objects = "SELECT name, bytes, modified FROM KS.objects WHERE folder = ?";
    create_object = "INSERT INTO KS.objects (folder, name, version, bytes, chunk_bytes, modified) \
                     VALUES (?, ?, ?, ?, ?, ?) IF NOT EXISTS";
    replace_object = "UPDATE KS.objects SET version = ?, bytes = ?, chunk_bytes = ?, modified = ? \
                      WHERE folder = ? AND name = ? IF version = ?";
    delete_object = "DELETE FROM KS.objects WHERE folder = ? AND name = ? IF version = ?";
    folder = "SELECT name FROM KS.folders WHERE parent = ? AND name = ?";
    folders = "SELECT name FROM KS.folders WHERE parent = ?";
    create_folder = "INSERT INTO KS.folders (parent, name) VALUES (?, ?) IF NOT EXISTS";
    delete_folder = "DELETE FROM KS.folders WHERE parent = ? AND name = ? IF EXISTS";
    versions = "SELECT version, chunks FROM KS.versions WHERE folder = ?";
    create_version = "INSERT INTO KS.versions (folder, version, chunks) VALUES (?, ?, ?)";
    /// With the latest possible time, so that it also deletes a row of a writer whose clock is ahead. The version is never used again.
    delete_version = "DELETE FROM KS.versions USING TIMESTAMP 9223372036854775807 WHERE folder = ? AND version = ?";
    chunk = "SELECT data FROM KS.chunks WHERE version = ? AND number = ?";
    create_chunk = "INSERT INTO KS.chunks (version, number, data) VALUES (?, ?, ?)";
    /// With the latest possible time, as `delete_version`.
    delete_chunk = "DELETE FROM KS.chunks USING TIMESTAMP 9223372036854775807 WHERE version = ? AND number = ?";
    put_event = "INSERT INTO KS.events (namespace, counter, slice, time, shard, event_token, counter_id, delta, source, \
                 event_item_key) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    delete_event = "DELETE FROM KS.events WHERE namespace = ? AND counter = ? AND slice = ? AND time = ? AND shard = ? \
                    AND event_token = ? AND counter_id = ?";
    delete_events = "DELETE FROM KS.events WHERE namespace = ? AND counter = ? AND slice = ?";
    counters = "SELECT counter FROM KS.event_counters WHERE namespace = ? AND slice = ? AND part = ?";
    put_counter = "INSERT INTO KS.event_counters (namespace, slice, part, counter) VALUES (?, ?, ?, ?)";
    delete_counters = "DELETE FROM KS.event_counters WHERE namespace = ? AND slice = ? AND part = ?";
}

impl Connection {
    pub(crate) fn to(address: Address) -> Connection {
        Connection { address, cluster: OnceCell::new() }
    }

    /// # Errors
    /// No node answers, or the keyspace is not there.
    pub(crate) async fn cluster(&self) -> Result<&Cluster, Error> {
        self.cluster.get_or_try_init(|| Cluster::connect(&self.address)).await
    }
}

impl Cluster {
    async fn connect(address: &Address) -> Result<Cluster, Error> {
        // Of a data center alone, a majority of its replicas has each write. Over all of them, a majority of all.
        let (consistency, serial, settled) = match address.datacenter {
            Some(_) => (Consistency::LocalQuorum, SerialConsistency::LocalSerial, Consistency::LocalSerial),
            None => (Consistency::Quorum, SerialConsistency::Serial, Consistency::Serial),
        };
        let nearest = DefaultPolicy::builder();
        let nearest = match &address.datacenter {
            Some(datacenter) => nearest.prefer_datacenter(datacenter.clone()),
            None => nearest,
        };
        let profile = ExecutionProfile::builder()
            .consistency(consistency)
            .serial_consistency(Some(serial))
            .load_balancing_policy(nearest.build())
            .request_timeout(Some(ANSWER_WITHIN))
            .build();
        let mut builder = SessionBuilder::new()
            .known_nodes(&address.nodes)
            .connection_timeout(CONNECT_WITHIN)
            .metadata_request_clientside_timeout(ANSWER_WITHIN)
            .keyspaces_to_fetch([&address.keyspace])
            // What a process deletes after it has written it is gone, whichever node is called.
            .timestamp_generator(Arc::new(MonotonicTimestampGenerator::new()))
            .default_execution_profile_handle(profile.into_handle());
        if let Some((name, password)) = &address.user {
            builder = builder.user(name, password);
        }
        let session = builder.build().await.map_err(unavailable)?;
        create_tables(&session, &address.keyspace).await?;
        let statements = Statements::prepare(&session, &address.keyspace).await?;
        Ok(Cluster { session, statements, settled })
    }

    /// Runs a statement without rows in its answer.
    pub(crate) async fn run(&self, statement: &PreparedStatement, values: impl SerializeRow) -> Result<(), Error> {
        self.session.execute_unpaged(statement, values).await.map(drop).map_err(unavailable)
    }

    /// The row of its answer, if it has one.
    pub(crate) async fn row<T>(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<Option<T>, Error>
    where
        T: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata>,
    {
        let answer = self.session.execute_unpaged(statement, values).await.map_err(unavailable)?;
        let answer = answer.into_rows_result().map_err(unavailable)?;
        answer.maybe_first_row::<T>().map_err(unavailable)
    }

    /// All rows of its answer, which comes in pages.
    pub(crate) async fn rows<T>(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<Vec<T>, Error>
    where
        T: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata> + Send + 'static,
    {
        let pages = self.session.execute_iter(statement.clone(), values).await.map_err(unavailable)?;
        pages.rows_stream::<T>().map_err(unavailable)?.map_err(unavailable).try_collect().await
    }

    /// Runs a statement with a condition, once. Returns whether it was applied. After an error it may have been.
    pub(crate) async fn applies(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<bool, Error> {
        let answer = self.session.execute_unpaged(statement, values).await.map_err(unavailable)?;
        let answer = answer.into_rows_result().map_err(unavailable)?;
        let row = answer.first_row::<Row>().map_err(unavailable)?;
        Ok(row.columns.first() == Some(&Some(CqlValue::Boolean(true))))
    }

    /// Runs a statement with each of these values, all of one partition, as one change at a time (Unix µs): of two changes of a
    /// row the later one holds, whichever comes first.
    pub(crate) async fn change<T: SerializeRow>(
        &self,
        statement: &PreparedStatement,
        values: Vec<T>,
        at_us: i64,
    ) -> Result<(), Error> {
        let statements = vec![statement.clone().into(); values.len()];
        let mut batch = Batch::new_with_statements(BatchType::Unlogged, statements);
        batch.set_timestamp(Some(at_us));
        batch.set_is_idempotent(true);
        // The driver does not repeat one that timed out. The same rows at the same time change nothing.
        for pause in PAUSES {
            if self.session.batch(&batch, &values).await.is_ok() {
                return Ok(());
            }
            sleep(pause).await;
        }
        self.session.batch(&batch, &values).await.map(drop).map_err(unavailable)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("keyspace", &self.address.keyspace).finish_non_exhaustive()
    }
}

/// Creates the tables that are not there.
async fn create_tables(session: &Session, keyspace: &str) -> Result<(), Error> {
    let cql = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?";
    let found = session.query_unpaged(cql, (keyspace,)).await.map_err(unavailable)?;
    if found.into_rows_result().map_err(unavailable)?.rows_num() == 0 {
        return Err(failed(format!(
            "there is no keyspace {keyspace}; create it: CREATE KEYSPACE \"{keyspace}\" WITH replication = \
             {{'class': 'NetworkTopologyStrategy', 'DATACENTER': 3}}"
        )));
    }
    let cql = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?";
    let found = session.query_unpaged(cql, (keyspace,)).await.map_err(unavailable)?;
    let found = found.into_rows_result().map_err(unavailable)?;
    let there: Result<HashSet<String>, _> =
        found.rows::<(String,)>().map_err(unavailable)?.map(|row| row.map(|(name,)| name)).collect();
    let there = there.map_err(unavailable)?;
    for (name, cql) in tables(keyspace) {
        // A user without the right to create tables can work with those that are there.
        if !there.contains(name) {
            session.query_unpaged(cql, ()).await.map_err(unavailable)?;
        }
    }
    Ok(())
}

/// What the driver reports, or what was found wrong.
pub(crate) fn unavailable(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Generic { store: "Cassandra", source: Box::new(error) }
}

pub(crate) fn failed(why: impl Into<String>) -> Error {
    Error::Generic { store: "Cassandra", source: why.into().into() }
}
