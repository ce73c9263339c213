//! The configuration of all processes: defaults, then a TOML file, then the environment, then flags. What comes later
//! wins. One file may hold the sections of every verb; a section or key that does not exist is an error that names it,
//! whichever verb reads the file.

mod environment;
mod flags;
mod renamed;
mod sections;
mod values;

pub(crate) use flags::{ConfigFile, HistoryServices, MetricsFlag, Overrides, PortFlags, RedisFlags, redis_with};
pub(crate) use renamed::renamed_argument;

use crate::error::CliError;
use crate::nearest::nearest;
use figment::Figment;
use figment::error::Kind;
use figment::providers::{Format, Serialized, Toml};
use figment::value::{Dict, Value};
use sections::{Sections, sections};
use std::path::Path;
use tallystone_assembly::Config;
use values::wrong_value;

/// Reads the configuration of a verb.
pub(crate) fn load(file: Option<&Path>, overrides: Overrides) -> Result<Config, CliError> {
    let sections = sections();
    let mut layers = Figment::from(Serialized::defaults(Config::default()));
    if let Some(path) = file {
        // Figment reads a missing file as an empty one.
        std::fs::File::open(path)
            .map_err(|error| CliError::usage(format!("cannot read the configuration {}: {error}", path.display())))?;
        let toml = || Toml::file_exact(path);
        let table: Dict = Figment::from(toml()).extract().map_err(|error| explain(error, file))?;
        check_names(&table, &sections, path)?;
        layers = layers.merge(toml());
    }
    environment::check_names(&sections)?;
    for (key, value) in overrides.variables {
        layers = layers.merge(Serialized::default(key, value));
    }
    layers = layers.merge(environment::layer(&sections));
    for (key, value) in overrides.flags {
        layers = layers.merge(Serialized::default(key, value));
    }
    layers.extract().map_err(|error| explain(error, file))
}

/// Refuses variables of the environment that no verb knows: a misspelled name of a token's file would go unnoticed. [`load`]
/// checks them, too.
pub(crate) fn check_variables() -> Result<(), CliError> {
    environment::check_names(&sections())
}

/// Refuses names in a file that no verb knows.
fn check_names(table: &Dict, sections: &Sections, path: &Path) -> Result<(), CliError> {
    let path = path.display();
    for (name, value) in table {
        match (sections.get(name), value) {
            (Some(None), _) => {}
            (Some(Some(keys)), Value::Dict(_, given)) => {
                if let Some(key) = given.keys().find(|key| !keys.contains(key)) {
                    return Err(unknown(format!("unknown key `{name}.{key}` in {path}"), key, name, keys));
                }
            }
            _ => {
                if let Some(new) = renamed::renamed_key(name) {
                    let error = format!("configuration: the key `{name}` in {path} is now {new}");
                    return Err(CliError::usage(error)
                        .hint("every key belongs to a section, see docs/operations/configuration.md"));
                }
                let is_section = matches!(value, Value::Dict(..));
                if let Some(new) = renamed::renamed_section(name).filter(|_| is_section) {
                    let error = format!("configuration: the section `[{name}]` in {path} is now `[{new}]`");
                    return Err(CliError::usage(error));
                }
                let all: Vec<String> = sections.keys().cloned().collect();
                let what = if is_section { "section" } else { "key" };
                return Err(unknown(format!("unknown {what} `{name}` in {path}"), name, "", &all));
            }
        }
    }
    Ok(())
}

/// An unknown name, with the most similar one of its section (`""`: of the file) as the hint.
fn unknown(error: String, name: &str, section: &str, known: &[String]) -> CliError {
    let error = CliError::usage(format!("configuration: {error}"));
    let dotted = |key: &str| if section.is_empty() { format!("[{key}]") } else { format!("{section}.{key}") };
    match nearest(name, known.iter().map(String::as_str)) {
        Some(near) => error.hint(format!("did you mean `{}`?", dotted(near))),
        None if section.is_empty() => error.hint(format!("the sections are {}", known.join(", "))),
        None => error.hint(format!("the keys of [{section}] are {}", known.join(", "))),
    }
}

