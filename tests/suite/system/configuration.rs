//! Errors of the configuration, or of Redis, are one line each, and come before a port opens.

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

/// Checks the exit code, and that the error is one line and at most a hint.
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
    // A listener in the place of Redis: it must see no connection, because the configuration is checked first.
    let redis = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    redis.set_nonblocking(true).expect("a socket");
    let url = format!("redis://{}", redis.local_addr().expect("a bound port"));
    let with_redis = |args: &[&'static str]| [&["--redis-url", url.as_str()], args].concat().join("\n");
    let args = |text: &str| text.split('\n').map(str::to_owned).collect::<Vec<_>>();
    for (flags, file, words) in [
        (&[][..], Some("[server]\nlisen = '127.0.0.1:1'"), "unknown key `server.lisen`"),
        (&[], Some("[server]\nlisten = '127.0.0.1:99999'"), "`server.listen`"),
        (
            &[],
            Some("[server]\nsweeper_leader_lease_ms = 'soon'"),
            "is the text \"soon\"; it must be a whole number from 0",
        ),
        (&[], Some("[server]\nlisten = 7600"), "it must be"),
        (&[], Some("[kafka]\nbrokers = 7"), "is 7; it must be a text"),
        (&[], Some("[outbox]\nfull = 'explode'"), "is \"explode\"; it must be \""),
        (&[], Some("[server]\nsweeper_leader_lease_ms = 1"), "server.sweeper_leader_lease_ms"),
        (&[], Some("[counters]\nlistten = '127.0.0.1:1'"), "unknown key `counters.listten`"),
        (&[], Some("redis_url = 'redis://r'"), "is now `url` in [redis]"),
        (&["--kafka", "k:9092"], None, "the flag `--kafka` is now `--kafka-brokers`"),
        (
            &[],
            Some("[[queue_templates]]\nprefix = 'a'\nconfig = { lease_ms = 1 }"),
            "queue_templates[0].config.lease_ms",
        ),
        (&[], Some("[[queue_templates]]\nprefix = 'a'\nconfig = { lease = 1 }"), "lease"),
        (&[], Some("[[queue_templates]]\nprefix = 'a'"), "config"),
        (&[], Some("[[queue_templates]]\nconfig = { lease_ms = 1000 }"), "prefix"),
        (&[], Some("[kafka]\nbrokers = 'k'"), "kafka.brokers"),
        (&[], Some("[telemetry]\notlp_endpoint = 'collector:4317'"), "telemetry.otlp_endpoint"),
        (&[], Some("[telemetry]\nsample_ratio = 1.5"), "telemetry.sample_ratio"),
        (&["--sample-ratio", "2"], None, "telemetry.sample_ratio"),
        (&["--listen", "127.0.0.1:99999"], None, "--listen"),
        (&["--listen", "127.0.0.1:7601", "--metrics-listen", "127.0.0.1:7601"], None, "server.metrics_listen"),
        (&["--config", "/no/such/file"], None, "/no/such/file"),
    ] {
        let flags = args(&with_redis(flags));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        assert_says(&server(&flags, file).await, 2, words);
    }
    let connected = redis.accept().map(drop).map_err(|error| error.kind());
    assert_eq!(
        connected,
        Err(std::io::ErrorKind::WouldBlock),
        "the server connected to Redis before it checked the configuration"
    );
    assert_says(&server(&["--redis-url", "http://x"], None).await, 2, "redis.url");
}

