//! The flags that set keys of the configuration, shared by the verbs that read it.

use crate::global::{Credentials, SERVER_VARIABLE, Telemetry};
use clap::{Arg, Args};
use figment::value::Value;
use serde::Serialize;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Values that the command line gives to keys.
#[derive(Debug, Default)]
pub(crate) struct Overrides {
    pub(super) flags: Vec<(&'static str, Value)>,
    /// From the variables of options that every verb knows: weaker than the variable of the key.
    pub(super) variables: Vec<(&'static str, Value)>,
}

impl Overrides {
    /// Sets a key such as `redis.url`, if the flag was given.
    pub(crate) fn set(mut self, key: &'static str, value: Option<impl Serialize>) -> Overrides {
        if let Some(value) = value {
            self.flags.push((key, Value::serialize(value).expect("a flag is plain data")));
        }
        self
    }

    /// Sets the keys of `[client]`.
    pub(crate) fn set_credentials(self, credentials: &Credentials) -> Overrides {
        self.set("client.ca_file", credentials.ca.as_ref())
            .set("client.cert_file", credentials.cert.as_ref())
            .set("client.key_file", credentials.key.as_ref())
            .set("client.token_file", credentials.token_file.as_ref())
    }

    /// Sets the keys of `[telemetry]`.
    pub(crate) fn set_telemetry(self, telemetry: &Telemetry) -> Overrides {
        self.set("telemetry.otlp_endpoint", telemetry.otlp_endpoint.as_ref())
            .set("telemetry.otlp_headers_file", telemetry.otlp_headers_file.as_ref())
            .set("telemetry.sample_ratio", telemetry.sample_ratio)
    }

    /// Sets the key of the queue's server: the flag `--server`, or else its variable.
    pub(crate) fn set_server(mut self, key: &'static str, flag: Option<String>) -> Overrides {
        self.variables.extend(std::env::var(SERVER_VARIABLE).ok().map(|server| (key, Value::from(server))));
        self.set(key, flag)
    }
}

/// TLS, identities and the audit log of all ports of a process.
#[derive(Args, Debug)]
pub(crate) struct PortFlags {
    /// The certificate of this server, PEM [default: none, the ports serve plain text]
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,

    /// The private key of the certificate, PEM
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,

    /// The CAs of the certificates of clients, PEM [default: clients need no certificate]
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,

    /// The file of principals, with their tokens and rights [default: every caller may do everything]
    #[arg(long, value_name = "FILE")]
    principals: Option<PathBuf>,

    /// The audit log: which callers changed what, and which were refused; - is standard error [default: none]
    #[arg(long, value_name = "FILE")]
    audit_file: Option<PathBuf>,

    /// Serve plain text on an address that other machines can reach
    #[arg(long)]
    insecure: bool,
}

impl PortFlags {
    /// Sets the keys of `[tls]`, `[auth]` and `[audit]`.
    pub(crate) fn set(self, overrides: Overrides) -> Overrides {
        overrides
            .set("tls.cert_file", self.tls_cert)
            .set("tls.key_file", self.tls_key)
            .set("tls.client_ca_file", self.tls_client_ca)
            .set("auth.principals_file", self.principals)
            .set("audit.file", self.audit_file)
            .set("tls.insecure", self.insecure.then_some(true))
    }
}

/// The configuration file.
#[derive(Args, Debug)]
pub(crate) struct ConfigFile {
    /// Configuration file (TOML); docs/operations/configuration.md lists its keys
    #[arg(long = "config", value_name = "FILE", env = "TALLYSTONE_CONFIG")]
    pub(crate) path: Option<PathBuf>,
}

/// The metrics port.
#[derive(Args, Debug)]
pub(crate) struct MetricsFlag {
    /// Where to serve Prometheus /metrics [default: not served]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics_listen: Option<SocketAddr>,
}

/// Which Redis, and how durable it must be.
#[derive(Args, Debug)]
pub(crate) struct RedisFlags {
    /// Address of the Redis [default: redis://127.0.0.1:6379]
    #[arg(long, value_name = "URL")]
    redis_url: Option<String>,

    /// Accept a Redis that may lose acknowledged writes
    #[arg(long)]
    allow_volatile: bool,

    /// Number of replicas that must have a write before it is acknowledged [default: 0]
    #[arg(long, value_name = "N")]
    replicas_min: Option<u32>,
}

/// The help of `--redis-url` in a verb that uses one kind of data: `what` the Redis has.
pub(crate) fn redis_with(what: &str) -> impl FnOnce(Arg) -> Arg + use<> {
    let help = format!("Address of the Redis that has {what} [default: redis://127.0.0.1:6379]");
    move |flag| flag.help(help)
}

impl RedisFlags {
    /// Sets the keys of `[redis]`.
    pub(crate) fn set(self, overrides: Overrides) -> Overrides {
        overrides
            .set("redis.url", self.redis_url)
            .set("redis.allow_volatile", self.allow_volatile.then_some(true))
            .set("redis.replicas_min", self.replicas_min)
    }
}

/// The services of history outside this process.
#[derive(Args, Debug)]
pub(crate) struct HistoryServices {
    /// Kafka brokers for the events: HOST:PORT, separated by commas
    #[arg(long, value_name = "BROKERS")]
    kafka_brokers: Option<String>,

    /// Address of the Elasticsearch or OpenSearch that has the history
    #[arg(long, value_name = "URL")]
    elasticsearch_url: Option<String>,
}

impl HistoryServices {
    /// Sets the keys of `[kafka]` and `[elasticsearch]`.
    pub(crate) fn set(self, overrides: Overrides) -> Overrides {
        overrides.set("kafka.brokers", self.kafka_brokers).set("elasticsearch.url", self.elasticsearch_url)
    }
}
