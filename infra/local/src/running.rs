//! What every service is once it runs.

use crate::LocalError;
use crate::child::{Child, Launch, Readiness};
use nix::fcntl::Flock;
use std::fmt;
use std::fs::File;
use std::marker::PhantomData;

/// A running service of the kind `S`. Dropping it stops it.
pub struct Running<S> {
    port: u16,
    password: Option<String>,
    child: Child,
    kind: PhantomData<S>,
}

impl<S> Running<S> {
    /// Starts it, see [`Child::start`].
    pub(crate) async fn launch(
        launch: Launch,
        lock: Flock<File>,
        probe: impl AsyncFn(u32) -> Readiness,
    ) -> Result<Self, LocalError> {
        let port = launch.port;
        let child = Child::start(launch, lock, probe).await?;
        Ok(Running { port, password: None, child, kind: PhantomData })
    }

    pub(crate) fn with_password(self, password: Option<String>) -> Self {
        Running { password, ..self }
    }

    pub(crate) fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process id. Of an Elasticsearch: of the process that watches the node; both end together.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Waits until it has ended, for whatever reason.
    pub async fn ended(&self) {
        self.child.ended().await;
    }

    /// Whether it has.
    pub fn has_ended(&self) -> bool {
        self.child.has_ended()
    }

    /// Stops it, everything written, and waits until it has ended.
    pub async fn stop(self) {
        self.child.stop().await;
    }

    /// Kills it with SIGKILL, as a crash would, without waiting: a new start in the same folder waits for its end.
    pub fn kill(&self) {
        self.child.kill();
    }
}

impl<S> fmt::Debug for Running<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("port", &self.port).field("child", &self.child).finish()
    }
}
