//! The manifest of the engine's log names the files that a start replays. It has no checksum, and the engine checks little of it: a flipped
//! bit can turn a log into history, which is not replayed and then deleted, or name another file that exists. A module is loaded before
//! the engine reads the manifest, so a module that refuses to load ends the start in time. The engine's event of loading would not help:
//! an engine whose base is empty, and whose only log has become history, loads nothing.
//!
//! The module does not check what the engine refuses itself (`aofLoadManifestFromFile` in its `aof.c`). It accepts each manifest that an
//! engine or an operator may have written.

use crate::args::unsigned;
use crate::context::{Context, Level, log};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// One line: `file appendonly.aof.3.incr.aof seq 3 type i`.
struct File {
    name: Vec<u8>,
    /// `None`: not a number.
    seq: Option<u64>,
    /// `b`: base, `i`: a log that is replayed, `h`: history, which is deleted.
    kind: u8,
}

/// Refuses a damaged manifest, if the engine has one and will read it.
pub(crate) fn check(context: &Context<'_>) -> Result<(), String> {
    let names = [c"appendonly", c"appenddirname", c"appendfilename", c"aof-disable-auto-gc"];
    let [Some(has_log), Some(folder), Some(name), Some(keeps_history)] = names.map(|name| context.setting(name)) else {
        log(Level::Notice, "the manifest of the append-only file is not checked: CONFIG GET fails");
        return Ok(());
    };
    if has_log != b"yes" {
        return Ok(());
    }
    // The engine has made its `dir` the working directory.
    let [folder, file] = [folder, [&name[..], b".manifest"].concat()].map(OsString::from_vec);
    let path = Path::new(&folder).join(file);
    // Without a manifest there is no log yet, or one of an earlier version. One that cannot be read is an error of the engine.
    let Ok(manifest) = std::fs::read(&path) else { return Ok(()) };
    fault(&manifest, &name, keeps_history == b"yes").map_or(Ok(()), |fault| {
        let path = path.display();
        Err(format!("the manifest of the append-only file is damaged: {path} {fault}. No file was changed: correct it, or restore a copy"))
    })
}

/// What is wrong with a manifest. `log_name`: `appendfilename`. `keeps_history`: whether the engine does not delete history, which is a
/// hidden setting (`aof-disable-auto-gc`).
fn fault(manifest: &[u8], log_name: &[u8], keeps_history: bool) -> Option<String> {
    let files = parse(manifest)?;
    let (mut logs, mut old_logs, mut old_bases) = (0, 0, 0);
    for (at, file) in files.iter().enumerate() {
        let name = String::from_utf8_lossy(&file.name);
        if files[..at].iter().any(|earlier| earlier.name == file.name) {
            return Some(format!("names {name} twice"));
        }
        // The log of an engine before Redis 7 keeps its name, and is a base. Other names may be those of an operator.
        let named = if file.name == log_name { Some((false, file.seq)) } else { named(&file.name) };
        if named.is_some_and(|(_, seq)| seq != file.seq) {
            return Some(format!("has another sequence number for {name}"));
        }
        match (file.kind, named.map(|(is_log, _)| is_log)) {
            (b'b', Some(true)) | (b'i', Some(false)) => return Some(format!("has another type for {name}")),
            (b'i', _) => logs += 1,
            (b'h', Some(true)) => old_logs += 1,
            (b'h', _) => old_bases += 1,
            _ => {}
        }
    }
    // A rewrite that ends turns the base and all logs but the last one into history, in one write of the manifest; the next write, or the
    // next start, leaves history out. With `appendonly no` the rewrite turns the last log into history, too.
    if keeps_history {
        None
    } else if old_logs > 0 && old_bases == 0 {
        Some("has a log as history, but not the base before it".to_owned())
    } else if logs == 0 && old_logs > 1 {
        Some("has all logs as history".to_owned())
    } else if logs > 1 && old_bases > 0 {
        Some(format!("has history, and {logs} logs after it"))
    } else {
        None
    }
}

