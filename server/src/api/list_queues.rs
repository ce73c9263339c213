//! rpc ListQueues (Q2, Q9). A caller gets the queues that it may read, and no name of another one (S4).

use super::depth::ages;
use super::{queue_config, status, wire};
use crate::engine::{Engine, shard};
use futures::{StreamExt, TryStreamExt, stream};
use tallystone_model::limits::QUEUE_NAME_BYTES_MAX;
use tallystone_model::names::check_text;
use tallystone_model::store::{Page, Queue};
use tallystone_model::{QueueName, Refusal, Store};
use tallystone_proto::queue::v1 as pb;
use tallystone_serving::{Access, Patterns, Right};
use tonic::{Request, Status};

/// How many depths are requested from the store at once.
const AT_ONCE: usize = 64;
pub(super) async fn handle<S: Store>(
    engine: &Engine<S>,
    request: Request<pb::ListQueuesRequest>,
) -> Result<pb::ListQueuesResponse, Status> {
    let access = Access::of(request.extensions());
    let request = request.into_inner();
    let limit = wire::page_size(request.page_size)?;
    check_text("prefix", &request.prefix, 0, QUEUE_NAME_BYTES_MAX).map_err(status::of_call)?;
    check_text("page_token", &request.page_token, 0, QUEUE_NAME_BYTES_MAX).map_err(status::of_call)?;
    let store = &engine.context.store;
    let may_read = |name: &QueueName| access.allows(Right::Read, name.as_str());
    let scan = match access.patterns(Right::Read) {
        None => Scan::unlimited(&request.prefix),
        Some(Patterns { granted, denied }) => Scan::of(&granted, &denied, &request.prefix),
    };
    let page = readable(&**store, &scan, &request.page_token, limit, may_read).await;
    let Page { items, next_cursor } = page.map_err(status::of_call)?;
    let measure = async |name: &QueueName| {
        let depth = store.depth(&shard(name), None).await?;
        Ok((depth, ages(&**store, name, &depth).await?))
    };
    let summary = async |queue: Queue| match measure(&queue.name).await {
        Ok((depth, ages)) => Ok(Some(pb::QueueSummary {
            queue: Some(queue_config::to_info(queue)),
            depth: Some(wire::to_counts(depth)),
            ages: Some(wire::to_ages(ages)),
        })),
        // The queue was deleted since the page was read.
        Err(Refusal::QueueNotFound { .. }) => Ok(None),
        Err(refusal) => Err(status::of_call(refusal)),
    };
    let summaries: Vec<Option<pb::QueueSummary>> =
        stream::iter(items).map(summary).buffered(AT_ONCE).try_collect().await?;
    Ok(pb::ListQueuesResponse { queues: summaries.into_iter().flatten().collect(), next_page_token: next_cursor })
}

/// Where a list looks for queues.
struct Scan {
    ranges: Vec<Names>,
    /// Begins of names none of which the caller may read: there may be many of them.
    passed: Vec<String>,
}

/// Names of queues that are read from the store together, in order.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Names {
    begin: String,
    /// The begin is the only one.
    is_one: bool,
}

impl Scan {
    /// Of all names with this prefix.
    fn unlimited(prefix: &str) -> Scan {
        Scan { ranges: vec![Names { begin: prefix.to_owned(), is_one: false }], passed: Vec::new() }
    }

    /// Of the names with this prefix that match a pattern of `granted`, and perhaps more: in order, each once.
    fn of(granted: &[String], denied: &[String], prefix: &str) -> Scan {
        let within = |pattern: &String| match pattern.strip_suffix('*') {
            Some(begin) if prefix.starts_with(begin) => Some(Names { begin: prefix.to_owned(), is_one: false }),
            Some(begin) => begin.starts_with(prefix).then(|| Names { begin: begin.to_owned(), is_one: false }),
            None => pattern.starts_with(prefix).then(|| Names { begin: pattern.clone(), is_one: true }),
        };
        let mut all: Vec<Names> = granted.iter().filter_map(within).collect();
        all.sort_unstable();
        let mut ranges: Vec<Names> = Vec::with_capacity(all.len());
        for names in all {
            let has_it = |range: &Names| range == &names || !range.is_one && names.begin.starts_with(&range.begin);
            if !ranges.last().is_some_and(has_it) {
                ranges.push(names);
            }
        }
        let passed = denied.iter().filter_map(|pattern| pattern.strip_suffix('*')).map(str::to_owned).collect();
        Scan { ranges, passed }
    }

    /// The cursor after all names that are to be passed with this one.
    fn after(&self, name: String) -> String {
        let widest =
            self.passed.iter().filter(|begin| name.starts_with(begin.as_str())).min_by_key(|begin| begin.len());
        // No name has this character, and all have lesser ones.
        widest.map_or(name, |begin| format!("{begin}\x7f"))
    }
}

