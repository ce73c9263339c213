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
use tokio::task::JoinHandle;
use tokio::time::sleep;

const VIDEOS: usize = 12;
const USERS: usize = 4_000;
const POSTERS: usize = 6;

/// Pairs that were accepted.
pub(crate) type Pairs = BTreeSet<(usize, usize)>;

/// Callers that post until they are stopped.
pub(crate) struct Posters {
    tasks: Vec<JoinHandle<Pairs>>,
    stopping: Arc<AtomicBool>,
    posted: Arc<AtomicUsize>,
}

impl Posters {
    /// Starts them, each with its own view counter.
    pub(crate) fn start(seed: u64, http: impl Fn(usize) -> Http) -> Posters {
        let (stopping, posted) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let start = |number| tokio::spawn(post(http(number), seed ^ number as u64, stopping.clone(), posted.clone()));
        Posters { tasks: (0..POSTERS).map(start).collect(), stopping, posted }
    }

    /// Waits until that much more was posted.
    pub(crate) async fn until_posted(&self, more: usize) {
        let goal = self.posted.load(Ordering::Relaxed) + more;
        crate::counting::house::until(async || self.posted.load(Ordering::Relaxed), |posted| *posted >= goal).await;
    }

    /// Stops them. Returns the pairs that were accepted.
    pub(crate) async fn stop(self) -> Pairs {
        self.stopping.store(true, Ordering::Relaxed);
        let mut accepted = Pairs::new();
        for task in self.tasks {
            accepted.extend(task.await.expect("no panic"));
        }
        accepted
    }
}

/// Posts random pairs, alone and in batches, each until it is accepted, until it is stopped.
async fn post(http: Http, seed: u64, stopping: Arc<AtomicBool>, posted: Arc<AtomicUsize>) -> Pairs {
    let mut random = StdRng::seed_from_u64(seed);
    let mut accepted = Pairs::new();
    while !stopping.load(Ordering::Relaxed) {
        let size = if random.random_bool(0.5) { 1 } else { random.random_range(2..40) };
        // The first video is viral.
        let video = |random: &mut StdRng| random.random_range(0..VIDEOS) * usize::from(random.random_bool(0.6));
        let pairs: Vec<_> = (0..size).map(|_| (video(&mut random), random.random_range(0..USERS))).collect();
        let views: Vec<Value> =
            pairs.iter().map(|(video, user)| view(&format!("v{video}"), &format!("u{user}"))).collect();
        until_accepted(&http, &views).await;
        posted.fetch_add(size, Ordering::Relaxed);
        accepted.extend(pairs);
    }
    accepted
}

/// Posts one view by itself, or several as a batch. Returns whether all of them were accepted.
pub(crate) async fn is_accepted(http: &Http, views: &[Value]) -> bool {
    let (path, body) = match views {
        [one] => ("/v1/views", one.to_string()),
        many => ("/v1/views:batch", json!({ "views": many }).to_string()),
    };
    let Ok((status, answer)) = http.try_call(Method::POST, path, body).await else { return false };
    let results = answer["results"].as_array().into_iter().flatten();
    status == 202 && results.into_iter().all(|result| *result == json!({}))
}

/// Posts views, again and again, until all of them are accepted.
pub(crate) async fn until_accepted(http: &Http, views: &[Value]) {
    while !is_accepted(http, views).await {
        sleep(Duration::from_millis(20)).await;
    }
}

/// Posts a view of each of these users to each of eight videos.
pub(crate) async fn post_all(http: &Http, users: std::ops::Range<u64>) {
    let views = (0..8).flat_map(|video| users.clone().map(move |user| view(&format!("z{video}"), &user.to_string())));
    let (status, answer) = http.post("/v1/views:batch", &json!({"views": views.collect::<Vec<_>>()})).await;
    assert_eq!(status, 202, "{answer}");
}

/// Waits until each of the videos of [`post_all`] has this count.
pub(crate) async fn until_all_counted(http: &Http, count: u64) {
    for video in 0..8 {
        http.until_count(&format!("/v1/videos/z{video}/views"), count).await;
    }
}

pub(crate) async fn assert_exact(http: &Http, accepted: &Pairs) {
    let mut expected: BTreeMap<usize, u64> = BTreeMap::new();
    accepted.iter().for_each(|(video, _)| *expected.entry(*video).or_default() += 1);
    for (video, expected) in expected {
        let path = format!("/v1/videos/v{video}/views");
        let counts = http.until_count(&path, expected).await;
        assert!(counts["pageViews"].as_u64() >= Some(expected), "{counts}");
    }
}
