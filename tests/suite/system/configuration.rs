//! What is wrong with the configuration, or with Redis, is said in one line before a port opens.

use super::program::{self, Ended, Running};
use std::net::{Ipv4Addr, TcpListener};
use tallystone_local::{Fsync, PrivateRedis, PrivateRedisOptions};
use tempfile::TempDir;

async fn server(args: &[&str], file: Option<&str>) -> Ended {
    let dir = TempDir::new().expect("a temporary folder");
    let path = dir.path().join("t.toml");
    let mut args = [&["server", "--log", "error"], args].concat();
    if let Some(text) = file {
        std::fs::write(&path, text).expect("a file");
        args.extend(["--config", path.to_str().expect("a plain path")]);
    }
    program::run(program::command(&args), "").await
}

/// One line says so, and a hint at most.
fn assert_says(ended: &Ended, code: i32, words: &str) {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    assert!(ended.stderr.contains(words), "{words}: {ended:?}");
    let lines: Vec<&str> = ended.stderr.lines().filter(|line| !line.trim().is_empty()).collect();
    assert!(lines[0].starts_with("error: "), "{ended:?}");
    assert!(
        lines.len() == 1 || lines[1..].iter().all(|line| line.contains("hint: ") || line.contains("--help")),
        "{ended:?}"
    );
}

#[tokio::test]
async fn bad_configuration_opens_no_port() {
    // Somebody listens where Redis should be, and must not be asked: configuration comes first.
    let redis = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    redis.set_nonblocking(true).expect("a socket");
    let url = format!("redis://{}", redis.local_addr().expect("a bound port"));
    let with_redis = |args: &[&'static str]| [&["--redis-url", url.as_str()], args].concat().join("\n");
    let args = |text: &str| text.split('\n').map(str::to_owned).collect::<Vec<_>>();
    for (flags, file, words) in [
        (&[][..], Some("lisen = '127.0.0.1:1'"), "unknown key `lisen`"),
        (&[], Some("listen = '127.0.0.1:99999'"), "`listen`"),
        (&[], Some("sweep_lead_ms = 'soon'"), "`sweep_lead_ms`"),
        (&[], Some("sweep_lead_ms = 1"), "sweep_lead_ms"),
        (
            &[],
            Some("[[queue_templates]]\nprefix = 'a'\nconfig = { lease_ms = 1 }"),
            "queue_templates[0].config.lease_ms",
        ),
        (&[], Some("[[queue_templates]]\nprefix = 'a'\nconfig = { lease = 1 }"), "lease"),
        (&["--listen", "127.0.0.1:99999"], None, "--listen"),
        (&["--listen", "127.0.0.1:7601", "--metrics-listen", "127.0.0.1:7601"], None, "metrics_listen"),
        (&["--config", "/no/such/file"], None, "/no/such/file"),
    ] {
        let flags = args(&with_redis(flags));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        assert_says(&server(&flags, file).await, 2, words);
    }
    let asked = redis.accept().map(drop).map_err(|error| error.kind());
    assert_eq!(asked, Err(std::io::ErrorKind::WouldBlock), "Redis was asked before the configuration was checked");
    assert_says(&server(&["--redis-url", "http://x"], None).await, 2, "redis_url");
}

#[tokio::test]
async fn q16_a_volatile_redis_is_refused_unless_allowed() {
    let dir = TempDir::new().expect("a temporary folder");
    let options = PrivateRedisOptions { fsync: Fsync::EverySecond, ..PrivateRedisOptions::new(dir.path()) };
    let redis = PrivateRedis::start(options).await.expect("a redis-server");
    let url = redis.url();
    let args = ["--redis-url", &url, "--listen", "127.0.0.1:0"];
    let refused = server(&args, None).await;
    assert_says(&refused, 2, "appendfsync is 'everysec'");
    assert!(refused.stderr.contains("--allow-volatile"), "{refused:?}");
    let allowed = [&["server", "--allow-volatile", "--log-format", "json"], &args[..]].concat();
    let mut command = program::command(&allowed);
    // What it logs is on stderr; here it is read line by line.
    command.env("RUST_LOG", "info");
    let mut process = Running::start_logged(command);
    let line = process.line().await;
    let logged: serde_json::Value = serde_json::from_str(&line).expect("structured logs");
    assert!(logged.to_string().contains("serving"), "{line}");
    assert!(process.stop().await.success());

    redis.stop().await;
    assert_says(&server(&args, None).await, 3, "no Redis answers");
}

#[tokio::test]
async fn completions_are_printed() {
    let ended = program::run(program::command(&["completions", "bash"]), "").await;
    assert_eq!(ended.code, Some(0));
    assert!(ended.stdout.contains("complete -F _tallystone"), "{}", ended.stdout);
}
