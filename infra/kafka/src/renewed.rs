//! A client that another one replaces when it has failed.
//!
//! A Kafka that has just started names no broker until it is registered. librdkafka takes that for a cluster without
//! brokers, drops those that it knows, and never connects again (librdkafka #5301). A new client does.

use crate::error::KafkaConfigError;
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::FromClientConfigAndContext;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The client, and how to make another one.
pub(crate) struct Renewed<T> {
    make: Box<dyn Fn() -> Result<T, KafkaConfigError> + Send + Sync>,
    current: Mutex<Arc<T>>,
}

impl<T: Send + Sync + 'static> Renewed<T> {
    /// Checks the configuration; the client connects in the background.
    pub(crate) fn new<C>(config: ClientConfig, context: fn() -> C) -> Result<Renewed<T>, KafkaConfigError>
    where
        C: ClientContext + 'static,
        T: FromClientConfigAndContext<C>,
    {
        let make = move || Ok(config.create_with_context(context())?);
        Ok(Renewed { current: Mutex::new(Arc::new(make()?)), make: Box::new(make) })
    }

    /// The client to use for one request.
    pub(crate) fn current(&self) -> Arc<T> {
        self.lock().clone()
    }

    /// Replaces this client unless that has happened already.
    pub(crate) fn renew(&self, failed: &Arc<T>) {
        let mut current = self.lock();
        if !Arc::ptr_eq(&current, failed) {
            return;
        }
        match (self.make)() {
            Ok(new) => {
                let failed = std::mem::replace(&mut *current, Arc::new(new));
                // The drop joins the client's threads.
                std::thread::spawn(move || drop(failed));
            }
            Err(error) => tracing::warn!(%error, "the Kafka client is not replaced"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Arc<T>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