/// A value that cannot be read.
fn explain(error: figment::Error, file: Option<&Path>) -> CliError {
    let source = match error.metadata.as_ref().map(|metadata| metadata.name.as_ref()) {
        Some(name) if name.contains("environment") => "the environment".to_owned(),
        Some(name) if name.contains("TOML") => file.map_or_else(String::new, |path| path.display().to_string()),
        _ => "the flags".to_owned(),
    };
    if error.path.is_empty() {
        // The file is not TOML. Lines with a bar are a drawing of the place; our errors are one line.
        let text = error.kind.to_string();
        let text: Vec<&str> = text.lines().filter(|line| !line.contains('|')).collect();
        return CliError::usage(format!("configuration: {source}: {}", text.join(": ")));
    }
    let key = error.path.join(".");
    if let Kind::UnknownField(name, expected) = &error.kind {
        let error = CliError::usage(format!("configuration: unknown key `{key}` in {source}"));
        return match nearest(name, expected.iter().copied()) {
            Some(near) => error.hint(format!("did you mean `{near}`?")),
            None => error.hint(format!("the keys are {}", expected.join(", "))),
        };
    }
    let shown = CliError::usage(format!("configuration: `{key}` in {source} {}", wrong_value(&key, &error.kind)));
    match source.as_str() {
        "the environment" => shown.hint(format!("it is set by {}", environment::variable(&key))),
        _ => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    /// Runs a test while no other one sets variables of the environment, which all tests share.
    #[expect(clippy::result_large_err, reason = "figment's closure, figment's error")]
    fn undisturbed(test: impl FnOnce()) {
        figment::Jail::expect_with(|_| {
            test();
            Ok(())
        });
    }

    fn refused(text: &str) -> String {
        let error = load(Some(file(text).path()), Overrides::default()).unwrap_err();
        serde_json::to_string(&error).unwrap()
    }

    #[test]
    fn later_layers_win_and_one_file_serves_every_verb() {
        undisturbed(|| {
            let toml = file(
                "[server]\nlisten = '127.0.0.1:1'\nsweeper_leader_lease_ms = 7\n[counters]\nlisten = '127.0.0.1:3'\n\
             [indexer]\ngroup = 'g'\n[rollup_worker]\nqueue_url = 'http://q:7600'\n\
             [[queue_templates]]\nprefix = 'a'\nconfig = { lease_ms = 5000 }",
            );
            let flags = Overrides::default().set("server.listen", Some("127.0.0.1:2"));
            let config = load(Some(toml.path()), flags).unwrap();
            assert_eq!((config.server.listen.port(), config.counters.listen.port()), (2, 3));
            assert_eq!((config.server.sweeper_leader_lease_ms, config.indexer.group.as_str()), (7, "g"));
            assert_eq!(config.queue_templates.0[0].config.lease_ms, 5_000);
        });
    }

    #[test]
    #[expect(clippy::result_large_err, reason = "figment's closure, figment's error")]
    fn the_environment_comes_between_file_and_flags() {
        figment::Jail::expect_with(|jail| {
            jail.create_file("t.toml", "[outbox]\nrelay_leader_lease_ms = 7\n[history]\nfile = 'h'")?;
            jail.set_env("TALLYSTONE_OUTBOX_RELAY_LEADER_LEASE_MS", "9");
            jail.set_env("TALLYSTONE_ROLLUP_WORKER_QUEUE_URL", "http://q:1");
            jail.set_env("TALLYSTONE_KAFKA_PROPERTIES", "[\"linger.ms=5\"]");
            jail.set_env("TALLYSTONE_SERVER", "s:1");
            // Not keys: what Kubernetes sets for a service named tallystone-server.
            jail.set_env("TALLYSTONE_SERVER_SERVICE_HOST", "10.0.0.1");
            jail.set_env("TALLYSTONE_SERVER_SERVICE_PORT_GRPC", "7600");
            jail.set_env("TALLYSTONE_SERVER_PORT", "tcp://10.0.0.1:7600");
            jail.set_env("TALLYSTONE_SERVER_PORT_7600_TCP_ADDR", "10.0.0.1");
            // TALLYSTONE_SERVER is weaker than the variable of a key.
            let server =
                Overrides::default().set_server("rollup_worker.queue_url", None).set_server("counters.queue_url", None);
            let config = load(Some(Path::new("t.toml")), server).unwrap();
            assert_eq!(config.outbox.relay_leader_lease_ms, 9);
            assert_eq!(config.history.file.as_deref(), Some(Path::new("h")));
            assert_eq!(config.rollup_worker.queue_url, "http://q:1");
            assert_eq!(config.counters.queue_url, "s:1");
            assert_eq!(config.kafka.properties, ["linger.ms=5"]);
            jail.set_env("TALLYSTONE_OUTBOX_RELAY_LEADER_LEASE_MS", "soon");
            let error = serde_json::to_string(&load(None, Overrides::default()).unwrap_err()).unwrap();
            assert!(error.contains("`outbox.relay_leader_lease_ms` in the environment"), "{error}");
            assert!(error.contains("TALLYSTONE_OUTBOX_RELAY_LEADER_LEASE_MS"), "{error}");
            Ok(())
        });
    }

    #[test]
    #[expect(clippy::result_large_err, reason = "figment's closure, figment's error")]
    fn unknown_variables_are_refused() {
        for (variable, words) in [
            ("TALLYSTONE_COUNTERS_LISTTEN", "TALLYSTONE_COUNTERS_LISTEN"),
            ("TALLYSTONE_LISTEN", "TALLYSTONE_SERVER_LISTEN"),
            ("TALLYSTONE_QUITE_ELSE", "unknown"),
            ("TALLYSTONE_IDEXER_GROUP", "TALLYSTONE_INDEXER_GROUP"),
            ("TALLYSTONE_PRIORITYY", "unknown"),
            ("TALLYSTONE_SERVR", "did you mean TALLYSTONE_SERVER?"),
            ("TALLYSTONE_COUNTRS", "did you mean TALLYSTONE_COUNTERS?"),
            ("TALLYSTONE_CLIENT_TOKEN_FLE", "did you mean TALLYSTONE_CLIENT_TOKEN_FILE?"),
            // Only the prefix is similar to names.
            ("TALLYSTONE_FOO", "variables are named TALLYSTONE_<SECTION>_<KEY>"),
            ("TALLYSTONE_ATTEMPTT", "variables are named"),
            ("TALLYSTONE_COUNTERS_PORT", "unknown"),
            ("TALLYSTONE_COUNTERS_PORT_LISTEN", "unknown"),
            ("TALLYSTONE_QUEUE_TEMPLATES", "only the configuration file sets [[queue_templates]]"),
        ] {
            figment::Jail::expect_with(|jail| {
                jail.set_env(variable, "1");
                let error = serde_json::to_string(&load(None, Overrides::default()).unwrap_err()).unwrap();
                assert!(error.contains(variable) && error.contains(words), "{error}");
                Ok(())
            });
        }
    }

    #[test]
    fn wrong_names_and_values_are_named() {
        undisturbed(|| {
            for (text, words) in [
                ("[server]\nlisten_on = 'x'", "unknown key `server.listen_on`"),
                ("[server]\nlisten_on = 'x'", "did you mean `server.listen`?"),
                ("[counters]\nlistten = 'x'", "did you mean `counters.listen`?"),
                ("[rollup_worker]\nlisten = 'x'", "unknown key `rollup_worker.listen`"),
                ("[sever]\nlisten = 'x'", "did you mean `[server]`?"),
                ("quite_else = 1", "unknown key `quite_else`"),
                ("[outbox]\nrelay_leader_lease_ms = 'x'", "`outbox.relay_leader_lease_ms`"),
                ("redis_url = 'redis://r'", "`redis_url` in"),
                ("redis_url = 'redis://r'", "is now `url` in [redis]"),
                ("kafka = 'k:9092'", "is now `brokers` in [kafka]"),
                ("listen = '127.0.0.1:1'", "[views] or [ingest]"),
                ("[worker]\nqueue_url = 'q'", "the section `[worker]`"),
                ("[worker]\nqueue_url = 'q'", "is now `[rollup_worker]`"),
                ("[[queue_templates]]\nconfig = { lease = 1 }", "lease"),
            ] {
                let error = refused(text);
                assert!(error.contains(words), "{text}: {error}");
            }
            let error = refused("[server]\nlisten = 'x\n");
            assert!(error.contains("line 2") && !error.contains('|'), "{error}");
            assert!(load(Some(Path::new("/no/such/file")), Overrides::default()).is_err());
        });
    }
}
