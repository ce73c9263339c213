//! What TLS and tokens cost: the same callers against a server with both, and against one in plain text for every caller.

use super::plan::QueuePlan;
use crate::load::{Draft, LoadClient, Traffic, drain, enqueue_all};
use crate::ours::{Ours, config_of};
use crate::report::{Goal, Reference, Row};
use crate::rig::Rig;
use crate::sample::{Sample, Samples};
use crate::shape::{BATCH, CALLERS, CLIENTS, CONNECTIONS};
use anyhow::Result;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tallystone_assembly::Config;
use tallystone_client::{Client, Completion, Dequeue, LeaseRef, NewMessage};
use tallystone_serving::Token;
use tempfile::TempDir;

const QUEUE: &str = "bench";
const GOAL: f64 = 0.8;
const TIMEOUT: Duration = Duration::from_secs(60);

/// The files of a server with TLS and tokens, and a token.
struct Secrets {
    dir: TempDir,
    token: String,
}

impl Secrets {
    fn new() -> Result<Secrets> {
        let dir = tempfile::tempdir()?;
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let token = Token::new()?;
        let secrets = Secrets { dir, token: token.text };
        secrets.write("cert", &cert.pem())?;
        secrets.write("key", &signing_key.serialize_pem())?;
        let rights = "rights = ['produce:bench', 'consume:bench', 'create:bench']";
        let entry = format!("[[principal.tokens]]\nid = '{}'\nsha256 = '{}'", token.id, token.sha256);
        secrets.write("principals", &format!("[[principal]]\nname = 'bench'\n{rights}\n{entry}\n"))?;
        Ok(secrets)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(self.path(name))?;
        Ok(std::io::Write::write_all(&mut { file }, text.as_bytes())?)
    }

    fn apply(&self, config: &mut Config) {
        config.tls.cert_file = Some(self.path("cert"));
        config.tls.key_file = Some(self.path("key"));
        config.auth.principals_file = Some(self.path("principals"));
    }
}

/// A caller with the client for programs: both sides call alike.
#[derive(Clone)]
struct Caller(Client);

impl LoadClient for Caller {
    type Held = LeaseRef;

    async fn enqueue(&mut self, drafts: Vec<Draft>) -> Result<()> {
        let message = |Draft { id, payload, priority, .. }| NewMessage::new(id, payload).priority(priority);
        let results = self.0.enqueue(QUEUE, drafts.into_iter().map(message).collect()).await?;
        results.into_iter().try_for_each(|result| Ok(result.map(drop)?))
    }

    async fn dequeue(&mut self, limit: usize) -> Result<Vec<LeaseRef>> {
        let leases = self.0.dequeue(Dequeue::new(QUEUE).limit(u32::try_from(limit)?)).await?;
        Ok(leases.iter().map(|lease| lease.lease_ref()).collect())
    }

    async fn complete(&mut self, held: Vec<LeaseRef>) -> Result<()> {
        let results = self.0.complete(QUEUE, held.into_iter().map(Completion::of).collect()).await?;
        results.into_iter().try_for_each(|result| Ok(result.map(drop)?))
    }
}

/// The rates of one side: one message per call, then batches, then dequeue and complete of all.
#[derive(Default)]
struct Rates {
    unary: Samples,
    batches: Samples,
    drain: Samples,
}

pub(super) async fn measure(plan: &QueuePlan, rig: &Rig) -> Result<Vec<Row>> {
    let secrets = Secrets::new()?;
    let [mut secured, mut plain] = [(); 2].map(|()| Rates::default());
    for run in 0..plan.runs {
        let mut sides = [(&mut secured, Some(&secrets)), (&mut plain, None)];
        // A side may be faster because it is the second one: each is so in half of the runs.
        if !run.is_multiple_of(2) {
            sides.reverse();
        }
        for (rates, secrets) in sides {
            let (unary, batches, drain) = side(plan, rig, secrets).await?;
            rates.unary.push(unary);
            rates.batches.push(batches);
            rates.drain.push(drain);
        }
    }
    let row = |what: String, of: fn(&Rates) -> &Samples| {
        let reference = Reference::Measured("plain text, every caller", of(&plain));
        Row::new(format!("TLS and tokens: {what}"), "/s", of(&secured), reference, Goal::RatioAtLeast(GOAL))
            .with("messages", plan.sizes.messages)
    };
    Ok(vec![
        row(format!("Enqueue, one message per call, {CALLERS} callers"), |rates| &rates.unary),
        row(format!("Enqueue, {CLIENTS} clients, batches of {BATCH}"), |rates| &rates.batches),
        row("Dequeue + Complete, the same".to_owned(), |rates| &rates.drain),
    ])
}

async fn side(plan: &QueuePlan, rig: &Rig, secrets: Option<&Secrets>) -> Result<(Sample, Sample, Sample)> {
    rig.flush().await?;
    let mut config = config_of(rig);
    secrets.iter().for_each(|secrets| secrets.apply(&mut config));
    let ours = Ours::start_with(config, plan.args.server_threads).await?;
    let callers = callers(&ours, secrets.map(|secrets| (secrets.path("cert"), secrets.token.as_str()))).await?;
    callers[0].0.create_queue(QUEUE, tallystone_client::QueueConfig::simple()).await?;
    let (messages, traffic) = (plan.sizes.messages, Traffic::plain());
    let label = |what: &str| format!("{}, {what}", if secrets.is_some() { "secured" } else { "plain" });
    let unary = enqueue_all(callers.clone(), 0..messages, 1, &traffic);
    let (_, unary) = plan.profiled(rig, &label("unary"), unary).await?;
    let eight = callers[..CLIENTS].to_vec();
    let batches = enqueue_all(eight, messages..2 * messages, BATCH, &traffic);
    let (eight, batches) = plan.profiled(rig, &label("batches"), batches).await?;
    let (_, drained) = plan.profiled(rig, &label("drain"), drain(eight, 2 * messages, BATCH)).await?;
    ours.stop().await?;
    Ok((unary.rate(), batches.rate(), drained.rate()))
}

/// All callers, spread over the connections.
async fn callers(ours: &Ours, secured: Option<(PathBuf, &str)>) -> Result<Vec<Caller>> {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let builder = Client::builder(match &secured {
            Some(_) => ours.url().replace("http://", "https://"),
            None => ours.url(),
        });
        let builder = builder.call_timeout(TIMEOUT);
        let builder = match &secured {
            Some((ca, token)) => builder.ca_file(ca as &Path).token(*token),
            None => builder,
        };
        clients.push(Caller(builder.connect().await?));
    }
    Ok(clients.into_iter().cycle().take(CALLERS).collect())
}
