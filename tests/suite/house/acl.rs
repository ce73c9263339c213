//! The user of Redis that the documents name may call every command that the product calls, in scripts and in the
//! crates that open the store. A test that runs the product as this user misses the commands that it does not exercise.

use super::modules::without_tests;
use super::names::product_files;
use super::workspace::Workspace;
use proc_macro2::TokenTree;
use std::collections::{BTreeMap, BTreeSet};

const PAGE: &str = "docs/operations/security.md";

/// The crates that open the store of queues, counters or views, and what they share.
const CRATES: [&str; 6] = [
    "tallystone-server",
    "tallystone-counters",
    "tallystone-views",
    "tallystone-workers",
    "tallystone-link",
    "tallystone-assembly",
];

/// Rules that only some installations need, and the page that has each.
const SEPARATE: &[(&str, &str)] = &[
    // Only with a Redis Cluster.
    ("+cluster|nodes", "docs/operations/cluster.md"),
    // For the user of the Sentinels, which are no stores.
    ("+sentinel|master", "docs/operations/failover.md"),
    // Only with `redis.replicas_fsync`: Redis 7.0 does not know the command.
    ("+waitaof", "docs/operations/failover.md"),
    // For the Redis of the counter sets. One without the module does not know these.
    ("+ct.psetnewer", PAGE),
    ("+ct.info", PAGE),
    ("+ct.create", PAGE),
    ("+ct.alter", PAGE),
];

/// Calls whose command is a variable: the file, how many such calls it has, and the commands that they send. Their
/// callers pass the names. The search finds those, see [`NAMING`] and [`WALK`], and checks them like the others.
const VARIABLE: [(&str, usize, &[&str]); 4] = [
    ("counters/src/redis/crossings.rs", 1, &["XRANGE", "XREVRANGE"]),
    // The repeated call of a script, with the current time.
    ("infra/link/src/clock.rs", 1, &["EVALSHA"]),
    ("infra/link/src/link.rs", 1, &["HSCAN", "SCAN", "SSCAN", "ZSCAN"]),
    ("lua/lib/check/walk.lua", 1, &["HSCAN", "ZSCAN"]),
];

/// The functions of the crates whose first argument is a command.
const NAMING: [&str; 2] = ["cmd", "of_stream"];
/// A command of a walk, such as `HSCAN`, is an argument of several functions.
const WALK: &str = "SCAN";

/// A command, and its first argument if that is a word in the code.
type Called = (String, Option<String>);

#[test]
fn s6_the_documented_user_of_redis_may_call_every_command_of_the_code() {
    let workspace = Workspace::read();
    let rules = rules(&workspace, PAGE);
    let mut unused: BTreeSet<&str> = SEPARATE.iter().map(|(rule, _)| *rule).collect();
    let mut lacking = String::new();
    let found = found(&workspace);
    for ((name, argument), file) in &found.called {
        let of_command = format!("+{}", name.to_lowercase());
        let of_part = argument.as_ref().map(|argument| format!("{of_command}|{}", argument.to_lowercase()));
        let is_one = |rule: &str| rule == of_command || of_part.as_deref() == Some(rule);
        if rules.iter().any(|rule| is_one(rule)) {
            continue;
        }
        match SEPARATE.iter().find(|(rule, _)| is_one(rule)) {
            Some((rule, _)) => _ = unused.remove(rule),
            None => lacking += &format!("\n{of_command}: {file}"),
        }
    }
    assert!(lacking.is_empty(), "the user in {PAGE} lacks:{lacking}\n");
    assert!(unused.is_empty(), "no code needs {unused:?} separately any more");
    for (rule, page) in SEPARATE {
        assert!(workspace.text(page).contains(rule), "{page} does not name {rule}");
    }
    let places = VARIABLE.map(|(file, places, _)| (file.to_owned(), places));
    assert_eq!(found.variable, BTreeMap::from(places), "commands whose name is a variable");
    let names: BTreeSet<&str> = found.called.keys().map(|(name, _)| name.as_str()).collect();
    let sent: BTreeSet<&str> = VARIABLE.iter().flat_map(|(_, _, names)| names.iter().copied()).collect();
    assert!(sent.is_subset(&names), "no code names {:?}", sent.difference(&names));
    let unlisted: Vec<&&str> = names.difference(&sent).filter(|name| name.ends_with(WALK)).collect();
    assert!(unlisted.is_empty(), "walks that no place of VARIABLE lists: {unlisted:?}");
    // The search finds what is known to be there, in a script, a crate, and a script in a crate.
    for known in ["XREVRANGE", "ZSCAN", "MEMORY", "HSETNX", "INCRBY", "XINFO"] {
        assert!(found.called.keys().any(|(name, _)| name == known), "{known}");
    }
}

