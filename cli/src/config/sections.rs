//! The sections of the configuration and their keys, read from the configuration itself.

use std::collections::BTreeMap;
use tallystone_assembly::Config;

/// The keys of each section; `None`: a list of tables, whose keys are checked when it is read.
pub(super) type Sections = BTreeMap<String, Option<Vec<String>>>;

/// All sections.
pub(super) fn sections() -> Sections {
    let serde_json::Value::Object(sections) =
        serde_json::to_value(Config::default()).expect("a configuration is plain data")
    else {
        unreachable!("a configuration is a struct")
    };
    let keys = |section: serde_json::Value| match section {
        serde_json::Value::Object(keys) => Some(keys.into_iter().map(|(key, _)| key).collect()),
        _ => None,
    };
    sections.into_iter().map(|(name, section)| (name, keys(section))).collect()
}
