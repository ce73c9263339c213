//! The exporter of this process over OTLP, if the configuration names a collector.

use crate::error::CliError;
use opentelemetry::global;
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, SpanData, SpanExporter as Export};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tallystone_assembly::TelemetryConfig;
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue};
use tonic::{Request, Status};

/// One attempt to send spans, and at the end of the process all of them.
const SEND_FOR: Duration = Duration::from_secs(3);
/// How often the log says that the collector takes no spans.
const REPORT_EVERY: Duration = Duration::from_secs(60);

static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();

/// Starts to record and send spans under this name of a service, if a collector is configured. Call it within the runtime.
pub(crate) fn start(config: &TelemetryConfig, service: &'static str) -> Result<(), CliError> {
    config.check().map_err(CliError::usage)?;
    let Some(endpoint) = &config.otlp_endpoint else { return Ok(()) };
    if let Some(file) = &config.otlp_headers_file {
        let fault = |why| CliError::usage(format!("configuration field telemetry.otlp_headers_file: {why}"));
        read_headers(file).map_err(fault)?;
    }
    let exporter = exporter(endpoint, config.otlp_headers_file.clone())
        .map_err(|error| CliError::usage(format!("configuration field telemetry.otlp_endpoint: {error}")))?;
    // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES go before the name.
    let resource = Resource::builder();
    let resource = match std::env::var_os("OTEL_SERVICE_NAME") {
        Some(_) => resource,
        None => resource.with_service_name(service),
    };
    let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(config.sample_ratio)));
    let provider = SdkTracerProvider::builder()
        .with_resource(resource.build())
        .with_sampler(sampler)
        .with_batch_exporter(Reporting { exporter, reported_at: Mutex::default() })
        .build();
    global::set_tracer_provider(provider.clone());
    tallystone_serving::start_spans();
    // The runtime starts one verb.
    let _ = PROVIDER.set(provider);
    Ok(())
}

fn exporter(endpoint: &str, headers_file: Option<PathBuf>) -> Result<SpanExporter, ExporterBuildError> {
    let builder = SpanExporter::builder().with_tonic().with_endpoint(endpoint).with_timeout(SEND_FOR);
    let Some(file) = headers_file else { return builder.build() };
    // A batch every few seconds: a replaced token is sent with the next one.
    let with_headers = move |mut request: Request<()>| {
        for (name, value) in read_headers(&file).map_err(Status::unauthenticated)? {
            request.metadata_mut().insert(name, value);
        }
        Ok(request)
    };
    builder.with_interceptor(with_headers).build()
}

/// The headers of a file. Errors do not show its text, which has secrets.
fn read_headers(file: &Path) -> Result<Vec<(AsciiMetadataKey, AsciiMetadataValue)>, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let header = |(number, line): (usize, &str)| {
        let header = line.split_once(':').and_then(|(name, value)| {
            let name = AsciiMetadataKey::from_bytes(name.trim().to_ascii_lowercase().as_bytes()).ok()?;
            let mut value: AsciiMetadataValue = value.trim().parse().ok()?;
            value.set_sensitive(true);
            Some((name, value))
        });
        header.ok_or_else(|| format!("{}: line {} is not NAME: VALUE", file.display(), number + 1))
    };
    lines.map(header).collect()
}

/// Sends the spans that are left. A collector that does not answer delays the end of the process by a few seconds at most.
pub(crate) fn end() {
    if let Some(provider) = PROVIDER.get() {
        // Failures are reported where they happen.
        let _ = provider.shutdown_with_timeout(SEND_FOR);
    }
}

/// An exporter that reports its failures in the log, at a bounded pace. The spans of a failed batch are dropped.
#[derive(Debug)]
struct Reporting {
    exporter: SpanExporter,
    reported_at: Mutex<Option<Instant>>,
}

impl Export for Reporting {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let sent = self.exporter.export(batch).await;
        if let Err(error) = &sent {
            let mut reported_at = self.reported_at.lock().unwrap_or_else(PoisonError::into_inner);
            if reported_at.is_none_or(|at| at.elapsed() >= REPORT_EVERY) {
                *reported_at = Some(Instant::now());
                tracing::warn!(%error, spans, "the collector took no spans; they are dropped");
            }
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
