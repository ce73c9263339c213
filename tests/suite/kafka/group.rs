//! Several indexers of one group, between which partitions move.

use super::foreign::ForeignLeader;
use super::*;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use tallystone_indexer::kafka::KafkaSink;

/// Delivers messages until it is stopped. Returns how many.
fn pour(topic: &KafkaOptions) -> (CancellationToken, JoinHandle<usize>) {
    let stop = CancellationToken::new();
    let (sink, stopped) = (KafkaSink::new(topic).expect("a sink"), stop.clone());
    let pouring = tokio::spawn(async move {
        let mut count = 0;
        while !stopped.is_cancelled() {
            // As a relay does: it repeats a delivery that failed.
            let events = lives(count..count + 20, 3);
            while sink.deliver(events.clone().into()).await.is_err() {}
            count += 20;
        }
        count
    });
    (stop, pouring)
}

#[tokio::test]
async fn q19_a_second_indexer_shares_the_partitions_and_gets_all_when_the_first_dies() {
    let kafka = TestKafka::shared().await;
    let topic = topic_of(&kafka, "group");
    let (stop, pouring) = pour(&topic);
    let (first, second) = (RecordingStore::new(), RecordingStore::new());
    let dying = RunningIndexer::start(&first, &topic);
    first.until("the first events", |recording| recording.events.len() > 300).await;
    let living = RunningIndexer::start(&second, &topic);
    second.until("events of its partitions", |recording| recording.events.len() > 300).await;
    let before = first.recording().events.len();
    first.until("more events of the first", |recording| recording.events.len() > before + 300).await;
    // At any point of its work, before it commits its last offsets.
    dying.kill().await;
    stop.cancel();
    let messages = pouring.await.expect("it does not panic");
    let all = || first.recording().events.keys().chain(second.recording().events.keys()).cloned().collect::<Vec<_>>();
    second
        .until("the remaining events", |recording| {
            let first = first.recording();
            let only_first = first.events.keys().filter(|key| !recording.events.contains_key(*key)).count();
            recording.events.len() + only_first == messages * 3
        })
        .await;
    let mut all = all();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), messages * 3);
    living.stop().await;
}

#[tokio::test]
async fn q19_joining_and_leaving_indexers_lose_nothing() {
    let kafka = TestKafka::shared().await;
    let topic = topic_of(&kafka, "comeandgo");
    let (stop, pouring) = pour(&topic);
    let store = RecordingStore::new();
    let mut running = vec![RunningIndexer::start(&store, &topic)];
    for round in 0..6 {
        let before = store.recording().events.len();
        store.until("more events", |recording| recording.events.len() > before + 300).await;
        running.push(RunningIndexer::start(&store, &topic));
        if running.len() > 2 {
            let oldest = running.remove(0);
            if round % 2 == 0 { oldest.kill().await } else { oldest.stop().await }
        }
    }
    stop.cancel();
    let messages = pouring.await.expect("it does not panic");
    store.until_events(messages * 3).await;
    assert_eq!(store.recording().whole_messages(), messages);
    for indexer in running {
        indexer.stop().await;
    }
}

#[tokio::test]
async fn q19_of_two_indexers_with_one_name_one_ends_and_names_the_setting() {
    let kafka = TestKafka::shared().await;
    let topic = topic_of(&kafka, "twins");
    let store = RecordingStore::new();
    let sink = KafkaSink::new(&topic).expect("a sink");
    sink.deliver(lives(0..20, 1).into()).await.expect("delivered");
    let twin = || IndexerOptions { instance: Some("twin".to_owned()), ..options(&topic) };
    let mut first = RunningIndexer::start_with(&store, twin());
    store.until_events(20).await;
    let mut second = RunningIndexer::start_with(&store, twin());
    let (ended, other) = tokio::select! {
        ended = first.ended() => (ended, second),
        ended = second.ended() => (ended, first),
    };
    let ended = ended.expect_err("its name is taken");
    assert!(matches!(ended, IndexerError::Replaced(_)) && ended.to_string().contains("indexer.instance"), "{ended}");
    sink.deliver(lives(20..40, 1).into()).await.expect("delivered");
    store.until_events(40).await;
    other.stop().await;
}