/// A page of the queues that the caller may read. Its cursor is the name of the last of them: the last name that was read from the store
/// may be one that the caller may not know.
async fn readable<S: Store>(
    store: &S,
    scan: &Scan,
    after: &str,
    limit: usize,
    may_read: impl Fn(&QueueName) -> bool + Send + Sync,
) -> Result<Page<Queue>, Refusal> {
    let mut items = Vec::new();
    for Names { begin, is_one } in &scan.ranges {
        // All its names come before, too.
        if after > begin.as_str() && !after.starts_with(begin.as_str()) {
            continue;
        }
        let mut cursor = if after >= begin.as_str() { after.to_owned() } else { String::new() };
        loop {
            let length = if *is_one { 1 } else { limit + 1 - items.len() };
            let page = store.list_queues(begin, &cursor, length).await?;
            let is_listed = |queue: &Queue| (!is_one || queue.name.as_str() == begin) && may_read(&queue.name);
            items.extend(page.items.into_iter().filter(is_listed));
            if items.len() > limit {
                items.truncate(limit);
                let next_cursor = items.last().map(|last| last.name.to_string()).unwrap_or_default();
                return Ok(Page { items, next_cursor });
            }
            if *is_one || page.next_cursor.is_empty() {
                break;
            }
            cursor = scan.after(page.next_cursor);
        }
    }
    Ok(Page { items, next_cursor: String::new() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tallystone_model::QueueConfig;
    use tallystone_model::names::INTERNAL_QUEUES;
    use tallystone_model::oracle::Oracle;
    use tallystone_serving::{Rule, Rules};

    /// A store with so many queues `a/…`, and with three queues `b/…`.
    async fn store(others: usize) -> Oracle {
        let store = Oracle::new(Arc::default());
        let names = (0..others).map(|n| format!("a/{n:05}"));
        for name in names.chain(["b/1", "b/2", "b/3"].map(str::to_owned)) {
            let name = QueueName::parse("name", &name).unwrap();
            store.create_queue(&name, QueueConfig::default()).await.unwrap();
        }
        store
    }

    /// The names of a page and its cursor, for a caller with these rules.
    async fn page(store: &Oracle, rules: &[&str], prefix: &str, after: &str, limit: usize) -> Result<String, Refusal> {
        let rules: Rules = rules.iter().map(|rule| rule.parse::<Rule>().unwrap()).collect();
        let may_read = |name: &QueueName| rules.on(Right::Read, name.as_str()).is_granted();
        let Patterns { granted, denied } = rules.patterns(Right::Read);
        let scan = Scan::of(&granted, &denied, prefix);
        let page = readable(store, &scan, after, limit, may_read).await?;
        let names: Vec<&str> = page.items.iter().map(|queue| queue.name.as_str()).collect();
        Ok(format!("{}|{}", names.join(" "), page.next_cursor))
    }

    #[tokio::test]
    async fn s4_the_pages_of_a_list_name_only_queues_that_may_be_read() {
        let store = store(2_500).await;
        let (b, all) = (&["read:b/*"][..], &["read:*"][..]);
        let some = &["read:b/3", "read:a/00007", "read:b/1", "read:none", "admin:b/1*"][..];
        for (rules, prefix, after, limit, expected) in [
            (b, "", "", 1, "b/1|b/1"),
            (b, "", "b/1", 1, "b/2|b/2"),
            (b, "", "b/2", 1, "b/3|"),
            (b, "", "b/3", 1, "|"),
            (b, "", "", 2, "b/1 b/2|b/2"),
            (b, "", "", 3, "b/1 b/2 b/3|"),
            (b, "", "a/9", 3, "b/1 b/2 b/3|"),
            (b, "", "c", 3, "|"),
            (b, "a/", "", 3, "|"),
            (b, "b/2", "", 3, "b/2|"),
            (&["read:none*"], "", "", 1, "|"),
            (&["create:*"], "", "", 1_000, "|"),
            (&[], "", "", 1_000, "|"),
            (all, "", "a/02499", 2, "b/1 b/2|b/2"),
            (some, "", "", 9, "a/00007 b/1 b/3|"),
            (some, "", "", 1, "a/00007|a/00007"),
            (some, "", "a/00007", 1, "b/1|b/1"),
            (some, "", "b/1", 1, "b/3|"),
            (&["read:b/*", "deny:read:b/2"], "", "b/1", 1, "b/3|"),
        ] {
            let found = page(&store, rules, prefix, after, limit).await;
            assert_eq!(found, Ok(expected.to_owned()), "{rules:?} {prefix:?}: {limit} after {after:?}");
        }
    }

    #[tokio::test]
    async fn s4_a_caller_without_rules_gets_all_queues() {
        let store = store(1).await;
        let internal = QueueName::parse("name", "rollup/a").unwrap();
        store.create_queue(&internal, QueueConfig::default()).await.unwrap();
        let (mut names, mut after) = (Vec::new(), String::new());
        loop {
            let page = readable(&store, &Scan::unlimited(""), &after, 2, |_| true).await.unwrap();
            names.extend(page.items.iter().map(|queue| queue.name.to_string()));
            after = page.next_cursor;
            if after.is_empty() {
                break;
            }
        }
        assert_eq!(names, ["a/00000", "b/1", "b/2", "b/3", "rollup/a"]);
    }

    #[tokio::test]
    async fn s4_a_list_passes_internal_and_denied_queues_at_once() {
        let store = store(50).await;
        for name in (0..50).map(|n| format!("{INTERNAL_QUEUES}{n:02}")).chain(["z".to_owned()]) {
            store.create_queue(&QueueName::parse("name", &name).unwrap(), QueueConfig::default()).await.unwrap();
        }
        assert_eq!(page(&store, &["read:*"], "", "b/2", 1).await, Ok("b/3|b/3".to_owned()));
        assert_eq!(page(&store, &["read:*"], "", "b/3", 1).await, Ok("z|".to_owned()));
        let internal = page(&store, &["read:*", "read:rollup/*"], "", "b/3", 1).await;
        assert_eq!(internal, Ok("rollup/00|rollup/00".to_owned()));
        let denied = &["read:*", "deny:read:a/*", "deny:admin:z*", "deny:read:b/2"];
        assert_eq!(page(&store, denied, "", "", 1).await, Ok("b/1|b/1".to_owned()));
        assert_eq!(page(&store, denied, "", "b/1", 1).await, Ok("b/3|".to_owned()));
        assert_eq!(page(&store, denied, "a/0", "", 1).await, Ok("|".to_owned()));
        assert_eq!(page(&store, denied, "b/", "", 1).await, Ok("b/1|b/1".to_owned()));
    }
}
