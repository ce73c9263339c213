//! The state of one store: its connection, its index names, and what is known of the server.

use super::client::ElasticClient;
use super::names::IndexNames;
use super::options::ElasticOptions;
use super::refresh::Refreshes;
use super::templates::Templates;
use crate::store::HistoryError;

/// One server or cluster of servers, and the indices of one prefix in it.
pub(super) struct Cluster {
    pub(super) client: ElasticClient,
    pub(super) names: IndexNames,
    pub(super) options: ElasticOptions,
    pub(super) refreshes: Refreshes,
    templates: Templates,
}

impl Cluster {
    pub(super) fn new(options: ElasticOptions) -> Result<Cluster, HistoryError> {
        Ok(Cluster {
            client: ElasticClient::new(&options)?,
            names: IndexNames::new(&options.prefix)?,
            refreshes: Refreshes::default(),
            templates: Templates::default(),
            options,
        })
    }

    /// Creates missing templates and upgrades older ones, once per outage of the server.
    pub(super) async fn ensure_templates(&self) -> Result<(), HistoryError> {
        self.templates.ensure(&self.client, &self.names, &self.options).await
    }

    /// Runs one write. After an outage the templates are checked again: the server may have lost them.
    pub(super) async fn write<T>(
        &self,
        write: impl Future<Output = Result<T, HistoryError>>,
    ) -> Result<T, HistoryError> {
        self.ensure_templates().await?;
        let written = write.await;
        if let Err(HistoryError::Unavailable(_)) = &written {
            self.templates.forget().await;
        }
        written
    }
}
