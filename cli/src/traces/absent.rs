//! A program that was built without the exporter refuses the address of a collector.

use crate::error::CliError;
use tallystone_assembly::TelemetryConfig;

pub(crate) fn start(config: &TelemetryConfig, _service: &'static str) -> Result<(), CliError> {
    config.check().map_err(CliError::usage)?;
    if config.otlp_endpoint.is_none() {
        return Ok(());
    }
    let why = "this program was built without the feature `otlp`";
    Err(CliError::usage(format!("configuration field telemetry.otlp_endpoint: {why}")))
}

pub(crate) fn end() {}
