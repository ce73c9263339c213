//! The host: one port with gRPC and HTTP services, their background tasks, and the order in which all of it stops.

use crate::ServeError;
use crate::background::{BackgroundTask, BackgroundTasks};
use crate::bounds::{Limits, bound_streams};
use crate::collectors::Collectors;
use crate::direct::{Direct, DirectCall};
use crate::health::ProcessHealth;
use crate::http::{GuardLayer, HostNames, health_paths, unknown_path};
use crate::metrics::{Buckets, listen_metrics};
use crate::ports::Ports;
use crate::transport::transport;
use crate::unread::refuse_in_full;
use axum::Router;
use axum::extract::Request;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use futures::future::BoxFuture;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;
use tallystone_proto::FILE_DESCRIPTOR_SET;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::server::{HealthReporter, health_reporter};
use tower::Layer;
use tower::util::MapResponseLayer;

/// How long each step of a stop may take: open connections, then what must drain, then background tasks.
const STOP_WAIT: Duration = Duration::from_secs(5);
const WELL_FORMED: &str = "descriptor sets made by the build are well-formed";

/// One port and what is served on it. Services are added first, then [`Host::serve`] runs it.
///
/// Every host speaks gRPC and HTTP/1, answers `grpc.health.v1`, `GET /health`, `/livez`, `/readyz` and server
/// reflection, and has limits.
pub struct Host {
    router: Router,
    direct: Vec<DirectCall>,
    health_service: Router,
    ports: Ports,
    names: HostNames,
    /// Of the metrics page, if there is one.
    collectors: Option<Collectors>,
    health: HealthReporter,
    /// The names of the services, for their health.
    services: Vec<&'static str>,
    tasks: Vec<BackgroundTask>,
    drains: Vec<(&'static str, BoxFuture<'static, ()>)>,
    stopping: CancellationToken,
    _stop_when_dropped: DropGuard,
}

impl Default for Host {
    fn default() -> Self {
        Host::new()
    }
}

impl Host {
    /// A host without services and without a metrics port.
    pub fn new() -> Host {
        let (health, health_service) = health_reporter();
        let stopping = CancellationToken::new();
        let _stop_when_dropped = stopping.clone().drop_guard();
        let health_service = Routes::from(Router::new()).add_service(health_service).into_axum_router();
        let (ports, names) = (Ports::default(), HostNames::default());
        Host {
            router: Router::new(),
            direct: Vec::new(),
            health_service,
            ports,
            names,
            collectors: None,
            health,
            services: vec![""],
            tasks: Vec::new(),
            drains: Vec::new(),
            stopping,
            _stop_when_dropped,
        }
    }

    /// The limits of this host, its TLS and the identities of its callers. Without them it has the default limits, and
    /// serves plain text to any caller.
    pub fn ports(mut self, ports: &Ports) -> Host {
        self.ports = ports.clone();
        self
    }

    /// What the callers of this host may take.
    pub fn bounds(&self) -> Limits {
        self.ports.limits
    }

    /// A host that also serves `/metrics`, if there is an address, both as these ports. It comes before all
    /// services: metric handles that are made before the recorder is installed do nothing.
    pub fn with_metrics(address: Option<SocketAddr>, buckets: &[Buckets], ports: &Ports) -> Result<Host, ServeError> {
        let mut host = Host::new().ports(ports);
        if let Some(address) = address {
            let health = host.process_health();
            let collectors = host.collectors.insert(Collectors::default());
            let listener = listen_metrics(address, buckets, ports, collectors, &health)?;
            host.spawn(listener);
        }
        Ok(host)
    }

    /// Whether there is a metrics page: without one, nothing need be read for it.
    pub fn has_metrics(&self) -> bool {
        self.collectors.is_some()
    }

    /// Calls this for every metrics page. It appends series in Prometheus's text format, whose names no recorded metric has.
    pub fn collect(&self, series: impl Fn(&mut String) + Send + Sync + 'static) {
        if let Some(collectors) = &self.collectors {
            collectors.add(series);
        }
    }

    /// Cancelled as soon as the host stops: what waits ends its wait, and new work is refused.
    pub fn stopping(&self) -> CancellationToken {
        self.stopping.clone()
    }

    /// Where services report their health. The host as a whole reports SERVING from its start.
    pub fn health(&self) -> HealthReporter {
        self.health.clone()
    }

    fn process_health(&self) -> ProcessHealth {
        ProcessHealth { reporter: self.health.clone(), stopping: self.stopping.clone() }
    }

    /// Adds a gRPC service.
    pub fn service<S>(mut self, service: S) -> Host
    where
        S: Service<axum::http::Request<Body>, Error = Infallible> + NamedService + Clone + Send + Sync + 'static,
        S::Response: IntoResponse,
        S::Future: Send + 'static,
    {
        self.services.push(S::NAME);
        self.router = Routes::from(self.router).add_service(service).into_axum_router();
        self
    }

