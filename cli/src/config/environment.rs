//! Configuration from environment variables: `TALLYSTONE_<SECTION>_<KEY>`.

use super::renamed::renamed_key;
use super::sections::Sections;
use crate::error::CliError;
use crate::nearest::nearest;
use figment::providers::Env;

const PREFIX: &str = "TALLYSTONE_";

/// Variables with the prefix that are not keys: options of the command line, and settings of scripts.
const OPTIONS: &[&str] = &[
    "COMPACT_MODULE",
    "CONFIG",
    "COUNTERS",
    "DATA_DIR",
    "LOG_FORMAT",
    "NAMESPACE",
    "PROGRAM",
    "QUEUE",
    "REDIS_SERVER",
    "SERVER",
    "SERVICES_DIR",
    "VALKEY_SERVER",
];
/// `tallystone work` sets these for the program that it runs, and that program may be this one.
const OF_WORK: &[&str] =
    &["ATTEMPT", "DEADLINE_MS", "FENCING_TOKEN", "ID", "KEY", "MAX_ATTEMPTS", "METADATA", "PRIORITY"];
/// `tallystone work` names a variable `META_` and a metadata key; tests name theirs with the other prefixes.
const OTHER_PREFIXES: &[&str] = &["META_", "CRASH_", "PROPERTY_", "TEST_"];

/// The variable of a key, such as `server.listen`.
pub(super) fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "_").to_uppercase())
}

/// Every key that a variable can set, as `section.key`.
fn keys(sections: &Sections) -> impl Iterator<Item = String> + '_ {
    let with_keys = sections.iter().filter_map(|(section, keys)| Some((section, keys.as_ref()?)));
    with_keys.flat_map(|(section, keys)| keys.iter().map(move |key| format!("{section}.{key}")))
}

/// The values that are set.
pub(super) fn layer(sections: &Sections) -> Env {
    let keys: Vec<String> = keys(sections).collect();
    Env::prefixed(PREFIX).filter_map(move |name| {
        let name = format!("{PREFIX}{}", name.as_str().to_uppercase());
        keys.iter().find(|key| variable(key) == name).map(|key| key.clone().into())
    })
}

/// Refuses variables with the prefix that nothing reads.
pub(super) fn check_names(sections: &Sections) -> Result<(), CliError> {
    let variables: Vec<String> = keys(sections).map(|key| variable(&key)).collect();
    for (name, value) in std::env::vars_os() {
        let Some(name) = name.to_str() else { continue };
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        let is_other = OPTIONS.contains(&rest)
            || OF_WORK.contains(&rest)
            || OTHER_PREFIXES.iter().any(|other| rest.starts_with(other));
        if is_other
            || is_of_kubernetes(rest, &value.to_string_lossy())
            || variables.iter().any(|variable| variable == name)
        {
            continue;
        }
        if let Some(new) = renamed_key(&rest.to_lowercase()) {
            let error = format!("configuration: {name} sets no key; the key is now {new}");
            return Err(CliError::usage(error).hint(format!("variables are named {PREFIX}<SECTION>_<KEY>")));
        }
        let error = CliError::usage(format!("configuration: unknown key in the environment: {name}"));
        let lists = sections.iter().filter(|(_, keys)| keys.is_none());
        if let Some((list, _)) = lists.into_iter().find(|(list, _)| variable(list) == name) {
            return Err(error.hint(format!("only the configuration file sets [[{list}]]")));
        }
        // With the prefix, all names would be similar.
        let known =
            variables.iter().filter_map(|variable| variable.strip_prefix(PREFIX)).chain(OPTIONS.iter().copied());
        return Err(match nearest(rest, known) {
            Some(near) => error.hint(format!("did you mean {PREFIX}{near}?")),
            None => error.hint(format!("variables are named {PREFIX}<SECTION>_<KEY>")),
        });
    }
    Ok(())
}

/// Kubernetes sets such variables for a service whose name begins with `tallystone`: `…_SERVICE_HOST`,
/// `…_SERVICE_PORT[_NAME]`, `…_PORT=tcp://HOST:PORT`, and `…_PORT_7600_TCP[_PROTO|_PORT|_ADDR]`.
fn is_of_kubernetes(name: &str, value: &str) -> bool {
    let is_link = |port: &str| {
        let mut parts = port.split('_');
        parts.next().is_some_and(|number| number.parse::<u16>().is_ok())
            && matches!(parts.next(), Some("TCP" | "UDP" | "SCTP"))
            && matches!(parts.next(), None | Some("PROTO" | "PORT" | "ADDR"))
            && parts.next().is_none()
    };
    let is_named_port = |(_, port): (&str, &str)| port.is_empty() || port.starts_with('_');
    name.ends_with("SERVICE_HOST")
        || name.split_once("SERVICE_PORT").is_some_and(is_named_port)
        || (name.ends_with("PORT") && value.contains("://"))
        || name.match_indices("PORT_").any(|(at, port)| is_link(&name[at + port.len()..]))
}
