//! Services from containers, by the crate `testcontainers`: `TALLYSTONE_TEST_PROVIDER=containers` chooses them, and
//! `./test --containers` sets it. A service that a test kills with kill -9 is a local process in any case.

use std::time::Duration;

/// The variable that chooses where the services of tests come from: `processes` (the default) or `containers`.
const VARIABLE: &str = "TALLYSTONE_TEST_PROVIDER";
/// What each container of a test bears: `./test --containers` removes those that a killed test has left.
#[cfg(feature = "containers")]
const LABEL: &str = "tallystone-test";
/// How long a service may take until it answers: two JVMs on a machine that does much else.
const ANSWER_WAIT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(100);

/// Whether the services of tests come from containers.
pub fn is_chosen() -> bool {
    match std::env::var(VARIABLE).as_deref() {
        Ok("containers") => true,
        Ok("processes") | Err(_) => false,
        Ok(other) => panic!("{VARIABLE} is `processes` or `containers`, not `{other}`"),
    }
}

/// What a container runs, and where.
pub struct ContainerOptions {
    /// Name and tag.
    pub image: (&'static str, &'static str),
    /// The port of the service in the container.
    pub inner_port: u16,
    /// The same port on 127.0.0.1.
    pub port: u16,
    /// Variables of the service.
    pub environment: Vec<(&'static str, String)>,
    /// The command; empty: that of the image.
    pub command: Vec<&'static str>,
}

/// A container. Dropping it removes it.
pub(crate) struct ServiceContainer {
    #[cfg(feature = "containers")]
    container: testcontainers::ContainerAsync<testcontainers::GenericImage>,
}

impl ServiceContainer {
    /// Starts it, and waits until its service answers.
    pub(crate) async fn start(options: ContainerOptions, mut answers: impl AsyncFnMut() -> bool) -> Self {
        let name = options.image.0;
        let container = ServiceContainer::run(options).await;
        let give_up_at = tokio::time::Instant::now() + ANSWER_WAIT;
        while !answers().await {
            let is_in_time = tokio::time::Instant::now() < give_up_at;
            assert!(is_in_time, "{name} does not answer: {}", container.logs().await);
            tokio::time::sleep(POLL).await;
        }
        container
    }

    #[cfg(feature = "containers")]
    async fn run(options: ContainerOptions) -> Self {
        use testcontainers::bollard::models::PortBinding;
        use testcontainers::core::IntoContainerPort;
        use testcontainers::runners::AsyncRunner;
        use testcontainers::{GenericImage, ImageExt};

        let (name, tag) = options.image;
        let ContainerOptions { inner_port, port, .. } = options;
        let mut request = GenericImage::new(name, tag)
            .with_exposed_port(inner_port.tcp())
            .with_label(LABEL, "true")
            .with_startup_timeout(ANSWER_WAIT)
            // Only this machine can reach it.
            .with_host_config_modifier(move |host| {
                let binding = PortBinding { host_ip: Some("127.0.0.1".to_owned()), host_port: Some(port.to_string()) };
                host.publish_all_ports = Some(false);
                host.port_bindings = Some([(format!("{inner_port}/tcp"), Some(vec![binding]))].into());
            })
            .with_cmd(options.command);
        for (variable, value) in options.environment {
            request = request.with_env_var(variable, value);
        }
        let container = request.start().await.unwrap_or_else(|error| {
            panic!("{name}:{tag}: {error}. ./test --containers installs an engine and sets DOCKER_HOST")
        });
        ServiceContainer { container }
    }

    #[cfg(not(feature = "containers"))]
    async fn run(options: ContainerOptions) -> Self {
        panic!("{VARIABLE}: {} needs the feature `containers` of this crate", options.image.0);
    }

    #[cfg(feature = "containers")]
    async fn logs(&self) -> String {
        let (stdout, stderr) = tokio::join!(self.container.stdout_to_vec(), self.container.stderr_to_vec());
        let logs = [stdout.unwrap_or_default(), stderr.unwrap_or_default()].concat();
        String::from_utf8_lossy(&logs).into_owned()
    }

    #[cfg(not(feature = "containers"))]
    async fn logs(&self) -> String {
        String::new()
    }
}