/// The files of a manifest. `None`: the engine refuses it.
fn parse(manifest: &[u8]) -> Option<Vec<File>> {
    let lines = manifest.split(|byte| *byte == b'\n').filter(|line| !line.is_empty() && !line.starts_with(b"#"));
    lines.map(|line| file(&words(line)?)).collect()
}

fn file(words: &[Vec<u8>]) -> Option<File> {
    let (pairs, rest) = words.as_chunks::<2>();
    // Other keys belong to newer engines.
    let value = |name: &[u8]| pairs.iter().rfind(|[key, _]| key.eq_ignore_ascii_case(name)).map(|[_, value]| value);
    let (name, seq, kind) = (value(b"file")?, value(b"seq")?, value(b"type")?);
    rest.is_empty().then_some(File { name: name.clone(), seq: unsigned(seq), kind: *kind.first()? })
}

/// What a name says that an engine has made, `NAME.SEQ.base.rdb`, `NAME.SEQ.base.aof` or `NAME.SEQ.incr.aof`: whether it is a log, and its
/// sequence number.
fn named(name: &[u8]) -> Option<(bool, Option<u64>)> {
    let mut parts = name.rsplitn(4, |byte| *byte == b'.').skip(1);
    let is_log = match parts.next()? {
        b"incr" => true,
        b"base" => false,
        _ => return None,
    };
    let seq = unsigned(parts.next()?)?;
    parts.next().map(|_| (is_log, Some(seq)))
}

/// The words of a line, as the engine's `sdssplitargs` divides it: it writes a name with spaces or quotes in quotes. `None`: a quote
/// does not end.
fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let mut words = Vec::new();
    let mut line = line;
    while let Some(start) = line.iter().position(|byte| !is_space(byte)) {
        line = &line[start..];
        let (mut word, mut quote) = (Vec::new(), None);
        loop {
            let byte = match (quote, line) {
                (None, [] | [b' ' | b'\t' | b'\r', ..]) => break,
                (None, [mark @ (b'"' | b'\''), rest @ ..]) => {
                    (quote, line) = (Some(*mark), rest);
                    continue;
                }
                (Some(_), []) => return None,
                (Some(mark), [byte, rest @ ..]) if mark == *byte => {
                    line = rest;
                    if rest.first().is_some_and(|next| !is_space(next)) {
                        return None;
                    }
                    break;
                }
                (Some(b'"'), [b'\\', b'x', high, low, ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or_default() as u8;
                    (digit(*high) << 4 | digit(*low), 4)
                }
                (Some(b'"'), [b'\\', escaped, ..]) => (unescaped(*escaped), 2),
                (Some(b'\''), [b'\\', b'\'', ..]) => (b'\'', 2),
                (_, [byte, ..]) => (*byte, 1),
            };
            word.push(byte.0);
            line = &line[byte.1..];
        }
        words.push(word);
    }
    Some(words)
}

