//! The section `[telemetry]`: where a process sends its traces (O2).

use serde::{Deserialize, Serialize};
use tallystone_model::ConfigError;

/// `[telemetry]`: the collector, and which traces it gets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    /// The collector's address for OTLP over gRPC. `None`: no traces.
    pub otlp_endpoint: Option<String>,
    /// Which part of the traces that begin here is recorded, from 0 to 1. The caller decides about the others.
    pub sample_ratio: f64,
}

impl Default for TelemetryConfig {
    fn default() -> TelemetryConfig {
        TelemetryConfig { otlp_endpoint: None, sample_ratio: 1.0 }
    }
}

impl TelemetryConfig {
    /// Checks the address and the ratio.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !(0.0..=1.0).contains(&self.sample_ratio) {
            let why = format!("is {}; must be from 0 to 1", self.sample_ratio);
            return Err(ConfigError::new("telemetry.sample_ratio", why));
        }
        let Some(endpoint) = &self.otlp_endpoint else { return Ok(()) };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o2_only_a_usable_collector_is_accepted() {
        let field = |endpoint: &str, sample_ratio| {
            let config = TelemetryConfig { otlp_endpoint: Some(endpoint.to_owned()), sample_ratio };
            config.check().err().map(|error| error.field)
        };
        assert_eq!(TelemetryConfig::default().check(), Ok(()));
        for good in ["http://127.0.0.1:4317", "https://collector.example", "http://[::1]:4317/"] {
            assert_eq!(field(good, 0.0), None, "{good}");
        }
        for bad in ["", "collector:4317", "grpc://c:1", "http://", "http:///", "http://user:secret@c:1", "http://a b"] {
            assert_eq!(field(bad, 1.0).as_deref(), Some("telemetry.otlp_endpoint"), "{bad}");
        }
        for bad in [-0.1, 1.1, f64::NAN] {
            assert_eq!(field("http://c:1", bad).as_deref(), Some("telemetry.sample_ratio"), "{bad}");
        }
    }
}
