//! The section `[telemetry]`: where a process sends its traces (O2).

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use tallystone_model::ConfigError;

/// `[telemetry]`: the collector, and which traces it gets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    /// The collector's address for OTLP over gRPC. `None`: no traces.
    pub otlp_endpoint: Option<String>,
    /// The file with the headers to send to the collector, such as a token: `NAME: VALUE`, one on each line. It is read again for each
    /// batch of spans.
    pub otlp_headers_file: Option<PathBuf>,
    /// Which part of the traces that begin here is recorded, from 0 to 1. The caller decides about the others.
    pub sample_ratio: f64,
}

impl Default for TelemetryConfig {
    fn default() -> TelemetryConfig {
        TelemetryConfig { otlp_endpoint: None, otlp_headers_file: None, sample_ratio: 1.0 }
    }
}

impl TelemetryConfig {
    /// Checks the address and the ratio.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !(0.0..=1.0).contains(&self.sample_ratio) {
            let why = format!("is {}; must be from 0 to 1", self.sample_ratio);
            return Err(ConfigError::new("telemetry.sample_ratio", why));
        }
        let Some(endpoint) = &self.otlp_endpoint else {
            let why = "is set, but telemetry.otlp_endpoint is not; set both";
            let is_alone = self.otlp_headers_file.is_some();
            return if is_alone { Err(ConfigError::new("telemetry.otlp_headers_file", why)) } else { Ok(()) };
        };
        let bad = |why: &str| Err(ConfigError::new("telemetry.otlp_endpoint", why));
        let schemes = ["http://", "https://"];
        match schemes.iter().find_map(|scheme| endpoint.strip_prefix(scheme)) {
            None => bad("must begin with http:// or https://"),
            // Errors and logs would show it.
            Some(rest) if rest.contains('@') => bad("must have no user and no password"),
            Some(rest) if rest.trim_end_matches('/').is_empty() || rest.contains(char::is_whitespace) => {
                bad("must be http://HOST:PORT or https://HOST:PORT")
            }
            Some(_) => Ok(()),
        }
    }
}