#[test]
fn s6_both_pages_name_the_same_user_of_redis() {
    let workspace = Workspace::read();
    assert_eq!(rules(&workspace, "docs/deploy.md"), rules(&workspace, PAGE));
}

#[test]
fn commands_are_found_in_scripts_and_in_code_but_not_in_tests() {
    let text = r#"
        fn f() { redis::cmd("MEMORY").arg("USAGE").arg(key); commands.cmd("EXISTS").arg(name); }
        fn g() { link.scan(from, &["SSCAN", &key], &["COUNT"]); let other = redis::cmd(name); }
        fn h() { let mut command = Cmd::new(); command.arg("HMGET").arg(key).arg(&["id"]); }
        const SCRIPT: &str = "redis.call('TIME')";
        #[cfg(test)] mod tests { fn f() { redis::cmd("FLUSHALL"); } }
    "#;
    let (called, variable) = of_code(text);
    let names: Vec<&str> = called.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((names, variable), (vec!["MEMORY", "EXISTS", "SSCAN", "HMGET", "TIME"], 1));
    assert_eq!(called[0].1.as_deref(), Some("USAGE"));
    let script = "local call = redis.call\nwalk('HSCAN', K)\ncall('XINFO', 'STREAM', K)\npcall(load, id)\nwalk(from)";
    let expected = [("XINFO".to_owned(), Some("STREAM".to_owned())), ("HSCAN".to_owned(), None)];
    assert_eq!(of_script(script), (Vec::from(expected), 0));
}

