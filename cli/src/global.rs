//! The options that every verb knows. They are not in `args.rs`, which uses every verb, so that a verb can use them.

use crate::logs::LogFormat;
use clap::Args;
use std::path::PathBuf;
use tallystone_assembly::{ClientConfig, TelemetryConfig};

/// Options of every command.
#[derive(Args, Debug)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Global {
    /// Address of the queue server, for commands that call it [env: TALLYSTONE_SERVER] [default: http://127.0.0.1:7600]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) server: Option<String>,

    /// Print JSON: one object, or for a list one object per line
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// What to log on stderr, such as debug or tallystone_server=trace [default: info for server, counters,
    /// rollup-worker, views, ingest and indexer, else warn]
    #[arg(long, global = true, env = "RUST_LOG", value_name = "FILTER", hide_env_values = true)]
    pub(crate) log: Option<String>,

    /// The format of log lines
    #[arg(long, global = true, env = "TALLYSTONE_LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,

    #[command(flatten)]
    pub(crate) credentials: Credentials,

    #[command(flatten)]
    pub(crate) telemetry: Telemetry,
}

/// Which servers a command trusts, and how it proves who it is. The variables are those of `[client]`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Credentials {
    /// The CAs of https:// servers, PEM [default: those that the system trusts]
    #[arg(long, global = true, env = "TALLYSTONE_CLIENT_CA_FILE", value_name = "FILE", hide_env_values = true)]
    pub(crate) ca: Option<PathBuf>,

    /// The certificate to show to https:// servers, PEM
    #[arg(long, global = true, env = "TALLYSTONE_CLIENT_CERT_FILE", value_name = "FILE", hide_env_values = true)]
    pub(crate) cert: Option<PathBuf>,

    /// The private key of the certificate, PEM
    #[arg(long, global = true, env = "TALLYSTONE_CLIENT_KEY_FILE", value_name = "FILE", hide_env_values = true)]
    pub(crate) key: Option<PathBuf>,

    /// The file with the token to send; `tallystone token new` makes one
    #[arg(long, global = true, env = "TALLYSTONE_CLIENT_TOKEN_FILE", value_name = "FILE", hide_env_values = true)]
    pub(crate) token_file: Option<PathBuf>,
}

impl Credentials {
    /// The same as a section of the configuration.
    pub(crate) fn config(&self) -> ClientConfig {
        let Credentials { ca, cert, key, token_file } = self.clone();
        ClientConfig { ca_file: ca, cert_file: cert, key_file: key, token_file }
    }
}

/// Where a command sends its traces. The variables are those of `[telemetry]`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Telemetry {
    /// The collector that gets traces, OTLP over gRPC, such as http://127.0.0.1:4317 [default: none, no traces]
    #[arg(long, global = true, env = "TALLYSTONE_TELEMETRY_OTLP_ENDPOINT", value_name = "URL", hide_env_values = true)]
    pub(crate) otlp_endpoint: Option<String>,

    /// The file with headers for the collector, such as a token: NAME: VALUE, one on each line
    #[arg(
        long,
        global = true,
        env = "TALLYSTONE_TELEMETRY_OTLP_HEADERS_FILE",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub(crate) otlp_headers_file: Option<PathBuf>,

    /// Fraction of the traces started here that is recorded, from 0 to 1 [default: 1]
    #[arg(
        long,
        global = true,
        env = "TALLYSTONE_TELEMETRY_SAMPLE_RATIO",
        value_name = "RATIO",
        hide_env_values = true
    )]
    pub(crate) sample_ratio: Option<f64>,
}

impl Telemetry {
    /// The same as a section of the configuration.
    pub(crate) fn config(&self) -> TelemetryConfig {
        let default = TelemetryConfig::default();
        let sample_ratio = self.sample_ratio.unwrap_or(default.sample_ratio);
        let (otlp_endpoint, otlp_headers_file) = (self.otlp_endpoint.clone(), self.otlp_headers_file.clone());
        TelemetryConfig { otlp_endpoint, otlp_headers_file, sample_ratio }
    }
}

/// The environment variable of `--server`. Clap does not read it, because it would be as strong as the flag: for the verbs
/// that have a configuration it is weaker than the variable of a key.
pub(crate) const SERVER_VARIABLE: &str = "TALLYSTONE_SERVER";

impl Global {
    /// The server that a flag or the environment names.
    pub(crate) fn named_server(&self) -> Option<String> {
        self.server.clone().or_else(|| std::env::var(SERVER_VARIABLE).ok())
    }
}