#[tokio::test]
async fn every_verb_refuses_names_that_no_verb_knows() {
    let dir = TempDir::new().expect("a temporary folder");
    let path = dir.path().join("t.toml");
    let config = ["--config", path.to_str().expect("a plain path")];
    // A test in cli/src/args.rs has the same list.
    let verbs: [&[&str]; 12] = [
        &["server"],
        &["indexer"],
        &["counters"],
        &["rollup-worker"],
        &["views"],
        &["ingest"],
        &["dev"],
        &["compact", "check", "k"],
        &["counter", "namespace", "republish", "n"],
        &["counters", "clock"],
        &["store", "accept"],
        &["store", "show"],
    ];
    for verb in verbs {
        for (file, words) in [
            ("[counters]\nlistten = '127.0.0.1:1'", "did you mean `counters.listen`?"),
            ("[rollup_wroker]\nqueue_url = 'q'", "did you mean `[rollup_worker]`?"),
        ] {
            std::fs::write(&path, file).expect("a file");
            let ended = program::run(program::command(&[verb, &config[..]].concat()), "").await;
            assert_says(&ended, 2, "unknown");
            assert!(ended.stderr.contains(words), "{verb:?}: {ended:?}");
        }
        let mut command = program::command(verb);
        command.env("TALLYSTONE_COUNTERS_LISTTEN", "127.0.0.1:1");
        let ended = program::run(command, "").await;
        assert_says(&ended, 2, "unknown key in the environment: TALLYSTONE_COUNTERS_LISTTEN");
        assert!(ended.stderr.contains("did you mean TALLYSTONE_COUNTERS_LISTEN?"), "{verb:?}: {ended:?}");
    }
    assert_says(
        &program::run(program::command(&["worker"]), "").await,
        2,
        "the command `worker` is now `rollup-worker`",
    );
}