#[test]
fn a_command_whose_name_is_a_variable_is_found() {
    let variable = |code: &str| of_code(code).1;
    assert_eq!(variable("fn f() { let mut command = Cmd::new(); command.arg(before).arg(cursor); }"), 1);
    assert_eq!(variable("fn f() { for name in names { again.push(redis::cmd(name)); pipe.cmd(&name).arg(key); } }"), 2);
    assert_eq!(variable("fn of_stream(&self, command: &str) {} fn f() { self.of_stream(name, 1); }"), 1);
    assert_eq!(variable(r#"const SCRIPT: &str = "redis.call(ARGV[1]) redis.pcall(name)";"#), 2);
    assert_eq!(of_script("local page = call(command, key)").1, 1);
    assert_eq!(of_script("local call = redis.call\nlocal run = redis.call\nrun('TIME')").1, 1);
}

/// The rules of the user on a page, its password left out.
fn rules(workspace: &Workspace, page: &str) -> Vec<String> {
    let text = workspace.text(page);
    let begin = text.find("user tallystone on >").unwrap_or_else(|| panic!("{page} does not name the user"));
    let text = text[begin..].replace("\\\n", " ");
    let line = text.lines().next().unwrap_or_default();
    let (_, rules) = line.split_once(" resetchannels ").expect("the password is before the rules");
    rules.split_whitespace().map(str::to_owned).collect()
}

/// What the search has found.
#[derive(Default)]
struct Found {
    /// Each command with a file that calls it.
    called: BTreeMap<Called, String>,
    /// The files that call commands whose names are variables, each with how many of these calls it has.
    variable: BTreeMap<String, usize>,
}

fn found(workspace: &Workspace) -> Found {
    let mut found = Found::default();
    let code = product_files(workspace).into_iter().map(|path| workspace.shown(&path));
    let folders = CRATES.map(|name| workspace.folder_of(name));
    let code = code.filter(|shown| folders.iter().any(|folder| shown.starts_with(folder)));
    let (scripts, of_scripts) = (workspace.files(&["lua"]), workspace.folder_of("tallystone-lua"));
    let scripts = scripts.into_iter().map(|path| workspace.shown(&path)).filter(|shown| shown.starts_with(&of_scripts));
    for file in code.chain(scripts) {
        let text = workspace.text(&file);
        let (called, variable) = if file.ends_with(".lua") { of_script(&text) } else { of_code(&text) };
        if variable > 0 {
            found.variable.insert(file.clone(), variable);
        }
        found.called.extend(called.into_iter().map(|called| (called, file.clone())));
    }
    found
}

/// The commands that a script calls, and how many calls it has whose command is a variable.
fn of_script(text: &str) -> (Vec<Called>, usize) {
    let (mut called, mut variable) = (Vec::new(), 0);
    let code: Vec<&str> = text.lines().map(|line| line.split("--").next().unwrap_or_default()).collect();
    let code = code.join("\n");
    for function in ["call(", "walk("] {
        for (at, _) in code.match_indices(function) {
            // `pcall` of a function of the script calls no command by itself, nor does another function `walk`.
            let before = &code[..at];
            let is_other = before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
            let is_other = is_other && !before.ends_with("redis.p");
            match name_at(&code[at + function.len()..]) {
                Some((name, after)) => {
                    let argument = after.strip_prefix(", ").and_then(name_at);
                    called.push((name.to_owned(), argument.map(|(argument, _)| argument.to_owned())));
                }
                None => variable += usize::from(function == "call(" && !is_other),
            }
        }
    }
    // The search finds the name `call` only: an alias of another name counts as a variable.
    for (at, function) in ["redis.call", "redis.pcall"].into_iter().flat_map(|function| code.match_indices(function)) {
        let is_called = code[at + function.len()..].starts_with('(');
        let line = code[..at].lines().last().unwrap_or_default();
        variable += usize::from(!is_called && !line.starts_with("local call"));
    }
    (called, variable)
}

/// The name in quotes with which this part of a script begins, and what follows it.
fn name_at(code: &str) -> Option<(&str, &str)> {
    let quote = code.chars().next().filter(|c| ['\'', '"'].contains(c))?;
    let (name, after) = code[1..].split_once(quote)?;
    is_name(name).then_some((name, after))
}

/// The commands that code calls, tests excepted, and how many calls it has whose command is a variable.
fn of_code(text: &str) -> (Vec<Called>, usize) {
    let mut words = Vec::new();
    add_words(without_tests(text.parse().expect("Rust")), &mut words);
    let (mut called, mut variable) = (Vec::new(), 0);
    for (at, word) in words.iter().enumerate() {
        let after = &words[at + 1..];
        let next = after.first().map_or("", String::as_str);
        if NAMING.contains(&word.as_str()) {
            match quoted(next) {
                Some(name) => called.push((name.to_owned(), argument(&after[1..]))),
                None => variable += usize::from(at == 0 || words[at - 1] != "fn"),
            }
        } else if word == "Cmd" && next == ":" {
            // `Cmd::new()`: the first argument is the command, as a text or as a constant of the same name.
            let first = after.iter().position(|word| word == "arg").and_then(|arg| after.get(arg + 1));
            match first.map(|word| word.trim_matches('"')).filter(|word| is_name(word)) {
                Some(name) => called.push((name.to_owned(), None)),
                None => variable += 1,
            }
        } else if let Some(name) = quoted(word)
            && name.ends_with(WALK)
        {
            called.push((name.to_owned(), None));
        } else if word.contains("redis.call(") || word.contains("redis.pcall(") {
            let (of_script, of_variables) = of_script(word);
            called.extend(of_script);
            variable += of_variables;
        }
    }
    (called, variable)
}

/// The text of the call `.arg("TEXT")` with which these words begin.
fn argument(words: &[String]) -> Option<String> {
    match words {
        [dot, arg, word, ..] if dot == "." && arg == "arg" => quoted(word).map(str::to_owned),
        _ => None,
    }
}

/// The name of a command, or of a part of one, that this token of code has in quotes.
fn quoted(word: &str) -> Option<&str> {
    word.strip_prefix('"')?.strip_suffix('"').filter(|name| is_name(name))
}

fn is_name(word: &str) -> bool {
    word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase() || c == '.')
}

/// The tokens of code without brackets.
fn add_words(tokens: impl IntoIterator<Item = TokenTree>, words: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => add_words(group.stream(), words),
            token => words.push(token.to_string()),
        }
    }
}
