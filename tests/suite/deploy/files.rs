//! What the files of `deploy/` name exists: flags, verbs, variables, keys of the configuration, volumes, secrets.

use crate::security::certificates::{Ca, write_private};
use crate::system::program;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tallystone_assembly::Config;
use tempfile::TempDir;

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
    let (mut verbs, mut variables) = (BTreeSet::new(), BTreeSet::new());
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
            if !variables.insert(word.to_owned()) {
                continue;
            }
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
    assert_eq!(checked, 5);
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

/// The texts of the manifests.
fn manifests() -> Vec<String> {
    let folder = root().join("deploy/kubernetes");
    files().into_iter().filter(|(path, _)| path.starts_with(&folder)).map(|(_, text)| text).collect()
}

#[test]
fn o4_the_manifests_name_what_they_define() {
    let manifests = manifests().join("---\n");
    assert!(!manifests.contains('\t'), "YAML has no tabs");
    // Of objects: other names are deeper.
    let names: BTreeSet<&str> = manifests.lines().filter_map(|line| line.strip_prefix("  name: ")).collect();
    for volume in values(&manifests, "claimName") {
        assert!(names.contains(volume), "{volume}");
    }
    for line in manifests.lines().filter(|line| line.contains("configMap: {") || line.contains("configMapRef: {")) {
        let name = words(line.trim_start_matches([' ', '-']))[2];
        assert!(names.contains(name), "{name}");
    }
    for label in values(&manifests, "app") {
        assert!(names.contains(label), "{label}");
    }
    let hosts = ["tallystone", "tallystone-redis", "tallystone-counters", "tallystone-views"];
    assert!(hosts.iter().all(|host| names.contains(host)));
}

/// A pod that the policy selects is reached on no other port than those that the policy names.
#[test]
fn o4_the_policy_admits_each_port_of_the_pods_that_it_selects() {
    let (mut of_pods, mut admitted) = (BTreeSet::new(), BTreeSet::new());
    let add = |ports: &mut BTreeSet<u16>, document: &str, key: &str| {
        ports.extend(values(document, key).into_iter().map(|port| port.parse::<u16>().expect("a port")));
    };
    let manifests = manifests();
    for document in manifests.iter().flat_map(|text| text.split("---\n")) {
        let is_selected =
            |line: &str| line.trim_start().starts_with("labels: {") && line.contains("part-of: tallystone");
        if document.lines().any(is_selected) {
            add(&mut of_pods, document, "containerPort");
        }
        if document.contains("kind: NetworkPolicy\nmetadata:\n  name: tallystone\n") {
            add(&mut admitted, document, "port");
        }
    }
    assert!(of_pods.len() > 10, "{of_pods:?}");
    assert_eq!(admitted, of_pods);
}

/// The variables of a ConfigMap.
fn variables<'a>(text: &'a str, config_map: &str) -> Vec<(&'a str, &'a str)> {
    let begin = format!("\n  name: {config_map}\ndata:\n");
    let (_, data) = text.split_once(&begin).unwrap_or_else(|| panic!("no ConfigMap {config_map}"));
    let lines = data.lines().take_while(|line| line.starts_with("  TALLYSTONE_"));
    let variables = lines.filter_map(|line| line.trim().split_once(": "));
    let variables: Vec<_> = variables.map(|(name, value)| (name, value.trim_matches('"'))).collect();
    assert!(!variables.is_empty(), "{config_map}");
    variables
}

/// With them, each program wants the files of the Secret, which are not here.
#[tokio::test]
async fn o4_the_variables_of_the_secured_manifest_override_each_configuration() {
    let read = |name: &str| std::fs::read_to_string(root().join("deploy/kubernetes").join(name)).expect("a manifest");
    let (secured, dir) = (read("secured.yaml"), TempDir::new().expect("a temporary folder"));
    // Those of Kafka and Elasticsearch are here.
    Ca::new(dir.path(), "ca");
    for file in ["kafka-password", "elasticsearch-api-key"] {
        write_private(&dir.path().join(file), "S3cret");
    }
    let config = dir.path().join("tallystone.toml");
    for (verb, manifest, own) in [
        ("server", "tallystone.yaml", None),
        ("counters", "tallystone.yaml", None),
        ("rollup-worker", "tallystone.yaml", None),
        ("views", "views.yaml", Some("tallystone-secured-views")),
        ("views", "views-kafka.yaml", Some("tallystone-secured-views")),
        ("indexer", "indexer.yaml", None),
        ("ingest", "ingest.yaml", Some("tallystone-secured-ingest")),
    ] {
        let text = read(manifest);
        let toml = configurations(&text).remove(0);
        let toml = toml.replace("/etc/tallystone/services", dir.path().to_str().expect("text"));
        std::fs::write(&config, toml).expect("a file");
        let mut command = program::command(&[verb, "--config", config.to_str().expect("text")]);
        for config_map in std::iter::once("tallystone-secured").chain(own) {
            assert!(text.contains(&format!("configMapRef: {{ name: {config_map}, optional: true }}")), "{manifest}");
            command.envs(variables(&secured, config_map));
        }
        let ended = program::run(command, "").await;
        assert_eq!(ended.code, Some(2), "{verb} of {manifest}: {ended:?}");
        assert!(ended.stderr.contains("/etc/tallystone/secrets/"), "{verb} of {manifest}: {ended:?}");
    }
}
