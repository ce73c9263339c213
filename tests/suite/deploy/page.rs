//! Every command of `docs/deploy.md`, in its order, on three addresses of this machine in the place of three machines.

use crate::system::pages::blocks;
use crate::system::program::{self, SOON, until};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use tallystone_tests::lasting_port;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

const HOSTS: [&str; 3] = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];

/// What the reader sets, and where the commands run.
struct Reader {
    dir: TempDir,
    /// What step 1 defines, for the shells of the later steps.
    settings: String,
    variables: Vec<(&'static str, String)>,
}

impl Reader {
    fn new(settings: String, variables: Vec<(&'static str, String)>) -> Reader {
        let dir = TempDir::new().expect("a temporary folder");
        std::os::unix::fs::symlink(program::path(), dir.path().join("tallystone")).expect("a link");
        Reader { dir, settings, variables }
    }

    fn shell(&self, commands: &str) -> Command {
        let mut shell = Command::new("bash");
        let path = std::env::var("PATH").unwrap_or_default();
        shell.args(["-euc", &format!("{}\n{commands}", self.settings)]).current_dir(self.dir.path()).env_clear();
        shell.env("PATH", format!("{}:{path}", self.dir.path().display()));
        shell.envs(self.variables.iter().map(|(name, value)| (*name, value)));
        shell
    }

    /// Runs commands to their end.
    async fn attempt(&self, commands: &str) -> Output {
        let mut shell = self.shell(commands);
        tokio::task::spawn_blocking(move || shell.output()).await.expect("no panic").expect("a shell")
    }

    /// Runs commands, which must succeed, to their end, and returns what they print.
    async fn run(&self, commands: &str) -> String {
        let ended = self.attempt(commands).await;
        assert!(ended.status.success(), "{commands}\n{}\n{}", text(&ended.stdout), text(&ended.stderr));
        text(&ended.stdout)
    }

    /// Starts a program that continues, with `HOST` set.
    fn start(&self, commands: &str, host: &str) -> Started {
        use std::os::unix::process::CommandExt as _;
        let log =
            std::fs::File::create(self.dir.path().join(format!("log-{}-{host}", commands.len()))).expect("a file");
        let mut shell = self.shell(commands);
        shell.env("HOST", host).process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Started(shell.spawn().expect("a shell"))
    }

    async fn listens(&self, host: &str, port: &str) {
        let give_up_at = Instant::now() + SOON;
        while TcpStream::connect(format!("{host}:{port}")).await.is_err() {
            assert!(Instant::now() < give_up_at, "{host}:{port} does not listen: {}", self.logs());
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// The one line of the configuration that names the data.
    fn store_ids(&self) -> String {
        let config = std::fs::read_to_string(self.dir.path().join("tallystone.toml")).expect("a file");
        let lines: Vec<&str> = config.lines().filter(|line| line.starts_with("store_ids = ")).collect();
        assert_eq!(lines.len(), 1, "{config}");
        lines[0].to_owned()
    }

    fn logs(&self) -> String {
        let files = std::fs::read_dir(self.dir.path()).expect("a folder").map(|file| file.expect("a file").path());
        let is_log =
            |path: &std::path::PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("log-"));
        files.filter(is_log).map(|path| std::fs::read_to_string(path).unwrap_or_default()).collect()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A process group; dropping it ends it.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = killpg(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn o7_the_page_installs_three_servers_as_it_is_written() {
    let page = "docs/deploy.md";
    let step = |heading: &str, count: usize| {
        let found = blocks(page, heading);
        assert_eq!(found.len(), count, "{heading}");
        found
    };
    let [port, counters_port, redis_port] = [(); 3].map(|()| lasting_port().to_string());
    let variables = vec![
        ("REDIS_HOST", HOSTS[0].to_owned()),
        ("REDIS_PORT", redis_port.clone()),
        ("HOSTS", HOSTS.join(" ")),
        ("PORT", port.clone()),
        ("COUNTERS_PORT", counters_port.clone()),
        ("NAME", "localhost".to_owned()),
    ];
    let reader = Reader::new(step("## 1. Names and addresses", 1).remove(0), variables);
    reader.run(&step("## 2. Certificates", 1)[0]).await;
    let redis = step("## 3. Redis", 2);
    reader.run(&redis[0]).await;
    let running_redis = reader.start(&redis[1], HOSTS[0]);
    reader.listens(HOSTS[0], &redis_port).await;
    reader.run(&step("## 4. Principals", 1)[0]).await;
    reader.run(&step("## 5. The configuration", 1)[0]).await;
    let programs = step("## 6. The servers", 4);
    let mut servers = Vec::new();
    for host in HOSTS {
        servers.push(reader.start(&programs[0], host));
        reader.listens(host, &port).await;
    }
    let _counters = reader.start(&programs[1], HOSTS[0]);
    let _worker = reader.start(&programs[2], HOSTS[0]);
    reader.listens(HOSTS[0], &counters_port).await;
    reader.run(&programs[3]).await;
    let named = reader.store_ids();
    assert_eq!(named.matches('"').count(), 4, "a mark of the queues and one of the counters: {named}");
    let works = step("## 7. See that it works", 2);
    let printed = reader.run(&works[0]).await;
    assert_eq!(printed.matches("serving\n").count(), 3, "{printed}");
    assert!(printed.contains("hello") && printed.contains("orders/eu"), "{printed}");
    // The second block continues the first one's shell.
    let printed = reader.run(&format!("{}\n{}", exports(&works[0]), works[1])).await;
    assert!(!printed.contains("orders/us"), "{printed}");
    // With one server killed, the others continue.
    drop(servers.pop());
    let one =
        format!("{}\ntallystone msg enqueue orders/eu --server \"https://{}:$PORT\"", exports(&works[0]), HOSTS[1]);
    reader.run(&one).await;
    // It starts again on the data that its configuration names.
    servers.push(reader.start(&programs[0], HOSTS[2]));
    reader.listens(HOSTS[2], &port).await;
    // The block of the other page continues the shell of step 8.
    let [take, put_back] = blocks("docs/operations/upgrades.md", "## Backups").try_into().expect("two blocks");
    let of_backup = step("## 8. Back up", 1).remove(0);
    reader.run(&format!("{of_backup}\n{take}")).await;
    assert!(reader.dir.path().join("backup/appendonlydir").is_dir());

    // By what comes later, the servers recognize the older copy. They note it about once a second.
    for number in 0..4 {
        reader.run(&format!("{one} --id later-{number}")).await;
        sleep(Duration::from_secs(1)).await;
    }
    drop(running_redis);
    let restore = step("## 9. Restore", 3);
    reader.run(&format!("{of_backup}\n{}\n{put_back}", restore[0])).await;
    let start = format!("{}\n{}", restore[0], restore[1]);
    let _redis = reader.start(&start, HOSTS[0]);
    reader.listens(HOSTS[0], &redis_port).await;
    let list = |host: &str| {
        format!("{}\ntallystone msg ls orders/eu --json --server \"https://{host}:$PORT\"", exports(&works[0]))
    };
    until("the servers refuse the older copy", async || {
        let listed = reader.attempt(&list(HOSTS[1])).await;
        !listed.status.success() && text(&listed.stderr).contains("is not what it was")
    })
    .await;
    reader.run(&restore[2]).await;
    for host in [HOSTS[0], HOSTS[1]] {
        let (list, queues) = (list(host), format!("{}\ntallystone queue ls", exports(&works[0])));
        until("the servers continue", async || reader.attempt(&list).await.status.success()).await;
        let listed = reader.run(&list).await;
        assert!(listed.lines().count() == 1 && !listed.contains("later"), "what the backup has: {listed}");
        assert!(reader.run(&queues).await.contains("orders/eu"));
    }
    // The accepted data has new marks, and a program starts on them.
    reader.run(&programs[3]).await;
    assert_ne!(reader.store_ids(), named);
    drop(servers.pop());
    servers.push(reader.start(&programs[0], HOSTS[2]));
    reader.listens(HOSTS[2], &port).await;
    // Secrets are for their owner.
    for file in ["ca.key", "server.key", "redis.password", "backup.password", "users.acl", "operator.token"] {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(reader.dir.path().join(Path::new(file))).expect(file).permissions().mode();
        assert_eq!(mode & 0o077, 0, "{file}");
    }
}

fn exports(block: &str) -> String {
    block.lines().filter(|line| line.starts_with("export ")).map(|line| format!("{line}\n")).collect()
}
