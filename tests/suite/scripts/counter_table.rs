//! Runs the words of a counter table through the stores and writes down their replies.

use super::counter_words::{
    START_MS, at, config, counter, event, merged, number, recounted, settlement, shown, since_start, stood_at, stored,
    update,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tallystone_archive::Archive;
use tallystone_counters::crossings::read_crossings;
use tallystone_counters::namespace::SHARDS;
use tallystone_counters::redis::{
    Lacking, MergedNamespace, MergedTopics, Namespace, RedisNamespace, RedisNamespaces, SKIPPED, TopicPosition,
};
use tallystone_counters::regions::RegionRecord;
use tallystone_counters::*;
use tallystone_link::{Clock, ReplicaWait, ScriptReply};
use tallystone_lua::counter::{CounterAnswer, CounterScript, CounterShardKeys};
use tallystone_tests::{TestConnection, TestRedis};
use tempfile::TempDir;

/// One table while it runs, with a namespace that no other table uses.
pub(crate) struct CounterTable {
    redis: TestConnection,
    namespaces: RedisNamespaces,
    name: NamespaceName,
    clock_ms: Arc<AtomicU64>,
    /// The stores of the server that makes the calls, once it has opened the namespace.
    store: Option<RedisNamespace>,
    /// That of the table's first namespace, and that of its latest.
    first_incarnation: u64,
    incarnation: u64,
    _archive: TempDir,
}

impl CounterTable {
    /// The table with the replies and keys that were found in place of those that are written.
    pub(crate) async fn run(number: usize, written: &str, redis: Arc<TestRedis>) -> String {
        let clock_ms = Arc::new(AtomicU64::new(START_MS));
        let namespaces = RedisNamespaces::new(redis.source(), ReplicaWait::default(), Clock::Test(clock_ms.clone()));
        let folder = tempfile::tempdir().expect("a folder");
        let archive = Archive::open(&format!("file://{}", folder.path().display())).expect("an archive");
        let namespaces = namespaces
            .with_region(RegionName::parse("eu").ok())
            .with_archive(Some(EventArchive::new(archive, &ArchiveConfig { keep_ms: 0, ..ArchiveConfig::default() })));
        let name = format!("table-{number}-{:08x}", rand::random::<u32>());
        let name = NamespaceName::parse(name).expect("a namespace");
        let redis = redis.connection().await;
        let mut table = CounterTable {
            redis,
            namespaces,
            name,
            clock_ms,
            store: None,
            first_incarnation: 0,
            incarnation: 0,
            _archive: folder,
        };
        let (mut reply, mut found) = (String::new(), Vec::new());
        for line in written.lines() {
            let (kind, words) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            found.push(match kind {
                "given" | "call" => {
                    reply = table.act(words.trim()).await.unwrap_or_else(|refusal| refusal.reason().to_owned());
                    line.to_owned()
                }
                "reply" => format!("reply  {reply}").trim_end().to_owned(),
                "keys" => format!("keys   {}", table.keys().await).trim_end().to_owned(),
                _ => line.to_owned(),
            });
        }
        found.join("\n")
    }

    async fn act(&mut self, words: &str) -> Result<String, Refusal> {
        let mut words = words.split_whitespace();
        let verb = words.next().expect("a verb");
        let words: Vec<&str> = words.collect();
        Ok(match verb {
            "put" => {
                let namespace = self.namespaces.put(&self.name, config(&words)).await?;
                let kept_from_ms = namespace.kept_from_ms;
                // Other tables delete namespaces, too.
                if self.store.is_none() {
                    self.first_incarnation = namespace.incarnation;
                }
                self.incarnation = namespace.incarnation;
                self.store = Some(self.namespaces.open(&namespace).await?);
                match kept_from_ms {
                    0 => format!("revision {}", namespace.revision),
                    _ => format!("revision {}, kept from {}", namespace.revision, since_start(kept_from_ms)),
                }
            }
            "replace" => {
                let seen = Namespace { revision: number(words[0]), ..self.namespace(&[]) };
                let replaced = self.namespaces.replace(&self.name, Some(&seen), config(&words[1..])).await?;
                format!("revision {}", replaced.revision)
            }
            "replace_first" => {
                let seen = Namespace { revision: number(words[0]), ..self.namespace(&[]) };
                let seen = Namespace { incarnation: self.first_incarnation, ..seen };
                let replaced = self.namespaces.replace(&self.name, Some(&seen), config(&words[1..])).await?;
                format!("revision {}", replaced.revision)
            }
            "open" => {
                let namespace = Namespace { revision: number(words[0]), ..self.namespace(&words[1..]) };
                self.store = Some(self.namespaces.open(&namespace).await?);
                "open".to_owned()
            }
            "pass" => {
                self.clock_ms.fetch_add(number(words[0]), Ordering::SeqCst);
                String::new()
            }
            "back" => {
                self.clock_ms.fetch_sub(number(words[0]), Ordering::SeqCst);
                String::new()
            }
            "append" => self.append(&words).await,
            "pending" => shown(self.store().pending(&[counter(words[0])]).await?.remove(0).remove(0).1),
            "seal" => {
                let sealed = self.store().seal(&[counter(words[0])]).await?.remove(0);
                let pending = sealed.pending.into_iter().next().expect("a shard").1;
                format!("to {}: {}", since_start(sealed.sealed_to_ms), shown(pending))
            }
            "settle" => {
                self.store().settle(&[settlement(&words)]).await?;
                "done".to_owned()
            }
            "close" => {
                self.store().close(&settlement(&words)).await?;
                "done".to_owned()
            }
            "due" => self.due(number(words[0]) as usize, number(words[1])).await?,
            "defer" => {
                for word in &words[1..] {
                    let home = self.home(word).await?;
                    self.store().defer(home, &[counter(word)], number(words[0])).await?;
                }
                "done".to_owned()
            }
            "touch" => {
                let touched = words.iter().map(|word| (counter(word.trim_end_matches('*')), word.ends_with('*')));
                let is_sooner = self.store().touch(&touched.collect::<Vec<_>>()).await?;
                if is_sooner { "sooner" } else { "no change" }.to_owned()
            }
            "tick" => {
                let until = [(counter(words[0]), at(words[1]))];
                format!("in {}", self.store().tick(&until).await?[0])
            }
            "ahead" => {
                let ahead = self.namespaces.clock_ahead(&self.name).await?;
                format!("ahead {}{}", ahead.ahead_ms, if ahead.is_reserved { ", reserved" } else { "" })
            }
            "reset" => {
                self.namespaces.reset_clock(&self.name).await?;
                let namespace = self.namespaces.get(&self.name).await?.expect("a namespace");
                self.store = Some(self.namespaces.open(&namespace).await?);
                format!("revision {}", namespace.revision)
            }
            "prune" => format!("dropped {}", self.store().prune(self.home(words[0]).await?).await?),
            "archive" => {
                let pass = self.store().archive_pass().await?;
                format!("{} events{}", pass.events, if pass.is_behind { ", behind" } else { "" })
            }
            "begin" => {
                let mut reply = self.shard_call(CounterScript::Archive, words[1], &[], &["5100", words[0]]).await?;
                let mut time = || reply.number().map(since_start);
                let (_, sealed_to, archived_to, dropped_to) = (time()?, time()?, time()?, time()?);
                format!("sealed to {sealed_to}, archived to {archived_to}, dropped to {dropped_to}")
            }
            "archived" => {
                let to_ms = at(words[2]).to_string();
                let reply = self.shard_call(CounterScript::Archived, words[1], &[], &[words[0], &to_ms]).await?;
                if reply.answer == CounterAnswer::Ok { "done" } else { "lost" }.to_owned()
            }
            "drop" => {
                let events = self.keys_of(words[0]).await?.events(600, START_MS / 600_000);
                let fields: Vec<Vec<u8>> =
                    ::redis::cmd("HKEYS").arg(&events).query_async(&mut self.redis).await.expect("fields");
                let to_ms = at(words[1]).to_string();
                let mut arguments: Vec<&[u8]> = vec![to_ms.as_bytes()];
                arguments.extend(fields.iter().map(Vec::as_slice));
                let mut reply = self.shard_call(CounterScript::Drop, words[0], &[events], &arguments).await?;
                format!("dropped {}", reply.number()?)
            }
            "commit" => {
                let updates: Vec<CheckpointUpdate> = words.iter().map(|word| update(word)).collect();
                let commits = self.store().commit(&updates).await?;
                let outcome = |(update, commit): (&CheckpointUpdate, Commit)| match commit {
                    Commit::Done => format!("{} done", update.counter),
                    Commit::Lost => format!("{} lost", update.counter),
                };
                updates.iter().zip(commits).map(outcome).collect::<Vec<_>>().join(", ")
            }
            "read" => {
                let checkpoint = self.store().read(&[counter(words[0])]).await?[0];
                let deleted = if checkpoint.is_deleted { ", deleted" } else { "" };
                let epoch = match checkpoint.epoch {
                    epoch if epoch == Epoch::default() => String::new(),
                    Epoch { number, adjusted } => format!(", epoch {number}, adjusted {adjusted}"),
                };
                let cleared = match checkpoint.cleared_ms {
                    0 => String::new(),
                    _ if self.store().config().regions.is_empty() => String::new(),
                    cleared_ms => format!(", cleared at {}", since_start(cleared_ms)),
                };
                let exact_to = since_start(checkpoint.exact_to_ms);
                format!("{} exact to {exact_to}{deleted}{epoch}{cleared}", checkpoint.count)
            }
            "recount" => {
                let update = update(words[0]);
                let recounts: Vec<Recounted> = words[1..].iter().map(|reason| recounted(reason)).collect();
                let CheckpointUpdate { counter, before, after } = &update;
                match self.store().replace(counter, before, after, &recounts).await? {
                    Commit::Done => "done",
                    Commit::Lost => "lost",
                }
                .to_owned()
            }
            "crossings" => {
                let mut page = read_crossings(self.store(), None, 1_000).await?;
                // Those of two shards may be of one millisecond.
                page.entries.sort_by(|one, other| one.counter.cmp(&other.counter));
                let entry = |entry: &CrossingEntry| {
                    let thresholds: Vec<String> = entry.thresholds.iter().map(i64::to_string).collect();
                    let (counter, count, to) = (&entry.counter, entry.count, since_start(entry.exact_to_ms));
                    format!("{counter} {count} exact to {to} passes {}", thresholds.join(" "))
                };
                page.entries.iter().map(entry).collect::<Vec<_>>().join(", ")
            }
            "recounts" => {
                let recounts = self.store().recounts(&counter(words[0])).await?;
                recounts.into_iter().map(|recounted| recounted.reason).collect::<Vec<_>>().join(", ")
            }
            "follow" => {
                let CheckpointUpdate { counter, before, after } = update(words[0]);
                match self.store().follow(&counter, &before, &after).await? {
                    Commit::Done => "done",
                    Commit::Lost => "lost",
                }
                .to_owned()
            }
            "merge" => {
                let records: Vec<_> = words.iter().map(|word| merged(word)).collect();
                format!("{} later", self.store().merge(&records).await?)
            }
            "behind" => {
                let mut names = Vec::new();
                for shard in 0..SHARDS {
                    names.extend(self.store().behind(shard, 100).await?);
                }
                names.sort();
                names.iter().map(CounterName::as_str).collect::<Vec<_>>().join(" ")
            }
            "attend" => {
                let (name, stood) = words[0].split_once(':').expect("counter:what stood");
                let stood = stood_at(stood, 0);
                let home = self.home(name).await?;
                let behind_ms = words.get(2).map_or(0, |word| number(word));
                let lacking =
                    self.store().attend(home, &[(counter(name), stood)], number(words[1]), behind_ms).await?[0];
                match lacking {
                    Lacking { clear_ms: Some(clear_ms), .. } => format!("lacks the clear at {}", since_start(clear_ms)),
                    Lacking { is_earlier: true, .. } => "lacks a rollup".to_owned(),
                    _ => "lacks nothing".to_owned(),
                }
            }
            "known" => {
                let records = self.store().known(&[counter(words[0])]).await?.remove(0);
                let shown = |record: Option<RegionRecord>| match record {
                    None => "nothing".to_owned(),
                    Some(record) => format!("{} exact to {}", record.count, since_start(record.exact_to_ms)),
                };
                records.into_iter().map(shown).collect::<Vec<_>>().join(", ")
            }
            "term" => {
                let holds = match words[0] {
                    "begin" => self.namespaces.begin_term(words[1], number(words[2])).await?,
                    _ => self.namespaces.renew_term(words[1], number(words[2])).await?,
                };
                if holds { "it holds" } else { "it does not hold" }.to_owned()
            }
            "later" => {
                self.store().attend_later(&counter(words[0]), number(words[1])).await?;
                "done".to_owned()
            }
            "positions" => {
                let position = |word: &&str| {
                    let (topic, offset) = word.split_once(':').expect("topic:offset");
                    TopicPosition { topic: topic.to_owned(), partition: 0, next_offset: number(offset) as i64 }
                };
                let positions: Vec<TopicPosition> = words[1..].iter().map(position).collect();
                stored(self.namespaces.store_positions(words[0], &positions).await?)
            }
            "cover" => {
                let tag = self.store().tag().to_owned();
                let stands = self.namespaces.merged_topics().await?.namespaces.remove(&tag);
                let stood = words.get(1).map_or(stands, |word| Some((*word).to_owned()));
                let covered = BTreeMap::from([(tag, MergedNamespace { stood, regions: "these".to_owned() })]);
                stored(self.namespaces.merge_from_beginning(words[0], &covered).await?)
            }
            "skip" => {
                let stood = BTreeMap::from([(self.store().tag().to_owned(), "these".to_owned())]);
                stored(self.namespaces.skip_namespaces(words[0], &stood).await?)
            }
            "forget" => stored(self.namespaces.forget_namespaces(words[0], &[self.store().tag().to_owned()]).await?),
            "merged" => {
                let MergedTopics { positions, namespaces } = self.namespaces.merged_topics().await?;
                let position = |position: TopicPosition| format!("{} to {}", position.topic, position.next_offset);
                let mut shown: Vec<String> = positions.into_iter().map(position).collect();
                shown.sort();
                shown.extend(namespaces.get(self.store().tag()).map(|regions| match regions.as_str() {
                    SKIPPED => "skipped".to_owned(),
                    _ => "covered".to_owned(),
                }));
                shown.join(", ")
            }
            "delete" => {
                self.store().delete(&counter(words[0]), at(words[1])).await?;
                "done".to_owned()
            }
            "deleted" => match self.store().deleted_to(&counter(words[0])).await? {
                Some(deleted_ms) => format!("to {}", since_start(deleted_ms)),
                None => "no".to_owned(),
            },
            "delete_namespace" => {
                let incarnation = words.first().map(|word| self.first_incarnation + number(word));
                let deleted = self.namespaces.delete(&self.name, incarnation).await?;
                format!("incarnation +{}", deleted.namespace.incarnation - self.first_incarnation)
            }
            "remove" => {
                let all = self.namespaces.deleted().await?.into_iter();
                let mut removed = 0;
                for deleted in all.filter(|deleted| deleted.namespace.name == self.name) {
                    removed += u64::from(self.namespaces.remove(&deleted, async { Ok(()) }).await?);
                }
                let left = self.namespaces.deleted().await?.into_iter();
                let left = left.filter(|deleted| deleted.namespace.name == self.name).count();
                format!("removed {removed}, left {left}")
            }
            unknown => panic!("{unknown} is no verb"),
        })
    }

    fn store(&self) -> &RedisNamespace {
        self.store.as_ref().expect("an open namespace")
    }

    fn namespace(&self, words: &[&str]) -> Namespace {
        let (name, config, incarnation) = (self.name.clone(), config(words), self.incarnation);
        Namespace { name, config, revision: 0, incarnation, kept_from_ms: 0 }
    }

    async fn append(&self, words: &[&str]) -> String {
        let events: Vec<NewEvent> = words.iter().map(|word| event(word)).collect();
        let results = self.store().append(&events).await.into_iter().zip(words);
        let one = |(result, word): (Result<Appended, Refusal>, &&str)| match result {
            Ok(Appended { time_ms, duplicate: false }) => format!("{word}: at {}", since_start(time_ms)),
            Ok(Appended { time_ms, duplicate: true }) => format!("{word}: duplicate at {}", since_start(time_ms)),
            Err(Refusal::BoundReached { count }) => format!("{word}: BOUND_REACHED at {count}"),
            Err(refusal) => format!("{word}: {}", refusal.reason()),
        };
        results.map(one).collect::<Vec<_>>().join(", ")
    }

    /// Of all shards together: those of a table's counters differ.
    async fn due(&self, limit: usize, hold_ms: u64) -> Result<String, Refusal> {
        let (mut counters, mut next_ms, mut dirty) = (Vec::new(), None, 0);
        for shard in 0..SHARDS {
            let due = self.store().due(shard, limit, hold_ms).await?;
            counters.extend(due.counters.into_iter().map(|(counter, due_ms)| (due_ms, counter)));
            next_ms = [next_ms, due.next_ms].into_iter().flatten().min();
            dirty += due.dirty;
        }
        counters.sort();
        let named = |(due_ms, counter): &(u64, CounterName)| format!("{counter} at {}, ", since_start(*due_ms));
        let counters: String = counters.iter().map(named).collect();
        Ok(format!("{counters}dirty {dirty} next {}", next_ms.map_or("never".to_owned(), since_start)))
    }

    async fn keys_of(&self, name: &str) -> Result<CounterShardKeys, Refusal> {
        Ok(CounterShardKeys::new(self.store().tag(), self.home(name).await?))
    }

    /// A call of a script of the archive, in the home shard of a counter.
    async fn shard_call<A: AsRef<[u8]>>(
        &mut self,
        script: CounterScript,
        name: &str,
        more_keys: &[String],
        arguments: &[A],
    ) -> Result<ScriptReply<CounterAnswer>, Refusal> {
        let keys: Vec<String> =
            self.keys_of(name).await?.archive().into_iter().chain(more_keys.iter().cloned()).collect();
        let mut command = ::redis::cmd("EVALSHA");
        command.arg(script.sha1()).arg(keys.len()).arg(keys);
        command.arg(self.clock_ms.load(Ordering::SeqCst)).arg(self.store().revision());
        for argument in arguments {
            command.arg(argument.as_ref());
        }
        let value = command.query_async(&mut self.redis).await.expect("a reply");
        Ok(ScriptReply::read(value, CounterAnswer::from_code)?)
    }

    async fn home(&self, name: &str) -> Result<u16, Refusal> {
        Ok(self.store().pending(&[counter(name)]).await?[0][0].0)
    }

    /// How many entries of each structure, over all shards.
    async fn keys(&mut self) -> String {
        let pattern = format!("tc:{{{}[/:]*}}:*", self.name);
        let found: Vec<String> = ::redis::cmd("KEYS").arg(pattern).query_async(&mut self.redis).await.expect("keys");
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for key in found {
            let structure = key.split("}:").nth(1).and_then(|name| name.split(':').next()).expect("a structure");
            let count = match structure {
                "events" | "pending" | "counts" | "recounts" | "regions" => "HLEN",
                "dirty" | "deleted" | "names" | "behind" => "ZCARD",
                "crossings" => "XLEN",
                _ => continue,
            };
            let count: u64 = ::redis::cmd(count).arg(&key).query_async(&mut self.redis).await.expect("a count");
            *counts.entry(structure.to_owned()).or_default() += count;
        }
        counts.into_iter().map(|(structure, count)| format!("{structure} {count}")).collect::<Vec<_>>().join(" ")
    }
}