fn unescaped(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const LOG: &str = "appendonly.aof";

    /// A file with its type.
    fn line(name: &str, kind: char) -> String {
        let seq = named(name.trim_end_matches('"').as_bytes()).and_then(|(_, seq)| seq).unwrap_or(1);
        format!("file {name} seq {seq} type {kind}\n")
    }

    fn manifest(files: &[(&str, char)]) -> Vec<u8> {
        files.iter().map(|(name, kind)| line(&name.replace('@', LOG), *kind)).collect::<String>().into_bytes()
    }

    const USUAL: &[(&str, char)] = &[("@.1.base.rdb", 'b'), ("@.1.incr.aof", 'i')];
    const SEVERAL: &[(&str, char)] =
        &[("@.1.base.rdb", 'b'), ("@.1.incr.aof", 'i'), ("@.2.incr.aof", 'i'), ("@.3.incr.aof", 'i')];
    const HISTORY: &[(&str, char)] = &[
        ("@.3.base.rdb", 'b'),
        ("@.2.incr.aof", 'h'),
        ("@.3.incr.aof", 'h'),
        ("@.2.base.rdb", 'h'),
        ("@.4.incr.aof", 'i'),
    ];
    const UPGRADED: &[(&str, char)] = &[("@", 'b'), ("@.1.incr.aof", 'i')];
    const UPGRADED_HISTORY: &[(&str, char)] =
        &[("@.2.base.aof", 'b'), ("@.1.incr.aof", 'h'), ("@", 'h'), ("@.2.incr.aof", 'i')];

    /// What the engine makes of a manifest: the files that it replays, in their order, and those of them that it deletes as history.
    #[derive(Debug, PartialEq, Eq)]
    struct Start {
        replayed: Vec<Vec<u8>>,
        deleted: BTreeSet<Vec<u8>>,
    }

    /// The rules of `aofLoadManifestFromFile` and `loadAppendOnlyFiles` in the engine's `aof.c`. `None`: it refuses the start.
    fn engine(manifest: &[u8], folder: &BTreeSet<Vec<u8>>) -> Option<Start> {
        let mut lines: Vec<&[u8]> = manifest.split(|byte| *byte == b'\n').collect();
        // A line ends by a newline, and a string of C by a zero.
        if !lines.pop()?.is_empty() || manifest.contains(&0) {
            return None;
        }
        let (mut base, mut logs, mut history, mut seq_max) = (None, Vec::new(), BTreeSet::new(), 0);
        for line in lines.into_iter().filter(|line| !line.starts_with(b"#")) {
            let words = words(line).filter(|words| words.len() >= 6 && words.len().is_multiple_of(2))?;
            let (mut name, mut seq, mut kind) = (Vec::new(), 0, 0);
            for pair in words.chunks(2) {
                match pair[0].to_ascii_lowercase().as_slice() {
                    b"file" => name = pair[1].clone(),
                    // As `atoll` reads it.
                    b"seq" => {
                        seq = pair[1]
                            .iter()
                            .take_while(|c| c.is_ascii_digit())
                            .fold(0, |n, c| n * 10 + i64::from(c - b'0'))
                    }
                    b"type" => kind = pair[1].first().copied().unwrap_or(0),
                    _ => {}
                }
            }
            if name.is_empty() || seq == 0 || name.contains(&b'/') || name.contains(&b'\\') {
                return None;
            }
            match kind {
                b'b' if base.is_none() => base = Some(name),
                b'h' => drop(history.insert(name)),
                b'i' if seq > seq_max => {
                    seq_max = seq;
                    logs.push(name);
                }
                _ => return None,
            }
        }
        let replayed: Vec<Vec<u8>> = base.into_iter().chain(logs).collect();
        let deleted = replayed.iter().filter(|name| history.contains(*name)).cloned().collect();
        replayed.iter().all(|name| folder.contains(name)).then_some(Start { replayed, deleted })
    }

    /// Flips each bit. Returns how many flips only this module refuses.
    fn each_flip(whole: &[u8], log: &[u8]) -> usize {
        let refuses = |manifest: &[u8]| fault(manifest, log, false).is_some();
        // Its files, and others that a bit may name.
        let others = (0..10).flat_map(|seq| ["base.rdb", "base.aof", "incr.aof"].map(|end| (seq, end)));
        let others = others.map(|(seq, end)| [log, format!(".{seq}.{end}").as_bytes()].concat());
        let folder = parse(whole).unwrap().into_iter().map(|file| file.name).chain(others).collect();
        let start = engine(whole, &folder).expect("the engine starts on it");
        assert!(!refuses(whole), "{:?}", fault(whole, log, false));
        let mut alone = 0;
        for (at, bit) in (0..whole.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut flipped = whole.to_vec();
            flipped[at] ^= 1 << bit;
            match engine(&flipped, &folder) {
                Some(other) if other != start => {
                    assert!(refuses(&flipped), "byte {at}, bit {bit}: {other:?} of\n{}", flipped.escape_ascii());
                    alone += 1;
                }
                _ => {}
            }
        }
        alone
    }

    #[test]
    fn w4_each_flipped_bit_of_a_manifest_is_refused_or_changes_nothing() {
        for files in [USUAL, SEVERAL, HISTORY, UPGRADED, UPGRADED_HISTORY] {
            assert!(each_flip(&manifest(files), LOG.as_bytes()) > 0, "{files:?}");
        }
        // A later engine notes positions, too.
        let offsets = String::from_utf8(manifest(SEVERAL)).unwrap().replace(" type i", " type i startoffset 0");
        each_flip(offsets.as_bytes(), LOG.as_bytes());
        // Names that the engine quotes.
        for (shown, log) in [("\"my log\"", "my log"), ("\"it's \\\"it\\\" \\xe9\"", "it's \"it\" \u{e9}")] {
            let log: Vec<u8> = log.chars().map(|c| c as u8).collect();
            for files in [USUAL, SEVERAL, HISTORY, UPGRADED_HISTORY] {
                let quoted = |name: &str| match name.strip_prefix('@') {
                    Some("") => shown.to_owned(),
                    rest => format!("{}{}\"", shown.trim_end_matches('"'), rest.unwrap_or(name)),
                };
                let whole: String = files.iter().map(|(name, kind)| line(&quoted(name), *kind)).collect();
                assert!(each_flip(whole.as_bytes(), &log) > 0, "{whole}");
            }
        }
    }

    #[test]
    fn w4_a_manifest_that_no_engine_writes_is_refused() {
        let refused: [(&[(&str, char)], &str); 4] = [
            (
                &[("@.2.base.rdb", 'b'), ("@.1.incr.aof", 'h'), ("@.1.incr.aof", 'i')],
                "names appendonly.aof.1.incr.aof twice",
            ),
            (&[("@.1.incr.aof", 'b')], "has another type for appendonly.aof.1.incr.aof"),
            (&[("@.1.base.rdb", 'i')], "has another type for appendonly.aof.1.base.rdb"),
            (&[("@", 'i')], "has another type for appendonly.aof"),
        ];
        for (files, fault) in refused {
            assert_eq!(super::fault(&manifest(files), LOG.as_bytes(), true).as_deref(), Some(fault), "{files:?}");
        }
    }

    /// Each is what an engine leaves when it is killed at some moment, or what an operator may have written.
    #[test]
    fn w4_manifests_that_an_engine_writes_are_accepted() {
        let accepted: [&[(&str, char)]; 9] = [
            USUAL,
            SEVERAL,
            HISTORY,
            UPGRADED,
            UPGRADED_HISTORY,
            // `appendonly no`, and a rewrite: no log is left; its history, and the first log of the next start.
            &[("@.5.base.rdb", 'b'), ("@.7.incr.aof", 'h'), ("@.4.base.rdb", 'h')],
            &[("@.5.base.rdb", 'b')],
            &[("@.5.base.rdb", 'b'), ("@.1.incr.aof", 'i')],
            // The base of another engine, and no base.
            &[("copied.rdb", 'b'), ("@.1.incr.aof", 'i')],
        ];
        for files in accepted {
            assert_eq!(fault(&manifest(files), LOG.as_bytes(), false), None, "{files:?}");
        }
        assert_eq!(fault(&manifest(&SEVERAL[1..]), LOG.as_bytes(), false), None);
        // `aof-disable-auto-gc yes`, and a rewrite that was killed.
        let kept = [HISTORY, &[("@.5.incr.aof", 'i')]].concat();
        assert_eq!(fault(&manifest(&kept), LOG.as_bytes(), true), None);
        assert!(fault(&manifest(&kept), LOG.as_bytes(), false).is_some());
        // A log may have the name of a file of another one.
        let odd = line("x.7.incr.y", 'b') + &line("x.7.incr.y.1.incr.aof", 'i');
        assert_eq!(fault(odd.as_bytes(), b"x.7.incr.y", false), None);
    }
}
