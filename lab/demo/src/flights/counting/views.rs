//! The flights as views, posted over HTTP: the route is the video, the aircraft its viewer.

use super::direct::route_of;
use crate::flights::plan::{FlightNo, Plan};
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Views of one call.
const BATCH: usize = 1_000;
/// How long it may take until every view has counted.
const COUNTED_WITHIN: Duration = Duration::from_secs(30);
const POLL_EVERY: Duration = Duration::from_millis(50);

/// What the view counter did.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Viewed {
    pub(in crate::flights) views: u64,
    pub(in crate::flights) posts_s: f64,
    /// From the last post to when every view had counted.
    pub(in crate::flights) counted_after_s: f64,
    /// Routes whose views are its aircraft and whose page views are its flights, and all of them.
    pub(in crate::flights) equal: u64,
    pub(in crate::flights) routes: u64,
}

/// The counts of a video.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Counts {
    view_count: i64,
    page_views: Option<i64>,
}

/// Posts a view for each flight, and waits until each route has its counts.
pub(super) async fn count(
    url: &str,
    plan: &Plan,
    flights: &[FlightNo],
    direct: &BTreeMap<String, i64>,
    aircraft_of_route: &BTreeMap<String, i64>,
) -> Result<Viewed> {
    let http = reqwest::Client::builder().no_proxy().build().context("cannot make an HTTP client")?;
    let begun = Instant::now();
    for batch in flights.chunks(BATCH) {
        let view = |number: &FlightNo| {
            let flight = &plan.flights[*number as usize];
            let route = route_of(plan.origins.name(flight.origin), plan.dests.name(flight.dest));
            let aircraft = plan.aircraft.name(flight.aircraft);
            json!({"videoId": route, "userId": aircraft, "timestamp": "2013-01-31T00:00:00Z"})
        };
        let body = json!({"views": batch.iter().map(view).collect::<Vec<_>>()}).to_string();
        let post = http.post(format!("{url}/v1/views:batch")).header("content-type", "application/json").body(body);
        let answer = post.send().await.context("cannot post views")?;
        ensure!(answer.status().as_u16() == 202, "the view counter answers {}", answer.status());
        let answer = answer.bytes().await?;
        ensure!(!String::from_utf8_lossy(&answer).contains("error"), "the view counter refuses a view");
    }
    let (posts_s, posted_at) = (begun.elapsed().as_secs_f64(), Instant::now());
    let mut waiting: Vec<&String> = aircraft_of_route.keys().collect();
    while !waiting.is_empty() && posted_at.elapsed() < COUNTED_WITHIN {
        let mut unequal = Vec::new();
        for route in waiting {
            let read = http.get(format!("{url}/v1/videos/{route}/views")).send().await.context("cannot read views")?;
            let counts: Option<Counts> = serde_json::from_slice(&read.bytes().await?).ok();
            let expected = (aircraft_of_route[route], direct.get(&format!("route/{route}")).copied());
            if counts.is_none_or(|counts| (counts.view_count, counts.page_views) != expected) {
                unequal.push(route);
            }
        }
        waiting = unequal;
        tokio::time::sleep(POLL_EVERY).await;
    }
    let routes = aircraft_of_route.len() as u64;
    let equal = routes - waiting.len() as u64;
    let counted_after_s = posted_at.elapsed().as_secs_f64();
    Ok(Viewed { views: flights.len() as u64, posts_s, counted_after_s, equal, routes })
}
