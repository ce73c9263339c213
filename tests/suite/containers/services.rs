//! The services of tests as containers.

use super::engine::podman;
use tallystone_tests::TestRedis;

/// The containers of tests that publish this port.
fn publishing(port: &str) -> String {
    let containers = podman(&["ps", "--filter", "label=tallystone-test", "--format", "{{.Ports}}"]);
    containers.lines().filter(|ports| ports.contains(&format!("127.0.0.1:{port}->"))).collect()
}

#[tokio::test]
#[ignore = "needs a container engine: ./test --containers"]
async fn a_service_of_a_test_is_a_container_and_goes_with_its_last_user() {
    let redis = TestRedis::start().await;
    let port = redis.url().rsplit(':').next().expect("a port").to_owned();
    assert_ne!(publishing(&port), "", "no container serves {}", redis.url());
    // Also if the test panics.
    let ended = tokio::spawn(async move {
        let _redis = redis;
        panic!("as a test that fails");
    });
    assert!(ended.await.expect_err("a panic").is_panic());
    assert_eq!(publishing(&port), "");
}