    /// Adds HTTP paths, for programs and for pages of this host ([`Host::http_hosts`]). Their router has no fallback:
    /// the host answers all unknown paths alike.
    pub fn http(mut self, paths: Router) -> Host {
        self.router = self.router.merge(paths);
        self
    }

    /// Answers the calls of this method and path without a search in the paths: for calls that come in large numbers. Everything
    /// else holds for them, too. [`Host::http`] has the other methods of the path.
    pub fn direct<F: Future<Output = Response> + Send + 'static>(
        mut self,
        method: Method,
        path: &'static str,
        answer: impl Fn(Request) -> F + Send + Sync + 'static,
    ) -> Host {
        self.direct.push(DirectCall::new(method, path, answer));
        self
    }

    /// The names under which HTTP is served, in addition to IP addresses and loopback names. gRPC is served under any
    /// name.
    pub fn http_hosts(mut self, names: &[String]) -> Host {
        self.names = HostNames::new(names);
        self
    }

    /// Adds a background task. The host starts it, stops it, and fails when it fails.
    pub fn task(mut self, task: BackgroundTask) -> Host {
        self.tasks.push(task);
        self
    }

    /// Runs a small future on the runtime until the host stops, such as a health reporter.
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(self.stopping.clone().run_until_cancelled_owned(future));
    }

    /// Waits for this, at most 5 s, after the port is closed; `what` names it in the log if it takes longer.
    pub fn drain(mut self, what: &'static str, drained: impl Future<Output = ()> + Send + 'static) -> Host {
        self.drains.push((what, Box::pin(drained)));
        self
    }

    /// Serves on a bound listener until `shutdown` ends, then stops in order: health becomes NOT_SERVING; waiting calls
    /// end and the port closes; what must drain drains; background tasks end.
    ///
    /// # Errors
    /// [`ServeError::BackgroundTask`] as soon as a task fails; [`ServeError::Grpc`] when the transport fails.
    pub async fn serve(
        self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), ServeError> {
        // One instance of this function for all callers: its future is large, and slow to compile.
        self.serve_boxed(listener, Box::pin(shutdown)).await
    }

    fn serve_boxed<'a>(
        self,
        listener: TcpListener,
        shutdown: BoxFuture<'a, ()>,
    ) -> BoxFuture<'a, Result<(), ServeError>> {
        Box::pin(self.run(listener, shutdown))
    }

    async fn run(self, listener: TcpListener, shutdown: BoxFuture<'_, ()>) -> Result<(), ServeError> {
        let process_health = self.process_health();
        let Host {
            router,
            direct,
            health_service,
            ports,
            names,
            tasks,
            drains,
            stopping,
            _stop_when_dropped,
            health,
            services,
            ..
        } = self;
        let streams_max = ports.limits.health_streams_max;
        let mut tasks = BackgroundTasks::start(tasks, &stopping);
        let address = listener.local_addr().map_err(ServeError::Listener)?;
        let router = router
            .merge(bound_streams(health_service, "health", streams_max))
            .merge(bound_streams(reflection(), "reflection", streams_max))
            .merge(health_paths(process_health))
            .fallback(unknown_path);
        let layers = (GuardLayer(names), MapResponseLayer::new(refuse_in_full::<axum::body::Body>));
        let service = layers.layer(Direct::new(direct, router));
        tracing::info!(%address, "serving");
        let mut server = std::pin::pin!(transport(listener, service, ports, stopping.clone()));
        tokio::select! {
            served = &mut server => served?,
            why = tasks.failed() => return Err(ServeError::BackgroundTask(why)),
            () = shutdown => {
                tracing::info!(%address, "stopping");
                // A client that watches the health sends its next call to another server.
                for service in services {
                    health.set_service_status(service, ServingStatus::NotServing).await;
                }
                stopping.cancel();
                // A client that keeps its connection open does not keep the host.
                if let Ok(served) = tokio::time::timeout(STOP_WAIT, server).await {
                    served?;
                }
            }
        }
        stopping.cancel();
        for (what, drained) in drains {
            if tokio::time::timeout(STOP_WAIT, drained).await.is_err() {
                tracing::warn!("stopped before {what} had drained");
            }
        }
        if tokio::time::timeout(STOP_WAIT, tasks.ended()).await.is_err() {
            tracing::warn!("stopped before all background tasks had ended");
        }
        Ok(())
    }
}

/// Server reflection in both versions: older clients know v1alpha only.
fn reflection() -> Router {
    let builder = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            // The details of errors, which no message names: clients decode them by reflection.
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
    };
    Routes::from(Router::new())
        .add_service(builder().build_v1().expect(WELL_FORMED))
        .add_service(builder().build_v1alpha().expect(WELL_FORMED))
        .into_axum_router()
}
