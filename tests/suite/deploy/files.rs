//! What the files of `deploy/` name exists: flags, verbs, variables, keys of the configuration, volumes, secrets.

use crate::system::program;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tallystone_assembly::Config;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every file of the folder, with its text.
fn files() -> Vec<(PathBuf, String)> {
    let (mut folders, mut found) = (vec![root().join("deploy")], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push((path.clone(), std::fs::read_to_string(&path).expect("text"))),
            }
        }
    }
    assert!(found.len() > 5, "{found:?}");
    found
}

/// The words of a line, as a shell, a list of YAML or a unit has them.
fn words(line: &str) -> Vec<&str> {
    line.split(|c: char| c.is_whitespace() || "[]{},\"'".contains(c)).filter(|word| !word.is_empty()).collect()
}

const VERBS: [&str; 7] = ["server", "counters", "rollup-worker", "indexer", "ingest", "views", "health"];

/// Each line that calls the program: the verb, and its flags.
fn calls(text: &str) -> Vec<(String, BTreeSet<String>)> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let calls = lines.filter_map(|line| {
        let starts = ["ExecStart=", "command:", "args:", "HEALTHCHECK", "test:"];
        let is_call = starts.iter().any(|start| line.trim_start().trim_start_matches("exec: { ").starts_with(start));
        let words = words(line);
        let verb = words.iter().find(|word| VERBS.contains(word))?;
        let flags = words.iter().skip_while(|word| *word != verb).filter(|word| word.starts_with("--"));
        is_call.then(|| ((*verb).to_owned(), flags.map(|flag| (*flag).to_owned()).collect()))
    });
    calls.collect()
}

#[tokio::test]
async fn o4_the_flags_and_variables_of_the_packages_exist() {
    let mut verbs = BTreeSet::new();
    for (path, text) in files() {
        for (verb, flags) in calls(&text) {
            let help = program::run(program::command(&[&verb, "--help"]), "").await;
            assert_eq!(help.code, Some(0), "{verb}");
            for flag in flags {
                let is_known = help.stdout.split_whitespace().any(|word| word == flag);
                assert!(is_known, "{}: `{verb}` has no {flag}", path.display());
            }
            verbs.insert(verb);
        }
        for word in text.split(|c: char| !(c.is_ascii_uppercase() || c == '_')) {
            let Some(name) = word.strip_prefix("TALLYSTONE_") else { continue };
            let mut command = program::command(&["server", "--listen", "127.0.0.1:0"]);
            // A variable that no program knows is refused; a known one has another fault, or none.
            command.env(word, "redis://127.0.0.1:1").env("TALLYSTONE_REDIS_URL", "redis://127.0.0.1:1");
            let ended = program::run(command, "").await;
            assert!(!ended.stderr.contains("unknown"), "{}: {name}: {ended:?}", path.display());
        }
    }
    assert_eq!(verbs, VERBS.map(str::to_owned).into(), "the packages start every program");
}

/// The texts of the file `tallystone.toml` in the ConfigMaps.
fn configurations(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut is_within = false;
    for line in text.lines() {
        if line.trim() == "tallystone.toml: |" {
            is_within = true;
            found.push(String::new());
        } else if is_within && (line.starts_with("    ") || line.is_empty()) {
            let text = found.last_mut().expect("it has begun");
            text.push_str(line);
            text.push('\n');
        } else {
            is_within = false;
        }
    }
    found
}

#[test]
fn o4_the_configurations_of_the_packages_are_valid() {
    let mut checked = 0;
    for (path, text) in files() {
        for toml in configurations(&text) {
            let config: Config = toml::from_str(&toml).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let mut config = config;
            // Its files are secrets of the reader.
            config.kafka.password_file = config.kafka.password_file.and(Some("/dev/null".into()));
            // Ingest and views use Kafka without Elasticsearch, which is half a history to the others.
            let verdicts = match (&config.ingest.topic, &config.views.topic) {
                (Some(_), _) => vec![config.check_ingest()],
                (None, Some(_)) => vec![config.check_views()],
                (None, None) => vec![
                    config.check_queue(),
                    config.check_counters(),
                    config.check_rollup_worker(),
                    config.check_indexer(),
                    config.check_views(),
                ],
            };
            for verdict in verdicts {
                if let Err(error) = verdict {
                    assert!(error.field.ends_with("_file"), "{}: {error}", path.display());
                }
            }
            checked += 1;
        }
    }
    assert_eq!(checked, 6);
}

/// A document of YAML, as lines of `key: value` with their depth: enough for names that refer to names.
fn values<'a>(text: &'a str, key: &str) -> BTreeSet<&'a str> {
    let pattern = format!("{key}:");
    let found = text.lines().filter_map(|line| {
        let at = line.find(&pattern)?;
        let before = &line[..at];
        let is_key = before.chars().all(|c| " -{".contains(c)) || before.ends_with("{ ") || before.ends_with(", ");
        let value = words(&line[at + pattern.len()..]).first().copied()?;
        is_key.then_some(value)
    });
    found.collect()
}

#[test]
fn o4_the_manifests_name_what_they_define() {
    let manifests: String = files()
        .into_iter()
        .filter(|(path, _)| path.starts_with(root().join("deploy/kubernetes")))
        .map(|(_, text)| text)
        .collect();
    assert!(!manifests.contains('\t'), "YAML has no tabs");
    // Of objects: other names are deeper.
    let names: BTreeSet<&str> = manifests.lines().filter_map(|line| line.strip_prefix("  name: ")).collect();
    for volume in values(&manifests, "claimName") {
        assert!(names.contains(volume), "{volume}");
    }
    for line in manifests.lines().filter(|line| line.contains("configMap: {")) {
        let name = words(line)[2];
        assert!(names.contains(name), "{name}");
    }
    for label in values(&manifests, "app") {
        assert!(names.contains(label), "{label}");
    }
    let hosts = ["tallystone", "tallystone-redis", "tallystone-counters", "tallystone-views"];
    assert!(hosts.iter().all(|host| names.contains(host)));
}
