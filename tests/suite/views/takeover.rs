//! A partition changes its owner only when the owner has gone, and soon then (V3).

use super::load::{post_all, until_all_counted};
use super::machines::Machines;
use super::stage::Stage;
use super::view;
use crate::counting::house::{House, until};
use crate::crash::proxy::Proxy;
use std::time::Duration;
use tallystone_link::wall_ms;
use tallystone_tests::volatile;
use tallystone_views::ViewsConfig;
use tallystone_views::log::{Acquired, ViewLog};
use tokio::time::Instant;

/// This number of pages of pairs, each with this delay, takes longer than the lease.
const PAGES: u64 = 16;
const PAGE_DELAY: Duration = Duration::from_millis(500);
/// Entries of one page.
const PAGE_ENTRIES: u64 = 64;

#[tokio::test(flavor = "multi_thread")]
async fn v3_an_owner_that_reads_pairs_for_longer_than_the_lease_keeps_its_partition() {
    let house = House::without_rollups().await;
    let redis_url = house.redis.url();
    let mut redis = house.redis.connection().await;
    let begin_ms = wall_ms() - 60_000;
    let mut pairs = redis::pipe();
    for number in 0..PAGES * PAGE_ENTRIES {
        let at_ms = begin_ms + number;
        let mut record = [&at_ms.to_be_bytes()[..], &1_u32.to_be_bytes()].concat();
        record.extend([&[1; 4][..], &number.to_be_bytes()].concat());
        let command = pairs.cmd("XADD").arg("tc:views:{0}:pairs:default:sliding-3600000");
        command.arg(format!("{at_ms}-0")).arg("p").arg(record);
    }
    let _: Vec<String> = pairs.query_async(&mut redis).await.expect("pairs");
    let port = redis_url.rsplit(':').next().and_then(|port| port.trim_end_matches('/').parse().ok());
    let proxy = Proxy::start(port.expect("a port")).await;
    proxy.delay(":pairs:default:sliding", PAGE_DELAY);
    let views = ViewsConfig { partitions: 1, ..ViewsConfig::default() };
    let Stage { http, .. } = &Stage::start_on(house, &proxy.url(), views).await;
    let holder = async || {
        let mut command = redis::cmd("HGET");
        let holder: Option<String> =
            command.arg("tc:views:{0}:state").arg("holder").query_async(&mut redis.clone()).await.expect("a state");
        holder
    };
    until(holder, Option::is_some).await;
    http.accepted("/v1/views", &view("v", "u")).await;
    let lease = Duration::from_millis(ViewsConfig::default().lease_ms.into());
    let other = ViewLog::connect(&volatile(&redis_url), 1).await.expect("a log");
    let counted = async || {
        let acquired = other.partitions()[0].acquire("another process", lease).await.expect("an answer");
        assert!(matches!(acquired, Acquired::Held(_)), "{acquired:?}");
        http.get("/v1/videos/v/views").await.1
    };
    until(counted, |counts| counts["viewCount"] == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v3_a_process_that_stops_in_order_gives_its_partitions_to_another_one_at_once() {
    let lease = Duration::from_secs(5);
    let mut machines = Machines::start_with(&format!("lease_ms = {}\n", lease.as_millis()), 1).await;
    post_all(&machines.http(0), 0..20).await;
    until_all_counted(&machines.http(0), 20).await;
    machines.add_views().await;
    machines.views[0].stop().await;
    let stopped_at = Instant::now();
    post_all(&machines.http(1), 0..40).await;
    until_all_counted(&machines.http(1), 40).await;
    let took = stopped_at.elapsed();
    assert!(took < lease * 3 / 5, "{took:?} with a lease of {lease:?}");
}

/// How long after the end of the lease the other process may have counted. A quiet machine needs half a second, and a busy one may stop
/// the whole test for a moment.
const LATE_MAX: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn v3_views_of_an_owner_that_was_killed_count_when_its_lease_has_ended() {
    for lease in [2, 5].map(Duration::from_secs) {
        let mut machines = Machines::start_with(&format!("lease_ms = {}\n", lease.as_millis()), 1).await;
        post_all(&machines.http(0), 0..20).await;
        until_all_counted(&machines.http(0), 20).await;
        machines.add_views().await;
        machines.views[0].kill().await;
        let killed_at = Instant::now();
        // Those that have counted already are among them.
        post_all(&machines.http(1), 0..40).await;
        until_all_counted(&machines.http(1), 40).await;
        let took = killed_at.elapsed();
        println!("lease {lease:?}: counted {took:?} after the owner was killed");
        // The owner has renewed it within its last fifth.
        assert!((lease * 3 / 5..lease + LATE_MAX).contains(&took), "{took:?} after a lease of {lease:?}");
    }
}
