//! Waiting for a Redis that reads its data after a start: until then it refuses every other command (Q16).

use crate::{Link, LinkError};
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(100);
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Returns when Redis has loaded its data, and logs its progress until then. `url` is shown in the log: pass it
/// [`without_password`](tallystone_model::without_password).
pub(crate) async fn until_loaded(link: &Link, url: &str) -> Result<(), LinkError> {
    let mut logged_at: Option<Instant> = None;
    loop {
        match link.call(&redis::cmd("PING")).await {
            Err(error) if error.source.code() == Some("LOADING") => {}
            other => return other.map(drop),
        }
        if logged_at.is_none_or(|at| at.elapsed() >= LOG_EVERY) {
            let info = link.info("persistence").await?;
            let field = |name| info.get::<f64>(name);
            let (percent, left_s) = (field("loading_loaded_perc"), field("loading_eta_seconds"));
            tracing::warn!(redis = url, percent, left_s, "Redis is loading its data: waiting");
            logged_at = Some(Instant::now());
        }
        tokio::time::sleep(POLL).await;
    }
}
