//! Callers that post random pairs under load, and the counts that are expected of them.

use super::stage::Http;
use super::view;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::sleep;

const VIDEOS: usize = 12;
const USERS: usize = 4_000;
pub(super) const POSTERS: usize = 6;

/// Pairs that were accepted.
pub(super) type Pairs = BTreeSet<(usize, usize)>;

/// Posts random pairs, alone and in batches, each until it is accepted, until it is stopped.
pub(super) async fn post(http: Http, seed: u64, stopping: Arc<AtomicBool>, posted: Arc<AtomicUsize>) -> Pairs {
    let mut random = StdRng::seed_from_u64(seed);
    let mut accepted = Pairs::new();
    while !stopping.load(Ordering::Relaxed) {
        let size = if random.random_bool(0.5) { 1 } else { random.random_range(2..40) };
        // The first video is viral.
        let video = |random: &mut StdRng| random.random_range(0..VIDEOS) * usize::from(random.random_bool(0.6));
        let pairs: Vec<_> = (0..size).map(|_| (video(&mut random), random.random_range(0..USERS))).collect();
        let bodies: Vec<Value> =
            pairs.iter().map(|(video, user)| view(&format!("v{video}"), &format!("u{user}"))).collect();
        let (path, body) = match &bodies[..] {
            [one] => ("/v1/views", one.to_string()),
            many => ("/v1/views:batch", json!({ "views": many }).to_string()),
        };
        loop {
            let answer = http.try_call(Method::POST, path, body.clone()).await;
            let is_accepted = |(status, answer): &(u16, Value)| {
                let results = answer["results"].as_array().into_iter().flatten();
                *status == 202 && results.into_iter().all(|result| *result == json!({}))
            };
            if answer.as_ref().is_ok_and(is_accepted) {
                break;
            }
            sleep(Duration::from_millis(20)).await;
        }
        posted.fetch_add(size, Ordering::Relaxed);
        accepted.extend(pairs);
    }
    accepted
}

/// Waits until that much more was posted.
pub(super) async fn until_posted(posted: &AtomicUsize, more: usize) {
    let goal = posted.load(Ordering::Relaxed) + more;
    crate::counting::house::until(async || posted.load(Ordering::Relaxed), |posted| *posted >= goal).await;
}

pub(super) async fn assert_exact(http: &Http, accepted: &Pairs) {
    let mut expected: BTreeMap<usize, u64> = BTreeMap::new();
    accepted.iter().for_each(|(video, _)| *expected.entry(*video).or_default() += 1);
    for (video, expected) in expected {
        let path = format!("/v1/videos/v{video}/views");
        let counts = http.until_count(&path, expected).await;
        assert!(counts["pageViews"].as_u64() >= Some(expected), "{counts}");
    }
}
