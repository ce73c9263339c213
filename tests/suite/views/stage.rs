//! A view counter within this process, and a client of it.

use crate::counting::house::{House, until};
use reqwest::{Client, Method};
use serde_json::Value;
use tallystone_assembly::Config;
use tallystone_link::RedisConfig;
use tallystone_serving::Running;
use tallystone_tests::{http_client, volatile};
use tallystone_views::{ViewNamespace, ViewsConfig};
use tokio::net::TcpListener;

/// A client over HTTP.
pub(crate) struct Http {
    client: Client,
    pub(crate) url: String,
}

impl Http {
    pub(crate) fn new(url: String) -> Http {
        Http { client: http_client(), url }
    }

    /// A call and its status; an empty body is `null`. An error: no answer came.
    pub(crate) async fn try_call(&self, method: Method, path: &str, body: String) -> reqwest::Result<(u16, Value)> {
        let request = self.client.request(method, format!("{}{path}", self.url));
        let response = request.header("content-type", "application/json").body(body).send().await?;
        let (status, text) = (response.status().as_u16(), response.text().await?);
        Ok((status, serde_json::from_str(&text).unwrap_or_default()))
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.try_call(Method::POST, path, body.to_string()).await.expect("an answer")
    }

    /// Posts a view that is accepted.
    pub(crate) async fn accepted(&self, path: &str, body: &Value) {
        let (status, answer) = self.post(path, body).await;
        assert_eq!((status, answer), (202, Value::Null), "{body}");
    }

    /// Posts a view until it is accepted.
    pub(crate) async fn until_accepted(&self, body: &Value) {
        let post = async || self.try_call(Method::POST, "/v1/views", body.to_string()).await.ok();
        until(post, |answer| matches!(answer, Some((202, _)))).await;
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        self.try_call(Method::GET, path, String::new()).await.expect("an answer")
    }

    /// Waits until the health of the log is reported so.
    pub(crate) async fn until_log_is(&self, status: &str) {
        let health = async || self.get("/health?service=tallystone.views.log").await;
        let code = if status == "SERVING" { 200 } else { 503 };
        until(health, |(found, body)| *found == code && body["status"] == status).await;
    }

    /// Waits until the counts at a path are as expected.
    pub(crate) async fn until(&self, path: &str, is_expected: impl Fn(&Value) -> bool) -> Value {
        until(async || self.get(path).await.1, is_expected).await
    }

    /// Waits until a video has these counts. They are separate counters: one may be known before the others.
    pub(crate) async fn until_counts(&self, path: &str, views: u64, page_views: u64, daily_visitors: u64) -> Value {
        let expected = [("viewCount", views), ("pageViews", page_views), ("dailyVisitors", daily_visitors)];
        self.until(path, |counts| expected.iter().all(|(kind, count)| counts[*kind] == *count)).await
    }

    /// Waits until a video has this count.
    pub(crate) async fn until_count(&self, path: &str, count: u64) -> Value {
        self.until(path, |counts| counts["viewCount"] == count).await
    }
}

/// A view counter within this process.
pub(crate) struct Stage {
    pub(crate) http: Http,
    pub(crate) house: House,
    _views: Running,
}

impl Stage {
    /// With these namespaces and partitions.
    pub(crate) async fn start(namespaces: Vec<ViewNamespace>, partitions: u16) -> Stage {
        let house = House::without_rollups().await;
        let log = house.redis.url();
        let views = ViewsConfig { partitions, namespaces, ..ViewsConfig::default() };
        Stage::start_on(house, &log, views).await
    }

    /// With its log on another Redis than the counters, or behind a proxy.
    pub(crate) async fn start_on(house: House, log: &str, views: ViewsConfig) -> Stage {
        Stage::start_with(house, volatile(log), views).await
    }

    /// As above, but no process compares the clock of its log with another one.
    pub(crate) async fn start_on_any_clock(house: House, log: &str, views: ViewsConfig) -> Stage {
        Stage::start_with(house, any_clock(log), views).await
    }

    async fn start_with(house: House, log: RedisConfig, views: ViewsConfig) -> Stage {
        let views = serve_with(&house.urls[0], log, views).await;
        Stage { http: Http::new(views.url()), house, _views: views }
    }
}

/// A log whose clock no process compares with another one.
pub(crate) fn any_clock(log: &str) -> RedisConfig {
    RedisConfig { clock_skew_max_ms: 0, ..volatile(log) }
}

/// A view counter on this log, whose counts these counters have.
pub(crate) async fn serve(counters_url: &str, log: &str, views: ViewsConfig) -> Running {
    serve_with(counters_url, volatile(log), views).await
}

async fn serve_with(counters_url: &str, log: RedisConfig, views: ViewsConfig) -> Running {
    let views = ViewsConfig { counters_url: counters_url.to_owned(), ..views };
    let config = Config { redis: log, views, ..Config::default() };
    let host = tallystone_assembly::views(&config).await.expect("a view counter");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    Running::start(host, listener).expect("a bound port")
}
