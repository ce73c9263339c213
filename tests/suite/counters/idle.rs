//! Many namespaces are checked together (Q18), and those that were deleted cost nothing (N14).

use super::*;

/// Commands that this Redis has executed so far, those inside scripts included.
async fn commands(redis: &TestRedis) -> u64 {
    let mut connection = redis.connection().await;
    let info: String = redis::cmd("INFO").arg("commandstats").query_async(&mut connection).await.expect("statistics");
    let calls = |line: &str| line.split_once(":calls=")?.1.split(',').next()?.parse::<u64>().ok();
    info.lines().filter(|line| !line.starts_with("cmdstat_info")).filter_map(calls).sum()
}

#[tokio::test]
async fn q18_one_command_checks_many_namespaces_and_finds_each_dirty_counter() {
    let redis = Arc::new(TestRedis::start().await);
    let client = redis::Client::open(redis.url()).expect("an address");
    let clock_ms = Arc::new(AtomicU64::new(NOON_MS));
    let namespaces = RedisNamespaces::new(client, ReplicaWait::default(), Clock::Test(clock_ms));
    let names: Vec<NamespaceName> =
        (0..500).map(|number| NamespaceName::parse(format!("n{number}")).expect("a name")).collect();
    let tags: Vec<String> = names.iter().map(NamespaceName::to_string).collect();
    assert_eq!(namespaces.have_dirty(&[]).await, Ok(vec![]));
    let before = commands(&redis).await;
    assert_eq!(namespaces.have_dirty(&tags).await, Ok(vec![false; 500]));
    let spent = commands(&redis).await - before;
    assert!(spent <= 10, "{spent} commands");
    let mut expected = vec![false; 500];
    for number in [0, 63, 64, 77, 300, 499] {
        let namespace = namespaces.put(&names[number], NamespaceConfig::default()).await.expect("made");
        let store = namespaces.open(&namespace).await.expect("its stores");
        // In any of the shards.
        let appended = store.append(&[add(&format!("c{number}"), "t", NOON_MS, 1)]).await;
        assert_eq!(appended, [counted(NOON_MS)]);
        expected[number] = true;
        assert_eq!(namespaces.have_dirty(&tags).await.as_ref(), Ok(&expected));
    }
    let before = commands(&redis).await;
    assert_eq!(namespaces.have_dirty(&tags).await, Ok(expected));
    let spent = commands(&redis).await - before;
    assert!(spent <= 8 + 6 * 2 * 6 + 10, "{spent} commands");
}

#[tokio::test]
async fn n14_a_repeated_deletion_costs_the_same_however_often_the_name_was_deleted() {
    let redis = TestRedis::start().await;
    let client = redis::Client::open(redis.url()).expect("an address");
    let clock_ms = Arc::new(AtomicU64::new(NOON_MS));
    let namespaces = RedisNamespaces::new(client, ReplicaWait::default(), Clock::Test(clock_ms));
    let mut spent = Vec::new();
    for (name, times) in [("once", 1), ("often", 20)] {
        let name = NamespaceName::parse(name).expect("a name");
        for _ in 0..times {
            namespaces.put(&name, NamespaceConfig::default()).await.expect("made");
            let deleted = namespaces.delete(&name, None).await.expect("deleted");
            assert_eq!(namespaces.remove(&deleted, async { Ok(()) }).await, Ok(true));
        }
        let before = commands(&redis).await;
        assert!(matches!(namespaces.delete(&name, None).await, Err(Refusal::NamespaceNotFound { .. })));
        spent.push(commands(&redis).await - before);
    }
    assert!(spent[0] == spent[1], "{spent:?} commands");
}
