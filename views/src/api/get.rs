//! `GET /v1/videos/{videoId}/views`.

use super::call::{Api, Caller, GetViews};
use super::status::of_call;
use crate::Refusal;
use crate::config::DEFAULT_NAMESPACE;
use crate::service::Counts;
use crate::view::{VIDEO_BYTES_MAX, check_id};
use axum::Json;
use axum::extract::{RawQuery, State};
use jiff::civil::Date;
use serde::Serialize;
use std::sync::Arc;
use tallystone_serving::http::{FaultBody, PathParams};

/// The counts of a video.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CountsBody {
    video_id: String,
    view_count: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    page_views: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    daily_visitors: Option<i64>,
    /// The day of the daily visitors.
    #[serde(skip_serializing_if = "Option::is_none")]
    day: Option<String>,
    /// How long ago these counts were read from the counters.
    age_ms: u64,
}

type CountsResult = Result<Json<CountsBody>, FaultBody>;
type Views = State<Arc<Api>>;

pub(super) async fn counts(
    api: Views,
    caller: Caller,
    PathParams(video): PathParams<String>,
    query: RawQuery,
) -> CountsResult {
    read(&api, caller, DEFAULT_NAMESPACE.to_owned(), video, query).await
}

pub(super) async fn counts_in(
    api: Views,
    caller: Caller,
    PathParams((namespace, video)): PathParams<(String, String)>,
    query: RawQuery,
) -> CountsResult {
    read(&api, caller, namespace, video, query).await
}

async fn read(api: &Api, caller: Caller, namespace: String, video: String, RawQuery(query): RawQuery) -> CountsResult {
    let counts = async {
        let day = check_id("videoId", &video, VIDEO_BYTES_MAX).and_then(|()| day_of(query.as_deref()));
        let counts = async { api.views.counts(&namespace, &video, day?).await };
        counts.await.map_err(|refusal| of_call(&refusal))
    };
    let call = GetViews { namespace: namespace.clone() };
    let Counts { views, page_views, daily_visitors, age } = api.run(caller, call, counts).await?;
    Ok(Json(CountsBody {
        video_id: video,
        view_count: views,
        page_views,
        daily_visitors: daily_visitors.map(|(_, count)| count),
        day: daily_visitors.map(|(day, _)| day.to_string()),
        age_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
    }))
}

/// The day of `?day=2026-11-25`.
fn day_of(query: Option<&str>) -> Result<Option<Date>, Refusal> {
    let Some(query) = query.filter(|query| !query.is_empty()) else { return Ok(None) };
    let day = query.strip_prefix("day=").and_then(|day| day.parse().ok());
    day.map(Some).ok_or_else(|| Refusal::invalid("query", "has something else than a day, such as day=2026-11-25"))
}