/// A misspelled name of the token's file or of the server would go unnoticed: the command would call without a token, or another server.
#[tokio::test]
async fn commands_without_a_configuration_refuse_variables_that_nothing_reads() {
    let verbs: [&[&str]; 16] = [
        &["queue", "ls"],
        &["queue", "depth", "q"],
        &["msg", "get", "q", "1"],
        &["msg", "trace", "q", "1"],
        &["work", "q", "--exec", "true"],
        &["check"],
        &["health"],
        &["history", "check"],
        &["counter", "get", "c"],
        &["counter", "add", "c"],
        &["counter", "namespace", "ls"],
        &["counter", "namespace", "plan", "--adds-per-s", "1", "--num-counters", "1"],
        &["token", "new", "--name", "n", "--right", "consume:*"],
        &["auth", "check", "--principals", "/no/such/file", "n", "consume", "q"],
        &["demo", "flights"],
        &["bench", "queue"],
    ];
    for verb in verbs {
        for (wrong, near) in [
            ("TALLYSTONE_CLIENT_TOKEN_FLE", "TALLYSTONE_CLIENT_TOKEN_FILE"),
            ("TALLYSTONE_TELEMETRY_OTLP_ENDPOIN", "TALLYSTONE_TELEMETRY_OTLP_ENDPOINT"),
            ("TALLYSTONE_SERVR", "TALLYSTONE_SERVER"),
            ("TALLYSTONE_COUNTRS", "TALLYSTONE_COUNTERS"),
        ] {
            let mut command = program::command(verb);
            command.env(wrong, "http://127.0.0.1:1");
            let ended = program::run(command, "").await;
            assert_says(&ended, 2, &format!("unknown key in the environment: {wrong}"));
            assert!(ended.stderr.contains(&format!("did you mean {near}?")), "{verb:?}: {ended:?}");
        }
    }
    // A shell that starts gets its completions.
    let mut completions = program::command(&["completions", "bash"]);
    completions.env("TALLYSTONE_SERVR", "http://127.0.0.1:1");
    let ended = program::run(completions, "").await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
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
    // It logs on stderr, which is read line by line here.
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
async fn a_redis_that_wants_a_password_is_not_away() {
    let dir = TempDir::new().expect("a temporary folder");
    let redis = PrivateRedis::start(PrivateRedisOptions::new(dir.path())).await.expect("a redis-server");
    let client = redis::Client::open(redis.url()).expect("a URL");
    let mut connection = tallystone_tests::patient_connection(&client).await.expect("a connection");
    let () = redis::cmd("CONFIG")
        .arg(&["SET", "requirepass", "secret"])
        .query_async(&mut connection)
        .await
        .expect("a password");
    let with = |user: &str| redis.url().replace("://", &format!("://{user}"));
    for (url, words) in [(redis.url(), "NOAUTH"), (with(":wrong@"), "denies access")] {
        let refused = server(&["--redis-url", &url, "--listen", "127.0.0.1:0"], None).await;
        assert_says(&refused, 2, words);
        assert!(refused.stderr.contains("redis://USER:PASSWORD@HOST:PORT"), "{refused:?}");
        assert!(!refused.stderr.contains("no Redis answers") && !refused.stderr.contains("wrong@"), "{refused:?}");
    }
    let mut command = program::command(&["server", "--redis-url", &with(":secret@"), "--listen", "127.0.0.1:0"]);
    command.env("RUST_LOG", "info");
    let mut process = Running::start_logged(command);
    assert!(process.line().await.contains("serving"));
    assert!(process.stop().await.success());
    redis.stop().await;
}

/// The flag, then the key's own variable, then the variable of the flag, then the file.
#[tokio::test]
async fn the_address_of_the_queue_has_one_order_of_precedence() {
    let dir = TempDir::new().expect("a temporary folder");
    let redis = PrivateRedis::start(PrivateRedisOptions::new(dir.path())).await.expect("a redis-server");
    let file = dir.path().join("t.toml");
    let text = "[rollup_worker]\nqueue_url = 'http://file:1'\n[counters]\nqueue_url = 'http://file:1'";
    std::fs::write(&file, text).expect("a file");
    let general = ("TALLYSTONE_SERVER", "http://general:1");
    for (verb, own) in
        [("rollup-worker", "TALLYSTONE_ROLLUP_WORKER_QUEUE_URL"), ("counters", "TALLYSTONE_COUNTERS_QUEUE_URL")]
    {
        let own = (own, "http://own:1");
        for (variables, flag, queue) in [
            (&[][..], None, "http://file:1"),
            (&[general], None, "http://general:1"),
            (&[general, own], None, "http://own:1"),
            (&[general, own], Some("http://flag:1"), "http://flag:1"),
        ] {
            let (url, file) = (redis.url(), file.to_str().expect("a plain path"));
            let mut command = program::command(&[verb, "--redis-url", &url, "--config", file, "--log-format", "json"]);
            command.args(flag.iter().flat_map(|flag| ["--server", flag]));
            if verb == "counters" {
                command.args(["--listen", "127.0.0.1:0"]);
            }
            command.envs(variables.iter().copied()).env("RUST_LOG", "info");
            let mut process = Running::start_logged(command);
            let line = process.line().await;
            assert!(line.contains(&format!(r#""queue":"{queue}""#)), "{verb} {variables:?} {flag:?}: {line}");
            process.kill().await;
        }
    }
    redis.stop().await;
}

#[tokio::test]
async fn completions_are_printed() {
    let ended = program::run(program::command(&["completions", "bash"]), "").await;
    assert_eq!(ended.code, Some(0));
    assert!(ended.stdout.contains("complete -F _tallystone"), "{}", ended.stdout);
}

/// The queue would refuse it each lease, and its counters would never be rolled up.
#[tokio::test]
async fn n8_a_rollup_worker_with_a_bad_name_does_not_start() {
    for name in ["x".repeat(129), "two\nlines".to_owned(), String::new()] {
        let ended = program::run(program::command(&["rollup-worker", "--name", &name]), "").await;
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains("--name"), "{ended:?}");
    }
}

#[tokio::test]
async fn a_bad_number_of_threads_is_one_line() {
    for threads in ["0", "foo"] {
        let mut command = program::command(&["queue", "ls"]);
        command.env("TOKIO_WORKER_THREADS", threads);
        assert_says(&program::run(command, "").await, 2, "TOKIO_WORKER_THREADS");
    }
}
