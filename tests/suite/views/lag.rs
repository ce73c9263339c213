//! Reads and counts under load (V4), as far as they do not depend on the speed of the machine. `bench views` has the figures.

use super::stage::Stage;
use super::view;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use tallystone_views::ViewNamespace;

/// Batches that are posted at the same time, how many of such rounds there are, and the views of a batch.
const POSTERS: u64 = 4;
const ROUNDS: u64 = 25;
const BATCH: u64 = 1_000;
/// Of the views of a batch, one in this many is of another video than the viral one.
const OTHERS: u64 = 10;
const OTHER_VIDEOS: u64 = 7;

/// A batch of new users.
fn batch(number: u64) -> Value {
    let view = |user: u64| {
        let video = match user % OTHERS {
            0 => format!("v{}", user / OTHERS % OTHER_VIDEOS),
            _ => "viral".to_owned(),
        };
        view(&video, &user.to_string())
    };
    json!({ "views": (number * BATCH..(number + 1) * BATCH).map(view).collect::<Vec<_>>() })
}

#[tokio::test(flavor = "multi_thread")]
async fn v4_reads_are_answered_under_load_and_a_viral_video_costs_the_counters_few_adds() {
    let stage = Stage::start(vec![ViewNamespace::default()], 4).await;
    let (http, posted, accepted) = (&stage.http, AtomicU64::new(0), AtomicU64::new(0));
    let post = async |poster: u64| {
        for round in 0..ROUNDS {
            posted.fetch_add(BATCH, Ordering::SeqCst);
            let batch = batch(poster * ROUNDS + round);
            let (status, answer) = http.post("/v1/views:batch", &batch).await;
            let refused = answer["results"].as_array().expect("results").iter().find(|result| **result != json!({}));
            assert_eq!((status, refused), (202, None));
            accepted.fetch_add(BATCH, Ordering::SeqCst);
        }
    };
    let (all, path) = (POSTERS * ROUNDS * BATCH, "/v1/videos/viral/views");
    let read = async || {
        let (mut reads, mut last) = (0, 0);
        while accepted.load(Ordering::SeqCst) < all {
            let (status, counts) = http.get(path).await;
            let most = posted.load(Ordering::SeqCst);
            let count = counts["viewCount"].as_u64().expect("a count");
            assert!(status == 200 && (last..=most).contains(&count), "{counts} after {last}, {most} were posted");
            (reads, last) = (reads + 1, count);
        }
        reads
    };
    let posts = futures::future::join_all((0..POSTERS).map(post));
    let (_, reads) = tokio::join!(posts, read());
    let viral = all / OTHERS * (OTHERS - 1);
    http.until_counts(path, viral, viral, viral).await;
    for number in 0..OTHER_VIDEOS {
        let views = (all / OTHERS - number).div_ceil(OTHER_VIDEOS);
        http.until_count(&format!("/v1/videos/v{number}/views"), views).await;
    }
    // A commit covers at least one entry of the log, an entry at least one batch, and a commit is one add of the counter.
    let events = stage.house.clients[0].list_events("views-default", "viral", 0, 0, 1_000, "").await.expect("events");
    let adds = events.items.len() as u64;
    println!("{reads} reads; {viral} views of one video were {adds} adds of its counter");
    assert!(adds <= POSTERS * ROUNDS, "{adds} adds");
    assert_eq!(events.items.iter().map(|event| event.delta).sum::<i64>().cast_unsigned(), viral);
}
