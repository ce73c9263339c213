//! [`LocalCounters`]: an open folder with its background tasks.

use super::background::{self, Request};
use super::error::LocalError;
use super::folder::Folder;
use super::handle::Handle;
#[cfg(feature = "local-kafka")]
use super::kafka::{KafkaLog, TopicOptions};
use super::options::LocalOptions;
use super::push::Pusher;
use super::push_log::PushLog;
use super::service::Service;
use super::stats::Stats;
use super::unresolved::Unresolved;
use crate::counter::CounterClient;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, spawn_blocking};

/// Requests that may wait for the background task.
const REQUESTS_MAX: usize = 16;

/// Makes the log of a folder.
pub(super) type OpenLog = Box<dyn FnOnce(&Folder) -> Result<Box<dyn PushLog>, LocalError> + Send>;

/// Counters in this process, backed by a folder and by the counter service. [The module](crate::local) says what they promise.
///
/// Dropping it stops pushes and pulls. What is not pushed stays in the folder, and is pushed after the next [`open`](Self::open). The
/// folder is locked until the last handle is dropped, too.
pub struct LocalCounters {
    folder: Option<Arc<Folder>>,
    requests: mpsc::Sender<Request>,
    tasks: [JoinHandle<()>; 2],
    /// Dropped, it ends the second task.
    syncing: Option<oneshot::Sender<()>>,
}

impl LocalCounters {
    /// Opens a folder, or makes it, and starts to push and to pull. If a process before this one died, what it had not pushed is
    /// pushed now (L2). Call it within a tokio runtime.
    ///
    /// # Errors
    /// - [`Locked`](LocalError::Locked): another process has the folder open.
    /// - [`Damaged`](LocalError::Damaged): a file is not what this library wrote.
    /// - [`Invalid`](LocalError::Invalid): an option is out of its range, or `slots_max` or `stripes_max` differ from those of the
    ///   folder.
    /// - [`Io`](LocalError::Io): for example, the disk has no room.
    pub async fn open(
        folder: impl AsRef<Path>,
        client: CounterClient,
        options: LocalOptions,
    ) -> Result<LocalCounters, LocalError> {
        // The file is sent again at the next interval; waiting for longer would delay the pushes of other namespaces.
        LocalCounters::open_with(folder.as_ref(), client.with_retry_for(Duration::ZERO), None, options).await
    }

    /// Like [`open`](Self::open), but pushes go to a Kafka topic that `tallystone ingest` reads. They need no service: what has been pushed is
    /// safe in the topic, and counts when the service is there. Pulls come from the service.
    ///
    /// # Errors
    /// As [`open`](Self::open). Also [`Invalid`](LocalError::Invalid): Kafka's client refuses an option, or the folder has a push that was
    /// begun for another topic.
    #[cfg(feature = "local-kafka")]
    pub async fn open_with_topic(
        folder: impl AsRef<Path>,
        client: CounterClient,
        topic: TopicOptions,
        options: LocalOptions,
    ) -> Result<LocalCounters, LocalError> {
        let log: OpenLog = Box::new(|folder| Ok(Box::new(KafkaLog::open(topic, folder)?)));
        LocalCounters::open_with(folder.as_ref(), client.with_retry_for(Duration::ZERO), Some(log), options).await
    }

    pub(super) async fn open_with(
        path: &Path,
        service: impl Service,
        log: Option<OpenLog>,
        options: LocalOptions,
    ) -> Result<LocalCounters, LocalError> {
        let path = path.to_owned();
        let open = move || {
            let (folder, pushes) = Folder::open(&path, options)?;
            let log = log.map(|open| open(&folder)).transpose()?;
            let name = log.as_ref().map(|log| log.name());
            match pushes.iter().filter_map(|push| push.logged.as_ref()).find(|push| Some(&*push.log) != name) {
                Some(push) => Err(LocalError::invalid(format!(
                    "the folder has a push to the topic {} that has not ended: open it with this topic",
                    push.log
                ))),
                None => Ok((folder, log, pushes)),
            }
        };
        let opened = spawn_blocking(open).await;
        let (folder, log, pushes) = opened.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        let (folder, service) = (Arc::new(folder), Arc::new(service));
        let (requests, received) = mpsc::channel(REQUESTS_MAX);
        let has_rest = !pushes.is_empty() || folder.has_unpushed();
        let pusher = Pusher::new(folder.clone(), service.clone(), log, pushes);
        let run = tokio::spawn(background::run(folder.clone(), service, pusher, has_rest, received));
        let (syncing, closing) = oneshot::channel();
        let sync = tokio::spawn(background::sync(folder.clone(), closing));
        Ok(LocalCounters { folder: Some(folder), requests, tasks: [run, sync], syncing: Some(syncing) })
    }

