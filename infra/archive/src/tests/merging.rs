//! Reads while another process merges.

use super::*;
use async_trait::async_trait;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A store in which another process merges all objects before some of the reads of this one, and whose first lists lack objects.
#[derive(Debug)]
pub(super) struct Merging {
    pub(super) objects: Arc<InMemory>,
    /// Reads of a part of an object until then.
    pub(super) reads_left: AtomicUsize,
    /// What this number of lists lacks.
    pub(super) lacking: Vec<object_store::path::Path>,
    pub(super) lacking_left: AtomicUsize,
}

impl std::fmt::Display for Merging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.objects.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Merging {
    async fn put_opts(
        &self,
        path: &object_store::path::Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        self.objects.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        path: &object_store::path::Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.objects.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &object_store::path::Path, options: GetOptions) -> object_store::Result<GetResult> {
        let before = |left: usize| left.checked_sub(1);
        let is_part = options.range.is_some();
        if is_part && self.reads_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, before) == Ok(1) {
            assert!(Archive::over(self.objects.clone()).merge(NS, NOON_MS, true).await.unwrap() > 0);
        }
        self.objects.get_opts(path, options).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, object_store::Result<object_store::path::Path>>,
    ) -> BoxStream<'static, object_store::Result<object_store::path::Path>> {
        self.objects.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&object_store::path::Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        let is_lacking =
            self.lacking_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        let lacking = if is_lacking { self.lacking.clone() } else { Vec::new() };
        let is_listed = move |object: &ObjectMeta| std::future::ready(!lacking.contains(&object.location));
        self.objects.list(prefix).try_filter(is_listed).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&object_store::path::Path>) -> object_store::Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(
        &self,
        from: &object_store::path::Path,
        to: &object_store::path::Path,
        options: CopyOptions,
    ) -> object_store::Result<()> {
        self.objects.copy_opts(from, to, options).await
    }
}

#[tokio::test]
async fn n15_a_read_that_meets_a_merge_is_repeated() {
    let events: Vec<ArchivedEvent> = (0..5).map(|n| event(0, 1, n * 10 + 5, &format!("{n}"), Some(1))).collect();
    // Footers: 5. Then the row groups.
    for reads in 1..=10 {
        let objects = Arc::new(InMemory::new());
        let writer = Archive::over(objects.clone());
        writer.begin(NS, None).await.unwrap();
        for (number, event) in (0..).zip(&events) {
            let span = span(0, number * 10, number * 10 + 10);
            writer.write(NS, object(number, vec![span], vec![event.clone()])).await.unwrap();
        }
        let archive = |reads: usize| {
            let (lacking, lacking_left) = (Vec::new(), 0.into());
            let merging = Merging { objects: objects.clone(), reads_left: reads.into(), lacking, lacking_left };
            Archive::over(Arc::new(merging))
        };
        let scanned = archive(reads).scan(NS, &scope(1, 0, 50), 100, 100).await;
        assert!(scanned.as_ref().is_ok_and(|scan| scan.events == events), "read {reads}: {scanned:?}");
        for (number, event) in (10..).zip(&events) {
            let late = ArchivedEvent { time_ms: event.time_ms + 100, ..event.clone() };
            let span = span(0, number * 10, number * 10 + 10);
            writer.write(NS, object(number, vec![span], vec![late.clone()])).await.unwrap();
        }
        let late: Vec<EventKey> =
            events.iter().map(|event| EventKey { time_ms: event.time_ms + 100, ..key(event) }).collect();
        let found = archive(reads).found(NS, &late).await;
        assert!(found.as_ref().is_ok_and(|found| found.iter().all(Option::is_some)), "read {reads}: {found:?}");
    }
}
