//! The state of one store: its connection, its indices, and what is known of the server.

use super::claims::SeenClaims;
use super::client::ElasticClient;
use super::group::IndexGroup;
use super::hours::HourIndices;
use super::names::IndexNames;
use super::options::{ElasticGroup, ElasticOptions, Rollover};
use super::refresh::Refreshes;
use super::templates::Templates;
use crate::store::HistoryError;

/// One server or cluster of servers, and the indices of one prefix in it.
pub(super) struct Cluster {
    pub(super) client: ElasticClient,
    /// At least one, the first of which has all queues that no other one has.
    pub(super) groups: Vec<IndexGroup>,
    pub(super) options: ElasticOptions,
    pub(super) refreshes: Refreshes,
    pub(super) claims: SeenClaims,
    templates: Templates,
}

impl Cluster {
    pub(super) fn new(options: ElasticOptions) -> Result<Cluster, HistoryError> {
        let others = ElasticGroup {
            queue_prefix: String::new(),
            prefix: options.prefix.clone(),
            retention_ms: options.retention_ms,
            index_days: options.rollover.days,
            has_topic: true,
        };
        let group = |group: &ElasticGroup| {
            Ok(IndexGroup {
                queue_prefix: group.queue_prefix.clone(),
                names: IndexNames::new(&group.prefix)?,
                retention_ms: group.retention_ms,
                rollover: Rollover { days: group.index_days, ..options.rollover.clone() },
                has_topic: group.has_topic,
                hours: HourIndices::default(),
            })
        };
        Ok(Cluster {
            client: ElasticClient::new(&options)?,
            groups: std::iter::once(&others).chain(&options.groups).map(group).collect::<Result<_, HistoryError>>()?,
            refreshes: Refreshes::default(),
            claims: SeenClaims::default(),
            templates: Templates::default(),
            options,
        })
    }

    /// What all groups share: the losses.
    pub(super) fn shared(&self) -> &IndexNames {
        &self.groups[0].names
    }

    /// Creates missing templates and upgrades older ones, once per outage of the server.
    pub(super) async fn ensure_templates(&self) -> Result<(), HistoryError> {
        self.templates.ensure(&self.client, &self.groups, &self.options).await
    }

    /// Runs one write. After an outage the templates and hours are read again: the server may have lost them.
    pub(super) async fn write<T>(
        &self,
        write: impl Future<Output = Result<T, HistoryError>>,
    ) -> Result<T, HistoryError> {
        self.ensure_templates().await?;
        let written = write.await;
        if let Err(HistoryError::Unavailable(_)) = &written {
            self.templates.forget().await;
            for group in &self.groups {
                group.hours.forget().await;
            }
        }
        written
    }
}
