//! What deny.toml says of dependencies holds: licences, bans with wildcards, sources.

use super::metadata::metadata;
use spdx::{Expression, ParseMode};
use std::collections::BTreeMap;
use toml::Table;

fn texts<'a>(table: &'a Table, section: &str, key: &str) -> Vec<&'a str> {
    let list = table[section][key].as_array().expect("a list");
    let text = |entry: &'a toml::Value| entry.as_str().or_else(|| entry["crate"].as_str()).expect("a text");
    list.iter().map(text).collect()
}

#[test]
fn licences_bans_and_sources_are_those_of_deny_toml() {
    let deny = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../deny.toml")).expect("deny.toml");
    let deny: Table = deny.parse().expect("TOML");
    let (allowed, banned) = (texts(&deny, "licenses", "allow"), texts(&deny, "bans", "deny"));
    let is_allowed = |license: &str| {
        let parsed =
            Expression::parse_mode(license, ParseMode::LAX).unwrap_or_else(|error| panic!("{license}: {error}"));
        parsed.evaluate(|one| allowed.contains(&one.to_string().as_str()))
    };
    // A banned package that only these may use.
    let entries = deny["bans"]["deny"].as_array().expect("a list").iter();
    let wrappers: BTreeMap<&str, Vec<&str>> = entries
        .filter_map(|entry| {
            let only = entry.get("wrappers")?.as_array()?.iter().filter_map(toml::Value::as_str);
            Some((entry["crate"].as_str()?, only.collect()))
        })
        .collect();
    assert_eq!(deny["bans"]["wildcards"].as_str(), Some("deny"));
    let allows_paths = deny["bans"]["allow-wildcard-paths"].as_bool() == Some(true);
    let mut wrong = Vec::new();
    let metadata = metadata();
    // The id of a package is `SOURCE#NAME@VERSION`.
    let name_of = |id: &serde_json::Value| {
        let id = id.as_str().unwrap_or_default();
        id.rsplit('#').next().and_then(|rest| rest.split('@').next()).unwrap_or_default().to_owned()
    };
    for node in metadata["resolve"]["nodes"].as_array().expect("a list") {
        let user = name_of(&node["id"]);
        for used in node["dependencies"].as_array().expect("a list").iter().map(name_of) {
            if wrappers.get(used.as_str()).is_some_and(|only| !only.contains(&user.as_str())) {
                wrong.push(format!("{used} is used by {user}"));
            }
        }
    }
    for package in metadata["packages"].as_array().expect("a list") {
        let name = package["name"].as_str().expect("a name");
        let license = package["license"].as_str().unwrap_or_default();
        if !is_allowed(license) {
            wrong.push(format!("{name}: the licence {license:?} is not allowed"));
        }
        if banned.contains(&name) && !wrappers.contains_key(name) {
            wrong.push(format!("{name} is banned"));
        }
        // As `allow-wildcard-paths` has it: a package that is not published, and a test, may use a path without a version.
        let is_private = package["publish"].as_array().is_some_and(Vec::is_empty);
        for dependency in package["dependencies"].as_array().expect("a list") {
            let is_path = dependency["path"].is_string();
            let is_exempt = allows_paths && is_path && (is_private || dependency["kind"] == "dev");
            if dependency["req"] == "*" && !is_exempt {
                wrong.push(format!("{name} requires any version of {}", dependency["name"]));
            }
        }
        // `null`: a package of ours.
        if package["source"].as_str().is_some_and(|source| !source.ends_with("/crates.io-index")) {
            wrong.push(format!("{name}: {} is no source of packages", package["source"]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(!is_allowed("GPL-3.0-only") && !is_allowed("MIT AND GPL-3.0-only") && is_allowed("GPL-3.0-only OR MIT"));
}
