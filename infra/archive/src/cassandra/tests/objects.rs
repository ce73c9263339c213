//! The object store: all that the archive calls.

use super::{Node, rows};
use crate::cassandra::chunks::Version;
use crate::cassandra::objects::{Objects, remove_folder};
use crate::{Archive, ArchiveError};
use bytes::Bytes;
use futures::stream::{StreamExt, TryStreamExt, iter};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions,
};
use scylla::client::session::Session;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use uuid::Uuid;

/// Of `chunks`.
const CHUNK: usize = 256 * 1_024;

fn path(text: &str) -> Path {
    Path::parse(text).unwrap()
}

/// Bytes that differ from chunk to chunk.
fn content(bytes: usize) -> Bytes {
    (0..bytes).map(|at| (at / 1_000 * 7 + at % 251) as u8).collect::<Vec<u8>>().into()
}

async fn names(objects: &Objects, prefix: Option<&str>) -> Vec<String> {
    let listed: Vec<_> = objects.list(prefix.map(path).as_ref()).try_collect().await.unwrap();
    let mut names: Vec<String> = listed.into_iter().map(|meta| meta.location.to_string()).collect();
    names.sort();
    names
}

/// The versions that a folder has, and those of its chunks.
async fn versions(session: &Session, folder: &str) -> Vec<(Uuid, i32)> {
    rows(session, &format!("SELECT version, chunks FROM KS.versions WHERE folder = '{folder}'")).await
}

async fn chunks(session: &Session, version: Uuid) -> usize {
    rows::<(i32,)>(
        session,
        "SELECT number FROM KS.chunks WHERE version = ID ALLOW FILTERING".replace("ID", &version.to_string()).as_str(),
    )
    .await
    .len()
}

#[tokio::test]
async fn n21_objects_in_cassandra_read_back_by_ranges_and_by_folders() {
    let node = Node::shared().await;
    let objects = Objects::over(node.connection());
    for bytes in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5] {
        let (at, whole) = (path(&format!("ranges/slice/{bytes}")), content(bytes));
        objects.put(&at, whole.clone().into()).await.unwrap();
        assert_eq!(objects.get(&at).await.unwrap().bytes().await.unwrap(), whole, "{bytes}");
        let meta = objects.head(&at).await.unwrap();
        assert_eq!((meta.size, &meta.location), (bytes as u64, &at));
        let edges = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, bytes.saturating_sub(1)];
        for from in edges.into_iter().filter(|from| *from < bytes) {
            for to in edges.into_iter().chain([bytes]).filter(|to| (from + 1..=bytes).contains(to)) {
                let part = objects.get_range(&at, from as u64..to as u64).await.unwrap();
                assert_eq!(part, whole.slice(from..to), "{from}..{to} of {bytes}");
            }
        }
        let suffix = GetOptions { range: Some(GetRange::Suffix(5)), ..GetOptions::default() };
        let tail = objects.get_opts(&at, suffix).await.unwrap().bytes().await.unwrap();
        assert_eq!(tail, whole.slice(bytes.saturating_sub(5)..));
        assert!(objects.get_range(&at, bytes as u64..bytes as u64 + 1).await.is_err());
    }
    for at in ["folders/mark", "folders/one/a", "folders/one/b", "folders/two/deeper/c"] {
        objects.put(&path(at), content(1).into()).await.unwrap();
    }
    assert_eq!(
        names(&objects, Some("folders")).await,
        ["folders/mark", "folders/one/a", "folders/one/b", "folders/two/deeper/c"]
    );
    assert_eq!(names(&objects, Some("folders/one")).await, ["folders/one/a", "folders/one/b"]);
    for none in ["folders/on", "folders/mark", "folders/three"] {
        assert_eq!(names(&objects, Some(none)).await, [""; 0], "{none}");
    }
    assert!(names(&objects, None).await.iter().any(|name| name == "folders/mark"));
    let listed = objects.list_with_delimiter(Some(&path("folders"))).await.unwrap();
    assert_eq!(listed.objects.iter().map(|meta| meta.location.as_ref()).collect::<Vec<_>>(), ["folders/mark"]);
    assert_eq!(listed.common_prefixes, [path("folders/one"), path("folders/two")]);

    objects.delete(&path("folders/one/a")).await.unwrap();
    for gone in [objects.delete(&path("folders/one/a")).await.err(), objects.head(&path("folders/one/a")).await.err()] {
        assert!(matches!(gone, Some(Error::NotFound { .. })), "{gone:?}");
    }
    let create = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
    let other = path("folders/other");
    let refused = [
        objects.put_opts(&other, content(1).into(), create).await.err(),
        objects.put_multipart_opts(&other, PutMultipartOptions::default()).await.err(),
        objects.copy_opts(&path("folders/mark"), &other, CopyOptions::default()).await.err(),
    ];
    assert!(refused.iter().all(|refused| matches!(refused, Some(Error::NotImplemented { .. }))), "{refused:?}");
}

