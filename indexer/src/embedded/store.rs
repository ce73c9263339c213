//! The store: what each call reads or writes.

use super::connections::Connections;
use super::error::EmbeddedError;
use super::options::EmbeddedOptions;
use super::{depth, losses, prune, record, repair, search, stats, trace};
use crate::{
    DepthQuery, Grouping, HistoryError, HistoryStore, Queues, Rejected, SearchQuery, Source, StatsQuery, Trace,
    TraceQuery,
};
use rusqlite::{Connection, params};
use std::sync::Arc;
use tallystone_model::{Loss, Recorded, Sink, SinkError};
use tallystone_proto::history::v1::{Activity, IndexedMessage};

/// A history in one file. Only one process can open it; its threads may share it.
pub struct Embedded {
    options: EmbeddedOptions,
    connections: Connections,
}

impl Embedded {
    /// Opens the file, or creates it. Blocks: for milliseconds, or for the recovery after a crash.
    pub fn open(options: EmbeddedOptions) -> Result<Embedded, EmbeddedError> {
        let connections = Connections::open(&options)?;
        Ok(Embedded { options, connections })
    }

    async fn write_events(&self, events: Arc<Vec<Recorded>>) -> Result<Vec<Rejected>, HistoryError> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let options = self.options.clone();
        self.connections
            .write(move |write| {
                let rejected = record::record(write, &events)?;
                prune::make_room(&write.transaction, &options, events.len())?;
                Ok(rejected)
            })
            .await
    }

    async fn read<Q, T>(&self, query: &Q, run: fn(&Connection, &Q) -> rusqlite::Result<T>) -> Result<T, HistoryError>
    where
        Q: Clone + Send + 'static,
        T: Send + 'static,
    {
        let query = query.clone();
        self.connections.read(move |connection| run(connection, &query)).await
    }
}

impl HistoryStore for Embedded {
    async fn record(&self, events: &[Recorded]) -> Result<Vec<Rejected>, HistoryError> {
        self.write_events(Arc::new(events.to_vec())).await
    }

    async fn record_losses(&self, losses: &[Loss]) -> Result<(), HistoryError> {
        let losses = losses.to_vec();
        self.connections.write(move |write| losses::record(write, &losses)).await
    }

    async fn losses(&self, queues: &Queues) -> Result<Vec<Loss>, HistoryError> {
        self.read(queues, losses::losses).await
    }

    async fn settle_losses(&self, losses: &[Loss]) -> Result<(), HistoryError> {
        let losses = losses.to_vec();
        self.connections.write(move |write| losses::settle(write, &losses)).await
    }

    async fn repair(&self, messages: &[IndexedMessage]) -> Result<Vec<bool>, HistoryError> {
        let messages = messages.to_vec();
        self.connections.write(move |write| repair::repair(write, &messages)).await
    }

    async fn advance(&self, source: Source, up_to_ms: u64) -> Result<(), HistoryError> {
        const ADVANCE: &str = "INSERT INTO sources (number, of, up_to_ms) VALUES (?1, ?2, ?3) \
             ON CONFLICT (number) DO UPDATE SET of = max(of, excluded.of), up_to_ms = max(up_to_ms, excluded.up_to_ms)";
        let up_to_ms = i64::try_from(up_to_ms).unwrap_or(i64::MAX);
        self.connections
            .write(move |write| {
                let mut advance = write.transaction.prepare_cached(ADVANCE)?;
                advance.execute(params![source.number, source.of, up_to_ms])?;
                Ok(())
            })
            .await
    }

    async fn watermark(&self) -> Result<Option<u64>, HistoryError> {
        const WATERMARK: &str = "SELECT CASE WHEN count(*) >= max(of) THEN min(up_to_ms) END FROM sources";
        let read = |connection: &Connection| -> rusqlite::Result<Option<i64>> {
            connection.prepare_cached(WATERMARK)?.query_row([], |row| row.get(0))
        };
        Ok(self.connections.read(read).await?.map(|up_to_ms| up_to_ms as u64))
    }

    async fn trace(&self, query: &TraceQuery) -> Result<Trace, HistoryError> {
        self.read(query, trace::trace).await
    }

    async fn search(&self, query: &SearchQuery) -> Result<Vec<IndexedMessage>, HistoryError> {
        self.read(query, search::search).await
    }

    async fn stats(&self, query: &StatsQuery) -> Result<Vec<Activity>, HistoryError> {
        self.read(query, stats::stats).await
    }

    async fn depth(&self, query: &DepthQuery) -> Result<[u64; 6], HistoryError> {
        self.read(query, depth::depth).await
    }

    async fn depth_by(&self, query: &DepthQuery, grouping: &Grouping) -> Result<Vec<(String, [u64; 6])>, HistoryError> {
        self.read(&(query.clone(), grouping.clone()), depth::depth_by).await
    }

    async fn prune(&self, now_ms: u64) -> Result<bool, HistoryError> {
        let options = self.options.clone();
        let pruned = self.connections.write(move |write| prune::step(write, &options, now_ms)).await?;
        if pruned.shrunk && !pruned.more {
            self.connections.checkpoint().await?;
        }
        Ok(pruned.more)
    }
}

/// The relay writes to the file directly; it is the only source.
impl Sink for Embedded {
    async fn deliver(&self, events: Arc<Vec<Recorded>>) -> Result<(), SinkError> {
        for Rejected { index, why } in self.write_events(events).await.map_err(|error| SinkError(error.to_string()))? {
            tracing::error!(index, why, "an event cannot be stored in history and is left out");
        }
        Ok(())
    }

    async fn lost(&self, losses: Arc<Vec<Loss>>) -> Result<(), SinkError> {
        self.record_losses(&losses).await.map_err(|error| SinkError(error.to_string()))
    }

    async fn delivered_to(&self, up_to_ms: u64) -> Result<(), SinkError> {
        let relay = Source { number: 0, of: 1 };
        self.advance(relay, up_to_ms).await.map_err(|error| SinkError(error.to_string()))
    }
}
