//! `tallystone dev` counts views.

use super::stage::Http;
use super::view;
use crate::system::dev::Dev;

#[tokio::test]
async fn v1_dev_counts_views_out_of_the_box() {
    let dev = Dev::start().await;
    let http = Http::new(dev.ready["views"].as_str().expect("a URL").to_owned());
    http.accepted("/v1/views", &view("cats", "mia")).await;
    http.until_count("/v1/videos/cats/views", 1).await;
    assert_eq!(dev.counter(&["get", "--namespace", "views-default", "cats"]).await["count"], 1);
}