#[tokio::test]
async fn n21_readers_of_an_object_that_is_replaced_see_one_content() {
    let node = Node::shared().await;
    let objects = Objects::over(node.connection());
    let at = path("replaced/slice/object");
    // Its length says what its bytes must be.
    let of = |writer: usize, number: usize| {
        let number = writer * 10 + number;
        (vec![number as u8; 2 * CHUNK + number], number)
    };
    objects.put(&at, of(0, 0).0.into()).await.unwrap();
    let is_done = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let (objects, at, is_done) = (objects.clone(), at.clone(), is_done.clone());
            tokio::spawn(async move {
                let mut reads = 0;
                while !is_done.load(Ordering::SeqCst) {
                    // One that finds another content each time gives up.
                    if let Ok(found) = objects.get(&at).await {
                        let bytes = found.bytes().await.unwrap();
                        let number = (bytes.len() - 2 * CHUNK) as u8;
                        assert!(bytes.iter().all(|byte| *byte == number), "a mixture of {number} and another");
                        reads += 1;
                    }
                }
                reads
            })
        })
        .collect();
    let writers: Vec<_> = (1..=2)
        .map(|writer| {
            let (objects, at) = (objects.clone(), at.clone());
            tokio::spawn(async move {
                for number in 0..8 {
                    objects.put(&at, of(writer, number).0.into()).await.unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    is_done.store(true, Ordering::SeqCst);
    for reader in readers {
        assert!(reader.await.unwrap() > 0);
    }
    let last = objects.head(&at).await.unwrap().size as usize - 2 * CHUNK;
    assert!([of(1, 7).1, of(2, 7).1].contains(&last), "{last}");
    let session = node.session().await;
    let left = versions(&session, "replaced/slice").await;
    assert_eq!(left.len(), 1, "replaced versions are deleted: {left:?}");
    objects.delete(&at).await.unwrap();
    assert_eq!(versions(&session, "replaced/slice").await, []);
    assert_eq!(chunks(&session, left[0].0).await, 0);
}

#[tokio::test]
async fn n21_a_put_that_ends_early_leaves_no_name_and_goes_with_its_folder() {
    let node = Node::shared().await;
    let connection = node.connection();
    let objects = Objects::over(connection.clone());
    let cluster = connection.cluster().await.unwrap();
    objects.put(&path("early/slice/whole"), content(9).into()).await.unwrap();
    let begun = Version::new(2 * CHUNK);
    cluster.write("early/slice", &begun, &content(2 * CHUNK)).await.unwrap();
    assert_eq!(names(&objects, Some("early")).await, ["early/slice/whole"]);
    let session = node.session().await;
    assert_eq!((versions(&session, "early/slice").await.len(), chunks(&session, begun.id).await), (2, 2));
    objects.delete(&path("early/slice/whole")).await.unwrap();
    let slices = async || objects.list_with_delimiter(Some(&path("early"))).await.unwrap().common_prefixes;
    assert_eq!(slices().await, [path("early/slice")], "as in a folder of files");
    for _ in 0..2 {
        remove_folder(cluster, &path("early/slice")).await.unwrap();
        assert_eq!((slices().await, versions(&session, "early/slice").await), (vec![], vec![]));
        assert_eq!(chunks(&session, begun.id).await, 0);
    }
    objects.put(&path("early/slice/again"), content(9).into()).await.unwrap();
    assert_eq!(slices().await, [path("early/slice")]);
}

/// The driver would send an idempotent statement again after a lost reply. A compare-and-set that was applied would then answer
/// that it was not, and its caller would replace what others have written since.
#[tokio::test]
async fn n21_a_compare_and_set_is_sent_once() {
    let node = Node::shared().await;
    let connection = node.connection();
    let statements = &connection.cluster().await.unwrap().statements;
    for once in [
        &statements.create_object,
        &statements.replace_object,
        &statements.delete_object,
        &statements.create_folder,
        &statements.delete_folder,
    ] {
        assert!(!once.get_is_idempotent(), "{}", once.get_statement());
    }
    for repeated in [&statements.object, &statements.create_chunk, &statements.delete_chunk, &statements.put_event] {
        assert!(repeated.get_is_idempotent(), "{}", repeated.get_statement());
    }
}

/// As if the clock of the process that wrote it were ahead.
#[tokio::test]
async fn n21_a_discarded_version_stays_discarded_whatever_the_clocks() {
    let node = Node::shared().await;
    let connection = node.connection();
    let (cluster, session) = (connection.cluster().await.unwrap(), node.session().await);
    let version = Version::new(CHUNK);
    cluster.write("clocks/slice", &version, &content(CHUNK)).await.unwrap();
    cluster.discard("clocks/slice", version.id, 1).await.unwrap();
    let late = format!("USING TIMESTAMP {}", i64::MAX - 1);
    let inserts = [
        format!("INSERT INTO tallystone.chunks (version, number, data) VALUES ({}, 0, 0x00) {late}", version.id),
        format!(
            "INSERT INTO tallystone.versions (folder, version, chunks) VALUES ('clocks/slice', {}, 1) {late}",
            version.id
        ),
    ];
    for insert in inserts {
        session.query_unpaged(insert, ()).await.unwrap();
    }
    assert_eq!((chunks(&session, version.id).await, versions(&session, "clocks/slice").await), (0, vec![]));
}

#[tokio::test]
async fn n21_an_object_without_a_chunk_is_unavailable_and_not_absent() {
    let node = Node::shared().await;
    let connection = node.connection();
    let objects = Objects::over(connection.clone());
    let cluster = connection.cluster().await.unwrap();
    let at = path("missing/slice/object");
    objects.put(&at, content(3 * CHUNK).into()).await.unwrap();
    let session = node.session().await;
    let (version, _) = versions(&session, "missing/slice").await[0];
    cluster.run(&cluster.statements.delete_chunk, (version, 1)).await.unwrap();
    let error = objects.get(&at).await.unwrap_err();
    assert!(error.to_string().contains("missing/slice/object lacks a part"), "{error}");
    assert!(matches!(ArchiveError::from(error), ArchiveError::Unavailable { .. }));
    assert_eq!(objects.get_range(&at, 0..9).await.unwrap(), content(3 * CHUNK).slice(..9), "the others are there");
    // A row that no version of this program has written.
    let zero =
        "UPDATE tallystone.objects SET chunk_bytes = 0 WHERE folder = 'missing/slice' AND name = 'object' IF EXISTS";
    session.query_unpaged(zero, ()).await.unwrap();
    assert!(objects.get_range(&at, 0..9).await.is_err());
}

/// What the runbook has for an archive with a lost object.
#[tokio::test]
async fn n21_an_operator_can_empty_the_mark_of_a_namespace() {
    let node = Node::shared().await;
    let (archive, session) = (node.archive(), node.session().await);
    archive.begin("emptied", Some(7)).await.unwrap();
    let cql = "UPDATE tallystone.objects SET bytes = 0 WHERE folder = 'emptied' AND name = 'archive' IF EXISTS";
    session.query_unpaged(cql, ()).await.unwrap();
    assert_eq!(archive.gapless_from_ms("emptied").await.unwrap(), None);
    archive.begin("emptied", Some(8)).await.unwrap();
    assert_eq!(archive.gapless_from_ms("emptied").await.unwrap(), Some(8));
}

#[tokio::test]
async fn n21_all_names_of_a_large_folder_are_listed() {
    let node = Node::shared().await;
    let (session, objects) = (node.session().await, Objects::over(node.connection()));
    let insert = "INSERT INTO tallystone.objects (folder, name, version, bytes, chunk_bytes, modified) \
                  VALUES ('large/slice', ?, uuid(), 0, 1, toTimestamp(now()))";
    let (session, insert) = (&session, &session.prepare(insert).await.unwrap());
    let inserts = (0..2_500).map(|number| async move {
        session.execute_unpaged(insert, (format!("{number:05}"),)).await.unwrap();
    });
    iter(inserts).buffer_unordered(32).collect::<Vec<()>>().await;
    let expected: Vec<String> = (0..2_500).map(|number| format!("large/slice/{number:05}")).collect();
    assert_eq!(names(&objects, Some("large/slice")).await, expected);
}

#[tokio::test]
async fn n21_what_is_not_there_is_named() {
    let node = Node::shared().await;
    // A word of CQL.
    let archive = Archive::open(&node.url("table")).unwrap();
    let error = archive.check().await.unwrap_err().to_string();
    assert!(error.contains("create it: CREATE KEYSPACE \"table\" WITH replication"), "{error}");
    super::create_keyspace(&node.session().await, "table").await;
    archive.check().await.unwrap();
    archive.check().await.unwrap();
    let elsewhere = Archive::open("cassandra://127.0.0.1:1/table").unwrap();
    let error = elsewhere.check().await.unwrap_err();
    assert!(matches!(error, ArchiveError::Unavailable { .. }), "{error}");
    assert!(Archive::open("cassandra://127.0.0.1:1").is_err());
}