/// A broker that was killed may come back with an earlier member of a name, and fence the one that lives.
#[tokio::test]
async fn q19_an_indexer_that_is_fenced_once_joins_again() {
    let kafka = TestKafka::shared().await;
    let topic = topic_of(&kafka, "fenced");
    let store = RecordingStore::new();
    let sink = KafkaSink::new(&topic).expect("a sink");
    sink.deliver(lives(0..20, 1).into()).await.expect("delivered");
    let indexer =
        RunningIndexer::start_with(&store, IndexerOptions { instance: Some("one".to_owned()), ..options(&topic) });
    store.until_events(20).await;
    let intruder = {
        let topic = topic.clone();
        move || {
            let consumer: BaseConsumer = ClientConfig::new()
                .set("bootstrap.servers", &topic.brokers)
                .set("group.id", &topic.topic)
                .set("group.instance.id", "one")
                .set("partition.assignment.strategy", "cooperative-sticky")
                .create()
                .expect("a consumer");
            consumer.subscribe(&[&topic.topic]).expect("a subscription");
            while consumer.assignment().expect("an assignment").count() == 0 {
                drop(consumer.poll(Duration::from_millis(100)));
            }
        }
    };
    tokio::task::spawn_blocking(intruder).await.expect("no panic");
    sink.deliver(lives(20..40, 1).into()).await.expect("delivered");
    store.until_events(40).await;
    indexer.stop().await;
}

/// librdkafka sometimes reads a partition no more after a restart of Kafka, and says nothing.
#[tokio::test]
async fn q19_an_indexer_without_records_joins_again() {
    let kafka = TestKafka::shared().await;
    let topic = topic_of(&kafka, "silent");
    let store = RecordingStore::new();
    let sink = KafkaSink::new(&topic).expect("a sink");
    sink.deliver(lives(0..20, 1).into()).await.expect("delivered");
    let indexer = RunningIndexer::start(&store, &topic);
    store.until_events(20).await;
    let member = async || {
        let topic = topic.clone();
        let list = move || {
            let consumer: BaseConsumer =
                ClientConfig::new().set("bootstrap.servers", &topic.brokers).create().expect("a consumer");
            let groups = consumer.fetch_group_list(Some(&topic.topic), DEADLINE).expect("groups");
            let mut members = groups.groups().iter().flat_map(|group| group.members());
            members.next().map(|member| member.id().to_owned())
        };
        tokio::task::spawn_blocking(list).await.expect("no panic")
    };
    let first = member().await.expect("a member");
    // Nothing is written, not even watermarks: that looks as if nothing were read.
    let again = async {
        while member().await.is_none_or(|now| now == first) {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(DEADLINE, again).await.expect("it joins again");
    sink.deliver(lives(20..40, 1).into()).await.expect("delivered");
    store.until_events(40).await;
    indexer.stop().await;
}

/// Also with an instance name: if such a member left and joined again, Kafka would give it the same partitions without a rebalance.
#[tokio::test]
async fn q19_an_indexer_reads_partitions_that_the_leader_of_its_group_gave_to_no_member() {
    let kafka = TestKafka::shared().await;
    tokio::join!(is_read_without_a_leader(&kafka, None), is_read_without_a_leader(&kafka, Some("one".to_owned())));
}

async fn is_read_without_a_leader(kafka: &TestKafka, instance: Option<String>) {
    let topic = topic_of(kafka, if instance.is_some() { "leaderless-named" } else { "leaderless" });
    KafkaSink::new(&topic).expect("a sink").deliver(lives(0..20, 1).into()).await.expect("delivered");
    let options = IndexerOptions { instance, ..options(&topic) };
    let (brokers, group, name) = (topic.brokers.clone(), options.group.clone(), topic.topic.clone());
    let join = move || ForeignLeader::join(&brokers, &group, &name, "cooperative-sticky");
    let leader = tokio::task::spawn_blocking(join).await.expect("a leader");
    let store = RecordingStore::new();
    let running = RunningIndexer::start_with(&store, options);
    tokio::task::spawn_blocking(move || leader.withhold_from(1)).await.expect("a member triggers a rebalance");
    store.until_events(20).await;
    running.stop().await;
}
