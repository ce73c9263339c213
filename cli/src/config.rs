//! Configuration of `server` and `dev`: defaults, then a TOML file, then the environment, then flags. What comes
//! later wins; a key that nobody knows is an error that names it.

use crate::error::CliError;
use clap::Args;
use figment::Figment;
use figment::error::Kind;
use figment::providers::{Env, Format, Serialized, Toml};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tallystone_server::ServerConfig;

/// Each key of the configuration is read from here too: `listen` from `TALLYSTONE_LISTEN`.
const ENVIRONMENT_PREFIX: &str = "TALLYSTONE_";

/// What else is read from the environment, here and by scripts, or set by `work`, and like a key.
const OTHER_VARIABLES: &[&str] =
    &["CONFIG", "COUNTERS", "DATA_DIR", "LOG_FORMAT", "NAMESPACE", "QUEUE", "REDIS_SERVER", "SERVER"];

/// The keys that are flags too.
#[derive(Args, Clone, Debug, Default, Serialize)]
pub(crate) struct ConfigFlags {
    /// Configuration file (TOML); see docs/operations.md for its keys
    #[arg(long, value_name = "FILE", env = "TALLYSTONE_CONFIG")]
    #[serde(skip)]
    pub(crate) config: Option<PathBuf>,

    /// Where to serve gRPC [default: 127.0.0.1:7600; of an indexer, 127.0.0.1:7601]
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) listen: Option<SocketAddr>,

    /// Where to serve Prometheus /metrics [default: nowhere]
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) metrics_listen: Option<SocketAddr>,
}

/// Lays the layers over each other.
pub(crate) fn load<C>(file: Option<&Path>, flags: impl Serialize) -> Result<C, CliError>
where
    C: Default + Serialize + DeserializeOwned,
{
    let defaults = C::default();
    let keys = keys_of(&defaults);
    // One environment may serve a server and an indexer.
    let server_keys = keys_of(&ServerConfig::default());
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let mut layers = Figment::from(Serialized::defaults(defaults));
    if let Some(path) = file {
        // Figment takes a file that is not there for an empty one.
        std::fs::File::open(path)
            .map_err(|error| CliError::usage(format!("cannot read the configuration {}: {error}", path.display())))?;
        layers = layers.merge(Toml::file_exact(path));
    }
    for (name, _) in std::env::vars_os() {
        let key = name.to_str().and_then(|name| name.strip_prefix(ENVIRONMENT_PREFIX)).unwrap_or_default();
        if !OTHER_VARIABLES.contains(&key)
            && let key = key.to_lowercase()
            && !keys.contains(&key.as_str())
            && !server_keys.contains(&key)
            && let Some(near) = nearest(&key, keys.iter().copied())
        {
            let (name, near) = (name.to_string_lossy(), near.to_uppercase());
            return Err(CliError::usage(format!("configuration: unknown key in the environment: {name}"))
                .hint(format!("did you mean {ENVIRONMENT_PREFIX}{near}?")));
        }
    }
    layers = layers.merge(Env::prefixed(ENVIRONMENT_PREFIX).only(&keys));
    layers.merge(Serialized::defaults(flags)).extract().map_err(|error| explain(error, file, &keys))
}

fn keys_of(config: &impl Serialize) -> Vec<String> {
    match serde_json::to_value(config) {
        Ok(serde_json::Value::Object(keys)) => keys.into_iter().map(|(key, _)| key).collect(),
        _ => unreachable!("a configuration is a struct"),
    }
}

