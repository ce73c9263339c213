//! The program under test as a child process: it runs to its end, or until it is stopped or killed.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tallystone_tests::{Polling, cargo_build, http_client};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// How long a test waits for something that takes much less, since the machine may be busy.
pub(crate) const SOON: Duration = Duration::from_secs(120);
/// How long a command may take; the demo's month takes 10 s alone, and a minute among other tests.
const COMMAND_MAX: Duration = Duration::from_secs(300);

const POLL: Duration = Duration::from_millis(10);
/// How much of what a process has written is printed if its test fails.
const LAST_LINES: usize = 200;

/// The path of the program. It is built first, since an old one would prove nothing. The environment variable
/// `TALLYSTONE_PROGRAM` names another program to test.
pub(crate) fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| match std::env::var_os("TALLYSTONE_PROGRAM") {
        Some(path) => path.into(),
        None => cargo_build(&["-p", "tallystone"]).join("tallystone"),
    })
}

/// Polls until it holds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let (give_up_at, polling) = (Instant::now() + SOON, Polling::begin());
    while !holds().await {
        assert!(Instant::now() < give_up_at, "not in time: {what}");
        polling.pause().await;
    }
}

/// The metrics that a program serves at this address.
pub(crate) async fn metrics_page(address: &str) -> String {
    let http = http_client();
    let response = http.get(format!("http://{address}/metrics")).send().await.expect("metrics are served");
    response.text().await.expect("a page")
}

/// The program with these arguments, without the user's environment. Killed when it is dropped.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(path());
    command.args(args).env_clear().kill_on_drop(true);
    for name in ["PATH", "TALLYSTONE_REDIS_SERVER"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// The JSON objects that it wrote, one per line.
    pub(crate) fn json(&self) -> Vec<serde_json::Value> {
        self.stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {self:?}")))
            .collect()
    }

    /// The only JSON object that it wrote.
    pub(crate) fn object(&self) -> serde_json::Value {
        let mut objects = self.json();
        assert_eq!(objects.len(), 1, "{self:?}");
        objects.remove(0)
    }
}

/// Runs a command to its end, with this on its standard input.
pub(crate) async fn run(mut command: Command, stdin: &str) -> Ended {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut input = child.stdin.take().expect("a pipe");
    let write = async {
        // A program that has ended early does not read it all.
        let _ = input.write_all(stdin.as_bytes()).await;
        drop(input);
    };
    let (output, ()) =
        timeout(COMMAND_MAX, async { tokio::join!(child.wait_with_output(), write) }).await.expect("ends in time");
    let output = output.expect("an end");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// A program that runs until it is stopped. Killed when it is dropped.
pub(crate) struct Running {
    child: Child,
    /// What it writes on the stream that the test reads.
    lines: Lines<BufReader<Pipe>>,
    /// The last of these lines.
    last: Option<String>,
    /// Reads the other stream to its end, so that the program never blocks on a full pipe.
    other: JoinHandle<()>,
    /// What it has read of it. If the test fails, its end is printed.
    written: Arc<Mutex<String>>,
}

type Pipe = Box<dyn AsyncRead + Send + Unpin>;

impl Running {
    /// Starts it, to read its stdout line by line.
    pub(crate) fn start(command: Command) -> Self {
        Running::start_reading(command, |stdout, stderr| (stdout, stderr))
    }

    /// Starts it, to read its stderr line by line.
    pub(crate) fn start_logged(command: Command) -> Self {
        Running::start_reading(command, |stdout, stderr| (stderr, stdout))
    }

    fn start_reading(mut command: Command, choose: fn(Pipe, Pipe) -> (Pipe, Pipe)) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the program starts");
        let (stdout, stderr) = (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
        let (read, other) = choose(Box::new(stdout), Box::new(stderr));
        let written = Arc::new(Mutex::new(String::new()));
        let text = written.clone();
        let other = tokio::spawn(async move {
            let mut other = BufReader::new(other).lines();
            while let Some(line) = other.next_line().await.expect("text") {
                text.lock().unwrap().extend([line.as_str(), "\n"]);
            }
        });
        Running { child, lines: BufReader::new(read).lines(), last: None, other, written }
    }

    /// The next line that it writes. If it ends instead, this panics with the line before and the text of the other stream.
    pub(crate) async fn line(&mut self) -> String {
        let line = timeout(SOON, self.lines.next_line()).await.expect("a line in time").expect("text");
        match line {
            Some(line) => {
                self.last = Some(line.clone());
                line
            }
            None => panic!("ended after {:?}: {}", self.last.take(), self.last_words().await),
        }
    }

    /// Waits for its end, and returns the text of the stream that is not read line by line.
    pub(crate) async fn last_words(&mut self) -> String {
        timeout(SOON, &mut self.other).await.expect("an end in time").expect("text");
        std::mem::take(&mut self.written.lock().unwrap())
    }

    /// The text so far of the stream that is not read line by line.
    pub(crate) fn written(&self) -> String {
        self.written.lock().unwrap().clone()
    }

    /// Whether it has ended, without waiting.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }

    /// Waits until it accepts connections at this address. If it ends instead, this panics with its last words.
    pub(crate) async fn listens(&mut self, address: SocketAddr) {
        let give_up_at = Instant::now() + SOON;
        while TcpStream::connect(address).await.is_err() {
            assert!(!self.has_ended(), "it has ended: {}", self.last_words().await);
            assert!(Instant::now() < give_up_at, "it does not listen");
            sleep(POLL).await;
        }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("not waited for yet")
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid().cast_signed()), signal).expect("it runs");
    }

    /// Sends SIGTERM, and waits until it has ended.
    pub(crate) async fn stop(self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.ended().await
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(mut self) -> ExitStatus {
        timeout(SOON, self.child.wait()).await.expect("stops in time").expect("a child")
    }

    /// Kills it with SIGKILL.
    pub(crate) fn send_kill(&mut self) {
        self.child.start_kill().expect("a child");
    }

    /// Kills it with SIGKILL, and waits until it is gone.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("a child");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            let skipped = written.lines().count().saturating_sub(LAST_LINES);
            let last: Vec<&str> = written.lines().skip(skipped).collect();
            println!("process {:?} wrote at last:\n{}", self.child.id(), last.join("\n"));
        }
    }
}
