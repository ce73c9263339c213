//! Configuration from environment variables: `TALLYSTONE_<SECTION>_<KEY>`.

use super::renamed::renamed_key;
use super::sections::Sections;
use crate::error::CliError;
use crate::nearest::nearest;
use figment::providers::Env;

const PREFIX: &str = "TALLYSTONE_";

/// Variables with the prefix that are not keys: options of the command line, and those that scripts and tests read.
const OTHER_VARIABLES: &[&str] = &[
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
];
/// `tallystone work` sets these for the program that it runs, and that program may be this one; tests set the last three.
const OTHER_PREFIXES: &[&str] = &[
    "ATTEMPT",
    "DEADLINE_MS",
    "FENCING_TOKEN",
    "ID",
    "KEY",
    "MAX_ATTEMPTS",
    "META_",
    "PRIORITY",
    "CRASH_",
    "PROPERTY_",
    "TEST_",
];

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
    for (name, _) in std::env::vars_os() {
        let Some(name) = name.to_str() else { continue };
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        let is_other = OTHER_VARIABLES.contains(&rest) || OTHER_PREFIXES.iter().any(|other| rest.starts_with(other));
        if is_other || is_of_kubernetes(rest) || variables.iter().any(|variable| variable == name) {
            continue;
        }
        if let Some(new) = renamed_key(&rest.to_lowercase()) {
            let error = format!("configuration: no key is set by {name}: it is now {new}");
            return Err(CliError::usage(error).hint(format!("variables are named {PREFIX}<SECTION>_<KEY>")));
        }
        let error = CliError::usage(format!("configuration: unknown key in the environment: {name}"));
        return Err(match nearest(name, variables.iter().map(String::as_str)) {
            Some(near) => error.hint(format!("did you mean {near}?")),
            None => error.hint(format!("variables are named {PREFIX}<SECTION>_<KEY>")),
        });
    }
    Ok(())
}

/// Kubernetes sets such variables for a service whose name begins with `tallystone`.
fn is_of_kubernetes(name: &str) -> bool {
    name.ends_with("SERVICE_HOST") || name.contains("SERVICE_PORT") || name.split('_').any(|part| part == "PORT")
}