fn explain(error: figment::Error, file: Option<&Path>, keys: &[&str]) -> CliError {
    let source = match error.metadata.as_ref().map(|metadata| metadata.name.as_ref()) {
        Some(name) if name.contains("environment") => "the environment".to_owned(),
        Some(name) if name.contains("TOML") => file.map_or_else(String::new, |path| path.display().to_string()),
        _ => "the flags".to_owned(),
    };
    if error.path.is_empty() {
        // The file is no TOML. What has a bar is a picture of the line: not for one line of ours.
        let text = error.kind.to_string();
        let text: Vec<&str> = text.lines().filter(|line| !line.contains('|')).collect();
        return CliError::usage(format!("configuration: {source}: {}", text.join(": ")));
    }
    let key = error.path.join(".");
    if let Kind::UnknownField(name, expected) = &error.kind {
        let failure = CliError::usage(format!("configuration: unknown key `{key}` in {source}"));
        return match nearest(name, expected.iter().copied()) {
            Some(near) => failure.hint(format!("did you mean `{near}`?")),
            None => failure.hint(format!("the keys are {}", expected.join(", "))),
        };
    }
    let failure = CliError::usage(format!("configuration: `{key}` in {source}: {}", error.kind));
    if source == "the environment" && keys.contains(&key.as_str()) {
        return failure.hint(format!("it is set by {ENVIRONMENT_PREFIX}{}", key.to_uppercase()));
    }
    failure
}

/// The name most like the one given, if one is like it at all.
pub(crate) fn nearest<'a>(name: &str, among: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = among.into_iter().map(|candidate| (strsim::jaro_winkler(name, candidate), candidate));
    scored.filter(|(score, _)| *score > 0.8).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Sample {
        listen: SocketAddr,
        sample_turn_ms: u64,
        sample_url: Option<String>,
    }

    impl Default for Sample {
        fn default() -> Self {
            Sample { listen: ([127, 0, 0, 1], 7600).into(), sample_turn_ms: 5, sample_url: None }
        }
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn later_layers_win() {
        let toml = file("listen = '127.0.0.1:1'\nsample_turn_ms = 7");
        let flags = ConfigFlags { listen: Some(([127, 0, 0, 1], 2).into()), ..ConfigFlags::default() };
        let sample: Sample = load(Some(toml.path()), flags).unwrap();
        assert_eq!((sample.listen.port(), sample.sample_turn_ms, sample.sample_url), (2, 7, None));
    }

    #[test]
    #[expect(clippy::result_large_err, reason = "figment's closure, figment's error")]
    fn the_environment_comes_between_file_and_flags() {
        figment::Jail::expect_with(|jail| {
            jail.create_file("t.toml", "sample_turn_ms = 7\nsample_url = 'file'")?;
            jail.set_env("TALLYSTONE_SAMPLE_TURN_MS", "9");
            jail.set_env("TALLYSTONE_SERVER", "not a key of this configuration");
            let sample: Sample = load(Some(Path::new("t.toml")), ConfigFlags::default()).unwrap();
            assert_eq!((sample.sample_turn_ms, sample.sample_url.as_deref()), (9, Some("file")));
            jail.set_env("TALLYSTONE_SAMPLE_TURN_MS", "soon");
            let error = load::<Sample>(None, ConfigFlags::default()).unwrap_err();
            assert!(error.to_string().contains("`sample_turn_ms` in the environment"), "{error}");
            Ok(())
        });
    }

    #[test]
    fn wrong_keys_and_values_are_named() {
        let refused = |text: &str| load::<Sample>(Some(file(text).path()), ConfigFlags::default()).unwrap_err();
        let error = refused("sample_turn = 1").to_string();
        assert!(error.contains("unknown key `sample_turn`"), "{error}");
        assert!(refused("sample_turn_ms = 'x'").to_string().contains("`sample_turn_ms`"));
        let error = refused("listen = 'x\n").to_string();
        assert!(error.contains("line 1") && !error.contains('|'), "{error}");
        assert!(load::<Sample>(Some(Path::new("/no/such/file")), ConfigFlags::default()).is_err());
    }

    #[test]
    fn near_names_are_found() {
        assert_eq!(nearest("fligths", ["flights", "orders"]), Some("flights"));
        assert_eq!(nearest("xyz", ["flights", "orders"]), None);
    }
}
