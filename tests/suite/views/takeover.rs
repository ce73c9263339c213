//! A partition changes its owner only when the owner has gone (V3).

use super::stage::Stage;
use super::view;
use crate::counting::house::{House, until};
use crate::crash::proxy::Proxy;
use std::time::Duration;
use tallystone_link::wall_ms;
use tallystone_tests::volatile;
use tallystone_views::ViewsConfig;
use tallystone_views::log::{Acquired, ViewLog};

/// This number of pages of pairs, each with this delay, takes longer than the lease of 5 s.
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
    let other = ViewLog::connect(&volatile(&redis_url), 1).await.expect("a log");
    let counted = async || {
        let acquired = other.partitions()[0].acquire("another process").await.expect("an answer");
        assert!(matches!(acquired, Acquired::Held(_)), "{acquired:?}");
        http.get("/v1/videos/v/views").await.1
    };
    until(counted, |counts| counts["viewCount"] == 1).await;
}