    fn folder(&self) -> &Arc<Folder> {
        self.folder.as_ref().expect("only close takes it")
    }

    /// A handle of a counter. The first one of a counter writes its name to disk, which takes about as long as an fsync; later ones only
    /// read memory. [`handles`](Self::handles) needs one fsync for many counters.
    ///
    /// # Errors
    /// - [`Invalid`](LocalError::Invalid): the service would refuse the name.
    /// - [`Full`](LocalError::Full): the folder has `slots_max` counters.
    /// - [`Io`](LocalError::Io): the name cannot be written. Other counters are not affected.
    pub fn counter(&self, namespace: &str, counter: &str) -> Result<Handle, LocalError> {
        self.handles(namespace, &[counter]).map(|mut handles| handles.remove(0))
    }

    /// Handles of counters, in their order.
    ///
    /// # Errors
    /// As [`counter`](Self::counter); then no counter is new.
    pub fn handles(&self, namespace: &str, counters: &[&str]) -> Result<Vec<Handle>, LocalError> {
        let slots = self.folder().find_or_give(namespace, counters)?;
        Ok(slots.into_iter().map(|slot| Handle::new(self.folder().clone(), slot)).collect())
    }

    /// Whether the folder has the counter. A counter without a handle leaves the folder when nothing of it is unpushed,
    /// and it was unused for `idle_ms`, or a pull has found that the service has expired or deleted it (L3).
    pub fn has(&self, namespace: &str, counter: &str) -> bool {
        self.folder().slots().get(namespace).is_some_and(|slots| slots.contains_key(counter))
    }

    /// Pushes now what was added before the call, and waits for it.
    ///
    /// # Errors
    /// [`NotPushed`](LocalError::NotPushed): the next push continues.
    pub async fn push(&self) -> Result<(), LocalError> {
        self.request(Request::Push).await.map_err(|what| LocalError::NotPushed { what })
    }

    /// Pulls now, and waits for it.
    ///
    /// # Errors
    /// [`NotPulled`](LocalError::NotPulled): some values are those of before.
    pub async fn pull(&self) -> Result<(), LocalError> {
        self.request(Request::Pull).await.map_err(|what| LocalError::NotPulled { what })
    }

    /// Pushes everything that was added before the call, and stops (L2). Later adds of handles stay in the folder.
    ///
    /// # Errors
    /// [`NotPushed`](LocalError::NotPushed): the rest is in the folder, and is pushed after the next [`open`](Self::open).
    pub async fn close(mut self) -> Result<(), LocalError> {
        // Not aborted: a write to disk under way would keep the folder open.
        self.syncing = None;
        let result = self.request(Request::Close).await;
        // The folder is unlocked when this returns and no handle is left.
        self.folder = None;
        for task in &mut self.tasks {
            drop(task.await);
        }
        result.map_err(|what| LocalError::NotPushed { what })
    }

    async fn request(&self, request: impl FnOnce(background::ReplySender) -> Request) -> Result<(), String> {
        let ended = || "the background task has ended".to_owned();
        let (reply, result) = oneshot::channel();
        self.requests.send(request(reply)).await.map_err(|_| ended())?;
        result.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Adds that need a decision of an operator: the service refused them for ever, or no longer knows whether it counted them.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn unresolved(&self) -> Result<Vec<Unresolved>, LocalError> {
        self.folder().unresolved.read()
    }

    /// What has happened since the folder was opened.
    pub fn stats(&self) -> Stats {
        self.folder().stats()
    }
}

impl Drop for LocalCounters {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl fmt::Debug for LocalCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalCounters").field("folder", &self.folder.as_ref().map(|folder| &folder.path)).finish()
    }
}
